//! A slot that a node has dropped does not come back to it: what is held has not expired, but for the second that a sweep
//! may lag behind.

use std::collections::{BTreeMap, BTreeSet};

use super::known::probes_by_life;
use super::places::Place;
use crate::history::History;

pub fn broken(history: &History) -> Vec<String> {
    let mut found = Vec::new();
    for (life, probes) in probes_by_life(history) {
        let mut dropped: BTreeSet<Place> = BTreeSet::new();
        let mut before: BTreeMap<Place, u64> = BTreeMap::new();
        for probe in probes {
            let now: BTreeMap<Place, u64> =
                probe.cells.iter().map(|cell| ((cell.key, cell.slot, cell.life), cell.spent)).collect();
            dropped.extend(before.keys().filter(|place| !now.contains_key(place)).copied());
            for (key, slot, of) in now.keys().filter(|place| dropped.contains(place)) {
                // A reset drops cells that are alive, and what was under way then may be written anew.
                if history.resets(*key).next().is_none() {
                    found.push(format!(
                        "{} had dropped what {} spent for {} in slot {slot}, and held it again at {} ms",
                        history.life_name(life),
                        history.life_name(*of),
                        history.key_name(*key),
                        probe.at_ns / 1_000_000
                    ));
                }
            }
            before = now;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{probe, quiet};

    #[test]
    fn a_slot_that_comes_back() {
        let mut history = quiet();
        history.probes = vec![probe(0, 20, &[(0, 1, 5)]), probe(0, 40, &[]), probe(1, 50, &[(0, 1, 5)])];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes.push(probe(0, 60, &[(0, 1, 5)]));
        assert_eq!(broken(&history).len(), 1);
    }
}
