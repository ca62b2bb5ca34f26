//! No phantom count: a node never holds more of anyone's spends than were made, and never denies what all true spends
//! together would leave room for.

use std::collections::HashMap;

use super::places::Place;
use crate::history::{History, Outcome, Request};
use crate::model::{Ledger, Rule, Spend};

pub fn broken(history: &History) -> Vec<String> {
    let mut found = phantom_cells(history);
    found.extend(false_denials(history).into_iter().map(|request| {
        format!("{}, although all that was truly spent leaves room", history.request_name(request, "denied"))
    }));
    found
}

fn phantom_cells(history: &History) -> Vec<String> {
    // For each place, when requests that may have spent there were sent, and how much they come to up to then. What a
    // reset moves to its own slot may stand anywhere.
    let mut spent: HashMap<Place, Vec<(u64, u64)>> = HashMap::new();
    let moved: Vec<bool> = (0..history.schedule.keys.len()).map(|key| history.resets(key).next().is_some()).collect();
    let place = |request: &Request, slot| (request.key, if moved[request.key] { 0 } else { slot }, request.life);
    for request in history.requests.iter().filter(|request| request.took()) {
        let shape = history.shape(request.key);
        let first = shape.slot(request.slot_from_ns);
        // Without an answer it was taken at once or not at all: the node died within the flight of the answer.
        let last = match request.outcome {
            _ if moved[request.key] => first,
            Outcome::Unknown => first + 1,
            _ => shape.slot(request.slot_to_ns),
        };
        for slot in first..=last {
            let sums = spent.entry(place(request, slot)).or_default();
            let sum = sums.last().map_or(0, |last| last.1) + request.cost;
            sums.push((request.sent_ns, sum));
        }
    }
    let mut found = Vec::new();
    for probe in &history.probes {
        for cell in &probe.cells {
            let place = (cell.key, if moved[cell.key] { 0 } else { cell.slot }, cell.life);
            let sums = spent.get(&place).map_or(&[][..], Vec::as_slice);
            let most = match sums.last() {
                // Nearly every look is at places that have come to rest.
                Some((at_ns, sum)) if *at_ns <= probe.at_ns => *sum,
                _ => sums.partition_point(|sum| sum.0 <= probe.at_ns).checked_sub(1).map_or(0, |at| sums[at].1),
            };
            if cell.spent > most {
                found.push(format!(
                    "{} held {} at {} ms, but only {most} can have been spent",
                    history.life_name(probe.life),
                    history.cell_name(cell),
                    probe.at_ns / 1_000_000
                ));
            }
        }
    }
    found
}

/// Denied requests that an omniscient node of the same clock would have admitted.
pub fn false_denials(history: &History) -> Vec<&Request> {
    let keys = 0..history.schedule.keys.len();
    keys.filter(|key| !history.changes_bucket(*key)).flat_map(|key| of_key(history, key)).collect()
}

fn of_key(history: &History, key: usize) -> Vec<&Request> {
    let mut spends: Vec<&Request> = history.requests.iter().filter(|r| r.key == key && r.took()).collect();
    spends.sort_by_key(|spend| spend.sent_ns);
    let decided = |r: &&Request| r.key == key && r.decided() && r.outcome == Outcome::Denied;
    let mut denied: Vec<&Request> = history.requests.iter().filter(decided).collect();
    denied.sort_by_key(|request| request.answered_ns);
    let (mut ledger, mut spends) = (Ledger::new(history.rule(key), u64::MAX), spends.into_iter().peekable());
    denied.retain(|request| {
        while let Some(spend) = spends.next_if(|spend| spend.sent_ns <= request.answered_ns) {
            // As late as it can have been: what counts longest.
            let at_ns = if spend.slot_to_ns == u64::MAX { spend.slot_from_ns } else { spend.slot_to_ns };
            ledger.add(Spend { at_ns, tokens: spend.cost });
        }
        let least = history.limits_of(request).iter().map(|limit| Rule::of(limit).capacity()).min().unwrap_or(0);
        // Usage falls with time: if it was ever too high between sending and answer, it was so at the beginning, but
        // for spends that came in between.
        ledger.used(request.slot_from_ns) + request.cost <= least
    });
    denied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{probe, quiet, request};

    #[test]
    fn more_held_than_spent() {
        let mut history = quiet();
        history.requests = vec![request(1, 10, 3, Outcome::Admitted), request(1, 20, 4, Outcome::Denied)];
        history.requests.push(request(1, 30, 2, Outcome::Unknown));
        history.probes = vec![probe(0, 25, &[(0, 1, 3)]), probe(0, 40, &[(0, 1, 5)])];
        assert_eq!(phantom_cells(&history), Vec::<String>::new());
        history.probes[0].cells[0].spent = 4;
        history.probes[1].cells[0].spent = 6;
        assert_eq!(phantom_cells(&history).len(), 2);
    }

    #[test]
    fn a_denial_that_nothing_explains() {
        let mut history = quiet();
        history.requests = vec![request(1, 10, 6, Outcome::Admitted), request(0, 500, 5, Outcome::Denied)];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.requests[1].cost = 4;
        assert_eq!(broken(&history).len(), 1);
        // What was spent in the window before explains nothing.
        history.requests[1] = request(0, 1_001, 5, Outcome::Denied);
        assert_eq!(broken(&history).len(), 1);
    }
}
