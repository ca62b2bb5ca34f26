//! Nothing is lost: a while after the load has ended and the last fault is over, every node holds exactly what was
//! spent, and all hold the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{HeldCell, History, Life, Outcome, Probe, Request};
use crate::scenario::REJOIN_MS;

/// Key, slot, whose.
type Place = (usize, u64, Life);

/// The least and the most that can have been spent at a place. They differ where a request was under way while a slot
/// ended, or when a node died with spends that it had told nobody.
type Owed = BTreeMap<Place, (u64, u64)>;

pub fn broken(history: &History) -> Vec<String> {
    let owed = owed(history, u64::MAX);
    let by_ns = history.settled_ns();
    let mut found: Vec<String> = (0..history.scenario.nodes.len())
        .filter_map(|node| {
            let mut late = calm_probes(history, node).filter(|probe| probe.at_ns >= by_ns);
            let wrong = match late.next() {
                Some(first) => std::iter::once(first).chain(late).find_map(|probe| wrong(history, &owed, probe)),
                None => Some(format!("{} was not seen after {} ms", history.node_name(node), by_ns / 1_000_000)),
            };
            wrong.map(|wrong| format!("not settled within {} ms: {wrong}", history.scenario.settle_ms))
        })
        .collect();
    found.extend(differ(history));
    let healed_ms = time_to_heal_ms(history);
    if healed_ms.is_none_or(|ms| ms > REJOIN_MS) {
        found.push(format!(
            "what was spent before a fault ended was known everywhere after {healed_ms:?} ms, not {REJOIN_MS}"
        ));
    }
    found
}

/// How long after the load and the last fault the last node held all that was spent, milliseconds; None: never.
pub fn time_to_converge_ms(history: &History) -> Option<u64> {
    let owed = owed(history, u64::MAX);
    let from_ns = history.scenario.calm_from_ms() * 1_000_000;
    let node_ns = |node| {
        let probes: Vec<&Probe> = calm_probes(history, node).collect();
        let still_wrong = probes.iter().rposition(|probe| wrong(history, &owed, probe).is_some());
        let settled = probes.get(still_wrong.map_or(0, |at| at + 1))?;
        Some(settled.at_ns - from_ns)
    };
    let all: Option<Vec<u64>> = (0..history.scenario.nodes.len()).map(node_ns).collect();
    all?.into_iter().max().map(|ns| ns.div_ceil(1_000_000))
}

/// How long after the last fault ended every node held all that had been spent by then, milliseconds, whatever was spent
/// since. 0 without faults; None: never.
pub fn time_to_heal_ms(history: &History) -> Option<u64> {
    let Some(healed_ms) = history.scenario.faults.iter().map(|fault| fault.at_ms).max() else { return Some(0) };
    let owed = owed(history, healed_ms * 1_000_000);
    let knows_all = |probe: &&Probe| {
        owed.iter().all(|(place, (least, _))| may_be_dropped(history, place, probe) || held(probe, place) >= *least)
    };
    let node_ns = |node| {
        let mut later = history.probes.iter().filter(|p| p.life.node == node && p.at_ns >= healed_ms * 1_000_000);
        later.find(knows_all).map(|probe| probe.at_ns - healed_ms * 1_000_000)
    };
    let all: Option<Vec<u64>> = (0..history.scenario.nodes.len()).map(node_ns).collect();
    all?.into_iter().max().map(|ns| ns.div_ceil(1_000_000))
}

fn calm_probes(history: &History, node: usize) -> impl Iterator<Item = &Probe> {
    let from_ns = history.scenario.calm_from_ms() * 1_000_000;
    history.probes.iter().filter(move |probe| probe.life.node == node && probe.at_ns >= from_ns)
}

/// What was spent by requests of the load that were answered before `until_ns` of the run, or never.
fn owed(history: &History, until_ns: u64) -> Owed {
    let mut owed = Owed::new();
    let taken = history.load().filter(|request| request.outcome != Outcome::Denied);
    for request in taken.filter(|request| request.answered_ns <= until_ns) {
        let shape = history.shape(request.key);
        let first = shape.slot(request.slot_from_ns);
        let last = shape.slot(request.slot_to_ns).min(first + 1);
        let certain = first == last && request.outcome == Outcome::Admitted && !may_be_lost(history, request);
        for slot in first..=last {
            let place = owed.entry((request.key, slot, request.life)).or_default();
            place.0 += if certain { request.cost } else { 0 };
            place.1 += request.cost;
        }
    }
    owed
}

/// Whether the node died before it must have told anyone.
fn may_be_lost(history: &History, request: &Request) -> bool {
    let others = (0..history.scenario.nodes.len()).filter(|node| *node != request.life.node);
    others.map(|node| Life { node, number: 0 }).all(|other| history.due_ns(request, other).is_none())
}

/// What a node lacks, or holds too much of. Slots that it may have dropped are left out.
fn wrong(history: &History, owed: &Owed, probe: &Probe) -> Option<String> {
    let places = owed
        .iter()
        .filter(|((key, slot, _), _)| history.shape(*key).expires_ns(*slot, &history.retention) > probe.slot_now_ns);
    places.into_iter().find_map(|((key, slot, life), (least, most))| {
        let same = |held: &crate::history::HeldCell| (held.key, held.slot, held.life).cmp(&(*key, *slot, *life));
        let held = probe.cells.binary_search_by(same).map_or(0, |at| probe.cells[at].spent);
        let right = (*least..=*most).contains(&held);
        (!right).then(|| {
            format!(
                "at {} ms {} held {held} of {} for {} in slot {slot}, {least} to {most} were spent",
                probe.at_ns / 1_000_000,
                history.node_name(probe.life.node),
                history.node_name(life.node),
                history.key_name(*key)
            )
        })
    })
}

fn held(probe: &Probe, (key, slot, life): &Place) -> u64 {
    let same = |held: &HeldCell| (held.key, held.slot, held.life).cmp(&(*key, *slot, *life));
    probe.cells.binary_search_by(same).map_or(0, |at| probe.cells[at].spent)
}

fn may_be_dropped(history: &History, (key, slot, _): &Place, probe: &Probe) -> bool {
    history.shape(*key).expires_ns(*slot, &history.retention) <= probe.slot_now_ns
}

/// Where the last looks at two nodes show different cells of slots that neither may have dropped.
fn differ(history: &History) -> Option<String> {
    let nodes = 0..history.scenario.nodes.len();
    let last: Vec<&Probe> = nodes.filter_map(|node| history.probes.iter().rfind(|p| p.life.node == node)).collect();
    let now_ns = last.iter().map(|probe| probe.slot_now_ns).max()?;
    let live = |probe: &&Probe| -> BTreeSet<_> {
        let lives = |key: usize, slot| history.shape(key).expires_ns(slot, &history.retention) > now_ns;
        probe.cells.iter().filter(|cell| lives(cell.key, cell.slot)).copied().collect()
    };
    let held: Vec<BTreeSet<_>> = last.iter().map(live).collect();
    held.windows(2).zip(&last).find(|(pair, _)| pair[0] != pair[1]).map(|(pair, probe)| {
        let cell = pair[0].symmetric_difference(&pair[1]).next();
        format!("{} and the next node hold different cells at the end: {cell:?}", history.node_name(probe.life.node))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{MS, probe, quiet, request};
    use crate::scenario::{Fault, What};

    /// 3 were spent at node 1; what node 0 holds of it at 1.6, 1.8 and 2.0 s.
    fn heard(by_node_0: [u64; 3]) -> History {
        let mut history = quiet();
        history.requests = vec![request(1, 1_400, 3, Outcome::Admitted)];
        for (ms, held) in [1_600, 1_800, 2_000].into_iter().zip(by_node_0) {
            let others = [1, 2].map(|node| probe(node, ms, &[(1, 1, 3)]));
            history.probes.push(probe(0, ms, &[(1, 1, held)]));
            history.probes.extend(others);
        }
        history
    }

    #[test]
    fn settled_in_time() {
        assert_eq!(broken(&heard([0, 3, 3])), Vec::<String>::new());
        assert_eq!(time_to_converge_ms(&heard([0, 3, 3])), Some(300));
    }

    #[test]
    fn a_cut_that_heals_too_slowly() {
        let mut history = heard([0, 0, 3]);
        let cut = Fault { at_ms: 1_000, what: What::Cut(1) };
        history.scenario.faults = vec![cut, Fault { at_ms: 1_450, what: What::Heal(1) }];
        history.scenario.settle_ms = 500;
        assert_eq!(time_to_heal_ms(&history), Some(550));
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes.retain(|probe| probe.life.node != 0 || probe.at_ns < 2_000 * MS);
        history.probes.push(probe(0, 1_450 + REJOIN_MS + 1, &[(1, 1, 3)]));
        assert_eq!(time_to_heal_ms(&history), Some(REJOIN_MS + 1));
        assert_eq!(broken(&history).len(), 1);
    }

    #[test]
    fn lost_or_too_late() {
        assert_eq!(broken(&heard([0, 2, 2])).len(), 2);
        assert_eq!(time_to_converge_ms(&heard([0, 2, 2])), None);
        let mut unseen = heard([3, 3, 3]);
        unseen.probes.retain(|probe| probe.life.node != 2);
        assert_eq!(broken(&unseen).len(), 1);
    }
}
