//! Within a life, a node's count of anyone's spends in a slot never falls, and is not forgotten before the slot has
//! expired.

use std::collections::HashMap;

use crate::history::{HeldCell, History, Life, Probe, Request};

pub fn broken(history: &History) -> Vec<String> {
    let mut last: HashMap<Life, &Probe> = HashMap::new();
    let mut found = Vec::new();
    for probe in &history.probes {
        if let Some(before) = last.insert(probe.life, probe) {
            found.extend(before.cells.iter().filter_map(|cell| fell(history, cell, probe)));
        }
    }
    found
}

/// What became of a cell that was held, where it became less.
fn fell(history: &History, cell: &HeldCell, probe: &Probe) -> Option<String> {
    let same = |held: &HeldCell| (held.key, held.slot, held.life).cmp(&(cell.key, cell.slot, cell.life));
    let now = probe.cells.binary_search_by(same).ok().map(|at| probe.cells[at].spent);
    let expired = || history.shape(cell.key).expires_ns(cell.slot, &history.retention) <= probe.slot_now_ns;
    // A reset, and a bucket that comes back to a former shape, drop what is alive.
    let by_reset = |reset: &Request| reset.sent_ns <= probe.at_ns && cell.slot <= reset_slot(history, reset);
    let forgiven = || history.changes_bucket(cell.key) || history.resets(cell.key).any(by_reset);
    if now.is_some_and(|now| now >= cell.spent) || (now.is_none() && expired()) || forgiven() {
        return None;
    }
    Some(format!(
        "{} knew {} and at {} ms knew {now:?}",
        history.life_name(probe.life),
        history.cell_name(cell),
        probe.at_ns / 1_000_000
    ))
}

/// The latest slot up to which a reset may forgive: that of the newest cell that there can have been.
fn reset_slot(history: &History, reset: &Request) -> u64 {
    history.shape(reset.key).slot(reset.slot_to_ns.saturating_add(2 * history.retention.max_skew_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{probe, quiet};

    #[test]
    fn a_count_that_fell_and_one_that_went_too_early() {
        let mut history = quiet();
        history.probes = vec![probe(0, 20, &[(0, 1, 5)]), probe(1, 30, &[]), probe(0, 40, &[(0, 1, 6)])];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes.push(probe(0, 60, &[(0, 1, 4)]));
        assert_eq!(broken(&history).len(), 1);
        history.probes[3] = probe(0, 4_999, &[]);
        assert_eq!(broken(&history).len(), 1);
        // The slot's end and twice the skew, 2 s, later.
        history.probes[3] = probe(0, 5_000, &[]);
        assert_eq!(broken(&history), Vec::<String>::new());
    }
}
