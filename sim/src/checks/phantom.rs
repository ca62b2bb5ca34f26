//! No phantom count: a node never holds more of anyone's spends than were made, and never denies what all true spends
//! together would leave room for.

use std::collections::HashMap;

use crate::history::{History, Life, Outcome, Request};

pub fn broken(history: &History) -> Vec<String> {
    let mut found = phantom_cells(history);
    found.extend(false_denials(history).into_iter().map(|request| {
        format!("{}, although all that was truly spent leaves room", history.request_name(request, "denied"))
    }));
    found
}

/// Where a spend may stand: key, slot, whose.
type Place = (usize, u64, Life);

fn phantom_cells(history: &History) -> Vec<String> {
    // For each place, when requests that may have spent there were sent, and how much they come to up to then.
    let mut spent: HashMap<Place, Vec<(u64, u64)>> = HashMap::new();
    for request in history.requests.iter().filter(|request| request.outcome != Outcome::Denied) {
        let shape = history.shape(request.key);
        let first = shape.slot(request.slot_from_ns);
        // Without an answer it was taken at once or not at all: the node died within the flight of the answer.
        let last = shape.slot(request.slot_to_ns).min(first + 1);
        for slot in first..=last {
            let sums = spent.entry((request.key, slot, request.life)).or_default();
            let sum = sums.last().map_or(0, |last| last.1) + request.cost;
            sums.push((request.sent_ns, sum));
        }
    }
    let most = |place: &Place, at_ns: u64| {
        let sums = spent.get(place).map_or(&[][..], Vec::as_slice);
        sums.partition_point(|sum| sum.0 <= at_ns).checked_sub(1).map_or(0, |at| sums[at].1)
    };
    let mut found = Vec::new();
    for probe in &history.probes {
        for cell in &probe.cells {
            let most = most(&(cell.key, cell.slot, cell.life), probe.at_ns);
            if cell.spent > most {
                found.push(format!(
                    "{} held {} at {} ms, but only {most} can have been spent",
                    history.node_name(probe.life.node),
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
    let denied = history.requests.iter().filter(|request| request.outcome == Outcome::Denied);
    denied
        .filter(|request| {
            let rule = history.rule(request.key);
            // Usage falls with time: if it was ever too high between sending and answer, it was so at the beginning, but
            // for spends that came in between.
            let now_ns = request.slot_from_ns;
            let others = history.requests.iter().filter(|other| {
                let taken = other.key == request.key && other.outcome != Outcome::Denied;
                taken
                    && other.sent_ns <= request.answered_ns
                    && other.slot_to_ns >= now_ns.saturating_sub(rule.look_back_ns())
            });
            let used = rule.used(now_ns, others.map(|other| other.latest(now_ns)));
            used + request.cost <= rule.capacity()
        })
        .collect()
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
