//! Every queue and map stays within its bound.

use tidegate::codec::MAX_HAVE;
use tidegate::gossip::{MAX_CONNS, MAX_PEERS};
use tidegate::journal::MAX_PENDING_BYTES;

use crate::history::{History, Probe};

pub fn broken(history: &History) -> Vec<String> {
    history.probes.iter().flat_map(|probe| beyond(history, probe)).collect()
}

fn beyond(history: &History, probe: &Probe) -> Vec<String> {
    let (setup, sizes) = (&history.schedule.setup, &probe.sizes);
    // Own cells are always taken; they are bounded by the own keys.
    let own = probe.cells.iter().filter(|cell| cell.life.node == probe.life.node).count() as u64;
    let figures = [
        ("own keys", sizes.own_keys, setup.max_keys),
        ("cells of peers", sizes.cells.saturating_sub(own), setup.max_cells),
        ("bytes in the ring", sizes.gossip.ring_bytes as u64, setup.ring_bytes as u64),
        ("connections", sizes.gossip.conns as u64, MAX_CONNS as u64),
        ("peers", sizes.gossip.peers as u64, MAX_PEERS as u64),
        ("replicas", sizes.gossip.replicas as u64, MAX_HAVE as u64),
        ("bytes for the journal", sizes.pending_bytes, MAX_PENDING_BYTES as u64),
    ];
    let beyond = figures.into_iter().filter(|(_, is, most)| is > most);
    let name = history.life_name(probe.life);
    beyond
        .map(|(what, is, most)| format!("{name} had {is} {what} at {} ms, {most} at most", probe.at_ns / 1_000_000))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{probe, quiet};

    #[test]
    fn too_much_of_anything() {
        let mut history = quiet();
        history.probes = vec![probe(0, 20, &[(0, 0, 1), (0, 1, 1)])];
        (history.schedule.setup.max_cells, history.probes[0].sizes.cells) = (1, 2);
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes[0].sizes.cells = 3;
        history.probes[0].sizes.own_keys = history.schedule.setup.max_keys + 1;
        history.probes[0].sizes.gossip.conns = MAX_CONNS + 1;
        assert_eq!(broken(&history).len(), 3);
    }
}
