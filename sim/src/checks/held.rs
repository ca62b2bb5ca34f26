//! No admission that what its node held would have denied. What others hear in between only adds to what is held, and a
//! wait told is the least: so a request decided before the wait was over must have been denied.

use tidegate::algorithms::Verdict;

use super::known::probes_by_life;
use crate::history::{History, Outcome, Probe, Request};
use crate::model::{Rule, Spend};

pub fn broken(history: &History) -> Vec<String> {
    let admitted = || history.requests.iter().filter(|r| r.decided() && r.outcome == Outcome::Admitted);
    let by_word = admitted().filter(|request| against_its_word(history, request));
    let by_word = by_word.map(|request| (request, "its node had just said it would deny it"));
    let by_cells = against_cells(history).into_iter();
    let by_cells = by_cells.map(|request| (request, "the cells that its node held leave no room"));
    by_word
        .chain(by_cells)
        .map(|(request, why)| format!("{}: {why}", history.request_name(request, "admitted")))
        .collect()
}

fn against_its_word(history: &History, request: &Request) -> bool {
    // While a request is under way a reset may arrive, or a bucket's way back to a former shape: they forgive.
    let forgiven = history.resets(request.key).next().is_some() || history.changes_bucket(request.key);
    if forgiven && request.answered_ns > request.sent_ns {
        return false;
    }
    match request.before {
        Verdict::Admitted(_) => false,
        Verdict::After(ns) => request.slot_to_ns < request.slot_from_ns.saturating_add(ns),
        Verdict::Never => true,
    }
}

/// For windows, by the oracle's own arithmetic, from the last look at the node before the request was sent.
fn against_cells(history: &History) -> Vec<&Request> {
    let resets: Vec<bool> = (0..history.schedule.keys.len()).map(|key| history.resets(key).next().is_some()).collect();
    let by_life = probes_by_life(history);
    let admitted = history.requests.iter().filter(|r| r.decided() && r.outcome == Outcome::Admitted && !resets[r.key]);
    admitted
        .filter(|request| {
            let rule = history.rule(request.key);
            let (Rule::Fixed { window_ns, .. } | Rule::Sliding { window_ns, .. }) = rule else { return false };
            let Some(probe) = by_life.get(&request.life).and_then(|probes| last_before(probes, request)) else {
                return false;
            };
            // A slot that has not begun counts once the clocks are near enough.
            let nearest_ns = probe.slot_now_ns + history.retention.max_skew_ns;
            let held = probe.cells.iter().filter(|cell| cell.key == request.key && cell.slot * window_ns <= nearest_ns);
            let spends = held.map(|cell| Spend { at_ns: cell.slot * window_ns, tokens: cell.spent });
            let most = history.limits_of(request).iter().map(|limit| Rule::of(limit).capacity()).max().unwrap_or(0);
            rule.used(request.slot_to_ns, spends) + request.cost > most
        })
        .collect()
}

fn last_before<'a>(probes: &[&'a Probe], request: &Request) -> Option<&'a Probe> {
    let before = probes.partition_point(|probe| probe.at_ns < request.sent_ns);
    before.checked_sub(1).map(|at| probes[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{MS, probe, quiet, request};

    #[test]
    fn admitted_against_its_own_word() {
        let mut history = quiet();
        history.requests = vec![request(0, 10, 1, Outcome::Admitted)];
        history.requests[0].before = Verdict::After(2 * MS);
        assert_eq!(broken(&history), Vec::<String>::new());
        history.requests[0].before = Verdict::After(3 * MS);
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
