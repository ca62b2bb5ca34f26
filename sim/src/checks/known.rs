//! Liveness: a spend is known to every other node when it is due: tau after it was answered while the two reach each
//! other, and what [`crate::bound`] allows for getting over it after a fault.

use std::collections::BTreeMap;

use super::places::{Placed, held, may_be_dropped, placed};
use crate::history::{History, Life, Probe};

pub fn broken(history: &History) -> Vec<String> {
    let spends = placed(history);
    let mut found = Vec::new();
    for (life, probes) in probes_by_life(history) {
        // By when they are due to this life.
        let mut due: Vec<(u64, &Placed<'_>)> =
            spends.iter().filter_map(|spend| Some((history.due_ns(spend.request, life)?, spend))).collect();
        due.sort_by_key(|due| due.0);
        let mut due = due.into_iter().peekable();
        for probe in probes {
            while let Some((due_ns, spend)) = due.next_if(|due| due.0 <= probe.at_ns) {
                let knows = held(probe, spend.place) >= spend.sum || may_be_dropped(history, spend.place, probe);
                if !knows {
                    found.push(format!(
                        "{} held {} of the {} that {} had spent in slot {} by {} ms, due at {} ms, at {} ms",
                        history.life_name(life),
                        held(probe, spend.place),
                        spend.sum,
                        history.request_name(spend.request, "for"),
                        spend.place.1,
                        spend.request.answered_ns / 1_000_000,
                        due_ns / 1_000_000,
                        probe.at_ns / 1_000_000,
                    ));
                }
            }
        }
    }
    found
}

/// Looks by life, in the order of time.
pub fn probes_by_life(history: &History) -> BTreeMap<Life, Vec<&Probe>> {
    let mut by_life: BTreeMap<Life, Vec<&Probe>> = BTreeMap::new();
    for probe in &history.probes {
        by_life.entry(probe.life).or_default().push(probe);
    }
    by_life
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::REJOIN_MS;
    use crate::checks::hand::{cut_1, probe, quiet, request, troubled};
    use crate::history::Outcome;

    #[test]
    fn a_spend_that_does_not_arrive_in_time() {
        let mut history = quiet();
        history.requests = vec![request(1, 10, 3, Outcome::Admitted)];
        // 50 of the interval, 100 of the way, 20 of slack.
        history.probes = vec![probe(0, 181, &[]), probe(0, 183, &[(0, 1, 3)])];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes[1].cells[0].spent = 2;
        assert_eq!(broken(&history).len(), 1);
    }

    #[test]
    fn a_cut_gives_time_and_no_more_than_it_takes() {
        let mut history = troubled(&cut_1(100, 400));
        history.requests = vec![request(1, 10, 3, Outcome::Admitted)];
        history.probes = vec![probe(0, 400 + REJOIN_MS + 160, &[])];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes.push(probe(0, 400 + REJOIN_MS + 170, &[]));
        assert_eq!(broken(&history).len(), 1);
    }
}
