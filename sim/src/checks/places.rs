//! Where spends must stand: what was spent for certain, by key, slot and life.

use std::collections::HashMap;

use crate::history::{HeldCell, History, Life, Probe, Request};

/// Key, slot, whose.
pub type Place = (usize, u64, Life);

/// A spend that stands at one place for certain.
pub struct Placed<'a> {
    pub request: &'a Request,
    pub place: Place,
    /// Spent at the place up to and with this one, for certain, in the order of the spender.
    pub sum: u64,
}

/// How far from true time a clock may be whose spends are promised to count everywhere, nanoseconds.
const APART_NS: u64 = 1_900_000_000;

/// Spends of the load that stand at a place for certain, in the order of sending: admitted, within one slot, of keys
/// whose cells are not forgiven, moved or of another shape later, by clocks that are not far away.
pub fn placed(history: &History) -> Vec<Placed<'_>> {
    let moved: Vec<bool> = (0..history.schedule.keys.len())
        .map(|key| history.changes_bucket(key) || history.resets(key).next().is_some())
        .collect();
    let mut sums: HashMap<Place, u64> = HashMap::new();
    let mut all = Vec::new();
    for request in history.load().filter(|request| request.surely_took() && !moved[request.key]) {
        let shape = history.shape(request.key);
        let slot = shape.slot(request.slot_from_ns);
        let true_ns = history.epoch_ns + request.sent_ns;
        if slot != shape.slot(request.slot_to_ns) || request.slot_from_ns.abs_diff(true_ns) > APART_NS {
            continue;
        }
        let place = (request.key, slot, request.life);
        let sum = sums.entry(place).or_default();
        *sum += request.cost;
        all.push(Placed { request, place, sum: *sum });
    }
    all
}

/// What a node held at a place.
pub fn held(probe: &Probe, (key, slot, life): Place) -> u64 {
    let same = |held: &HeldCell| (held.key, held.slot, held.life).cmp(&(key, slot, life));
    probe.cells.binary_search_by(same).map_or(0, |at| probe.cells[at].spent)
}

/// Whether the node may have dropped the place by then.
pub fn may_be_dropped(history: &History, (key, slot, _): Place, probe: &Probe) -> bool {
    history.shape(key).expires_ns(slot, &history.retention) <= probe.slot_now_ns
}
