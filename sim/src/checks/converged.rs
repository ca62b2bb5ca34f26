//! Nothing is lost: once all is calm and settled, every node holds exactly what was spent, and all hold the same.

use std::collections::{BTreeMap, BTreeSet};

use super::places::{Place, held, may_be_dropped, placed};
use crate::history::{HeldCell, History, Outcome, Probe};

/// The least and the most that can have been spent at a place. They differ where a request was under way while a slot
/// ended, or when a node died with spends that it had told nobody.
type Owed = BTreeMap<Place, (u64, u64)>;

pub fn broken(history: &History) -> Vec<String> {
    let owed = owed(history, u64::MAX);
    let mut found: Vec<String> = (0..history.schedule.nodes.len())
        .filter_map(|node| {
            let probe = last_probe(history, node);
            let wrong = match probe {
                Some(probe) => wrong(history, &owed, probe),
                None => Some(format!("{} was not seen at the end", history.node_name(node))),
            };
            wrong.map(|wrong| format!("not settled within {} ms: {wrong}", history.schedule.settle_ms))
        })
        .collect();
    found.extend(differ(history));
    found
}

fn last_probe(history: &History, node: usize) -> Option<&Probe> {
    history.probes.iter().rfind(|probe| probe.life.node == node)
}

/// How long after load and last fault the last node held all that was spent, milliseconds; None: never.
pub fn time_to_converge_ms(history: &History) -> Option<u64> {
    let owed = owed(history, u64::MAX);
    let from_ns = history.schedule.calm_ms * 1_000_000;
    let node_ns = |node| {
        let probes: Vec<&Probe> = calm_probes(history, node).collect();
        let still_wrong = probes.iter().rposition(|probe| wrong(history, &owed, probe).is_some());
        let settled = probes.get(still_wrong.map_or(0, |at| at + 1))?;
        Some(settled.at_ns - from_ns)
    };
    let all: Option<Vec<u64>> = (0..history.schedule.nodes.len()).map(node_ns).collect();
    all?.into_iter().max().map(|ns| ns.div_ceil(1_000_000))
}

/// How long after the last fault ended every node held all that had been spent by then, milliseconds, whatever was spent
/// since. 0 without faults; None: never.
pub fn time_to_heal_ms(history: &History) -> Option<u64> {
    let ends = history.schedule.troubles().map(|event| event.at_ms).filter(|at_ms| *at_ms < history.schedule.calm_ms);
    let Some(healed_ms) = ends.max() else { return Some(0) };
    let owed = owed(history, healed_ms * 1_000_000);
    let knows_all = |probe: &&Probe| {
        owed.iter().all(|(place, (least, _))| may_be_dropped(history, *place, probe) || held(probe, *place) >= *least)
    };
    let node_ns = |node| {
        let mut later = history.probes.iter().filter(|p| p.life.node == node && p.at_ns >= healed_ms * 1_000_000);
        later.find(knows_all).map(|probe| probe.at_ns - healed_ms * 1_000_000)
    };
    let all: Option<Vec<u64>> = (0..history.schedule.nodes.len()).map(node_ns).collect();
    all?.into_iter().max().map(|ns| ns.div_ceil(1_000_000))
}

fn calm_probes(history: &History, node: usize) -> impl Iterator<Item = &Probe> {
    let from_ns = history.schedule.calm_ms * 1_000_000;
    history.probes.iter().filter(move |probe| probe.life.node == node && probe.at_ns >= from_ns)
}

/// What was spent by requests of the load that were answered before `until_ns` of the run, or never. Keys whose cells are
/// forgiven, moved or of another shape later are left out.
fn owed(history: &History, until_ns: u64) -> Owed {
    let mut owed = Owed::new();
    let plain: Vec<bool> = (0..history.schedule.keys.len())
        .map(|key| !history.changes_bucket(key) && history.resets(key).next().is_none())
        .collect();
    let taken = history.load().filter(|request| request.took() && plain[request.key]);
    for request in taken.filter(|request| request.answered_ns <= until_ns || request.outcome == Outcome::Unknown) {
        let shape = history.shape(request.key);
        let first = shape.slot(request.slot_from_ns);
        let last = if request.outcome == Outcome::Unknown { first + 1 } else { shape.slot(request.slot_to_ns) };
        for slot in first..=last {
            owed.entry((request.key, slot, request.life)).or_default().1 += request.cost;
        }
    }
    for spend in placed(history).iter().filter(|spend| spend.request.answered_ns <= until_ns) {
        let lost = history.reach.may_be_lost(spend.place.2.node, spend.request.answered_ns);
        owed.entry(spend.place).or_default().0 += if lost { 0 } else { spend.request.cost };
    }
    owed
}

/// What a node lacks, or holds too much of. Slots that it may have dropped are left out, and nodes that need not agree.
fn wrong(history: &History, owed: &Owed, probe: &Probe) -> Option<String> {
    let node = probe.life.node;
    let agrees: Vec<bool> =
        (0..history.schedule.nodes.len()).map(|of| history.reach.agree_by(of, node, probe.at_ns)).collect();
    let concerns = |place: &Place| place.2 == probe.life || agrees[place.2.node];
    let mut places = owed.iter().filter(|(place, _)| concerns(place) && !may_be_dropped(history, **place, probe));
    places.find_map(|(place, (least, most))| {
        let held = held(probe, *place);
        let (key, slot, life) = *place;
        (!(*least..=*most).contains(&held)).then(|| {
            format!(
                "at {} ms {} held {held} of {} for {} in slot {slot}, {least} to {most} were spent",
                probe.at_ns / 1_000_000,
                history.node_name(node),
                history.life_name(life),
                history.key_name(key)
            )
        })
    })
}

/// Where the last looks at two nodes show different cells of slots that neither may have dropped.
fn differ(history: &History) -> Option<String> {
    let nodes = 0..history.schedule.nodes.len();
    let last: Vec<&Probe> = nodes.filter_map(|node| last_probe(history, node)).collect();
    let now_ns = last.iter().map(|probe| probe.slot_now_ns).max()?;
    let live = |probe: &&Probe| -> BTreeSet<HeldCell> {
        let lives = |key: usize, slot| history.shape(key).expires_ns(slot, &history.retention) > now_ns;
        probe.cells.iter().filter(|cell| lives(cell.key, cell.slot)).copied().collect()
    };
    let held: Vec<BTreeSet<HeldCell>> = last.iter().map(live).collect();
    let pairs = last.windows(2).zip(held.windows(2));
    let mut agreeing =
        pairs.filter(|(pair, _)| history.reach.agree_by(pair[0].life.node, pair[1].life.node, pair[0].at_ns));
    agreeing.find(|(_, held)| held[0] != held[1]).map(|(pair, held)| {
        let cell = held[0].symmetric_difference(&held[1]).next();
        let names = [0, 1].map(|at| history.node_name(pair[at].life.node));
        let cell = cell.map(|cell| history.cell_name(cell));
        format!("{} and {} hold different cells at the end: {cell:?}", names[0], names[1])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{cut_1, probe, request, troubled};
    use crate::schedule::What;

    /// 3 were spent at node 1; what node 0 holds of it at 1.6, 1.8 and 2.0 s.
    fn heard(events: &[(u64, What)], by_node_0: [u64; 3]) -> History {
        let mut history = troubled(events);
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
        assert_eq!(broken(&heard(&[], [0, 3, 3])), Vec::<String>::new());
        assert_eq!(time_to_converge_ms(&heard(&[], [0, 3, 3])), Some(300));
    }

    #[test]
    fn a_cut_that_heals_late() {
        let history = heard(&cut_1(1_000, 1_450), [0, 0, 3]);
        assert_eq!(time_to_heal_ms(&history), Some(550));
    }

    #[test]
    fn lost_or_too_late() {
        // Node 0 lacks it, and holds other cells than its neighbour.
        assert_eq!(broken(&heard(&[], [0, 2, 2])).len(), 2);
        assert_eq!(time_to_converge_ms(&heard(&[], [0, 2, 2])), None);
        let mut unseen = heard(&[], [3, 3, 3]);
        unseen.probes.retain(|probe| probe.life.node != 2);
        assert_eq!(broken(&unseen).len(), 1);
    }
}
