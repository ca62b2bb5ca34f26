//! What a node says of its own knowledge is true: it holds every spend of a life up to the time up to which it says it
//! does. Rules that reckon with what cannot be known yet rely on it.

use std::collections::HashMap;

use super::known::probes_by_life;
use super::places::{Placed, held, may_be_dropped, placed};
use crate::history::{History, Life};

pub fn broken(history: &History) -> Vec<String> {
    // By life, in the order of the spender's slot clock.
    let mut spends: HashMap<Life, Vec<Placed<'_>>> = HashMap::new();
    for spend in placed(history) {
        spends.entry(spend.request.life).or_default().push(spend);
    }
    spends.values_mut().for_each(|spends| spends.sort_by_key(|spend| spend.request.slot_to_ns));
    let mut found = Vec::new();
    for (life, probes) in probes_by_life(history) {
        let mut looked_at: HashMap<Life, usize> = HashMap::new();
        for probe in probes {
            for (of, upto_ns) in probe.complete_to.iter().filter(|known| known.0 != life) {
                let Some(spends) = spends.get(of) else { continue };
                let at = looked_at.entry(*of).or_default();
                while let Some(spend) = spends.get(*at).filter(|spend| spend.request.slot_to_ns <= *upto_ns) {
                    *at += 1;
                    if held(probe, spend.place) < spend.sum && !may_be_dropped(history, spend.place, probe) {
                        found.push(format!(
                            "{} said at {} ms that it knew all that {} had spent up to {} ms before, but held {} of {}: {}",
                            history.life_name(life),
                            probe.at_ns / 1_000_000,
                            history.life_name(*of),
                            probe.slot_now_ns.saturating_sub(*upto_ns) / 1_000_000,
                            held(probe, spend.place),
                            spend.sum,
                            history.request_name(spend.request, "for")
                        ));
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{MS, life, probe, quiet, request};
    use crate::history::Outcome;

    #[test]
    fn a_node_that_says_it_knows_more_than_it_does() {
        let mut history = quiet();
        history.requests = vec![request(1, 10, 3, Outcome::Admitted), request(1, 20, 3, Outcome::Admitted)];
        history.probes = vec![probe(0, 50, &[(0, 1, 3)])];
        history.probes[0].complete_to = vec![(life(1), 21 * MS)];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes[0].complete_to = vec![(life(1), 22 * MS)];
        assert_eq!(broken(&history).len(), 1);
        history.probes[0].cells[0].spent = 6;
        assert_eq!(broken(&history), Vec::<String>::new());
    }
}
