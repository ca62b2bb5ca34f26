//! No admission that what its node held would have denied. What others hear in between only adds to what is held, and a
//! wait told is the least: so a request decided before the wait was over must have been denied.

use tidegate::algorithms::Wait;

use crate::history::{History, Outcome, Probe, Request};
use crate::model::{Rule, Spend};

pub fn broken(history: &History) -> Vec<String> {
    let admitted = history.requests.iter().filter(|request| request.outcome == Outcome::Admitted);
    let (by_word, by_cells) = (admitted.clone().filter(against_its_word), admitted.filter(against_cells(history)));
    let by_word = by_word.map(|request| (request, "its node had just said it would deny it"));
    let by_cells = by_cells.map(|request| (request, "the cells that its node held leave no room"));
    let tell = |(request, why): (&Request, &str)| format!("{}: {why}", history.request_name(request, "admitted"));
    by_word.chain(by_cells).map(tell).collect()
}

fn against_its_word(request: &&Request) -> bool {
    match request.before {
        Wait::None => false,
        Wait::After(ns) => request.slot_to_ns < request.slot_from_ns.saturating_add(ns),
        Wait::Never => true,
    }
}

/// For windows, by the oracle's own arithmetic, from the last look at the node before the request was sent.
fn against_cells(history: &History) -> impl Fn(&&Request) -> bool {
    move |request| {
        let rule = history.rule(request.key);
        let (Rule::Fixed { window_ns, .. } | Rule::Sliding { window_ns, .. }) = rule else { return false };
        let Some(probe) = last_probe(history, request) else { return false };
        let held = probe.cells.iter().filter(|cell| cell.key == request.key);
        let spends = held.map(|cell| Spend { at_ns: cell.slot * window_ns, tokens: cell.spent });
        rule.used(request.slot_to_ns, spends) + request.cost > rule.capacity()
    }
}

fn last_probe<'a>(history: &'a History, request: &Request) -> Option<&'a Probe> {
    let until = history.probes.partition_point(|probe| probe.at_ns <= request.sent_ns);
    history.probes[..until].iter().rev().find(|probe| probe.life == request.life)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{MS, probe, quiet, request};

    #[test]
    fn admitted_against_its_own_word() {
        let mut history = quiet();
        history.requests = vec![request(0, 10, 1, Outcome::Admitted)];
        history.requests[0].before = Wait::After(2 * MS);
        assert_eq!(broken(&history), Vec::<String>::new());
        history.requests[0].before = Wait::After(3 * MS);
        assert_eq!(broken(&history).len(), 1);
    }

    #[test]
    fn admitted_against_the_cells() {
        let mut history = quiet();
        history.probes = vec![probe(0, 5, &[(0, 0, 4), (0, 1, 5)]), probe(1, 7, &[(0, 1, 11)])];
        history.requests = vec![request(0, 10, 1, Outcome::Admitted)];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.requests[0].cost = 2;
        assert_eq!(broken(&history).len(), 1);
    }
}
