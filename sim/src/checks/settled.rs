//! Once all is to be settled: every node is ready and its journal well; it is connected with every other, which has
//! acknowledged all; they agree about limits, or say that they do not; and a clock that is too far away is told.

use crate::history::{History, PeerStanding, Standing};
use crate::schedule::What;

pub fn broken(history: &History) -> Vec<String> {
    let mut found = Vec::new();
    for standing in &history.settled {
        let name = history.node_name(standing.node);
        found.extend(standing.not_ready.iter().map(|why| format!("{name} was not ready: {why}")));
        found.extend(standing.degraded.iter().map(|why| format!("the journal of {name} was degraded: {why}")));
        for other in history.schedule.others(standing.node) {
            found.extend(
                between(history, standing, other)
                    .map(|what| format!("{name} and {}: {what}", history.node_name(other))),
            );
        }
    }
    if history.settled.len() != history.schedule.nodes.len() {
        found.push(format!("{} of {} nodes were running", history.settled.len(), history.schedule.nodes.len()));
    }
    found
}

/// What is wrong between a node and another.
fn between(history: &History, standing: &Standing, other: usize) -> Option<String> {
    let at_ns = history.settled_ns();
    let peer = standing.peers.iter().find(|peer| peer.node == other);
    if !history.reach.agree_by(standing.node, other, at_ns) {
        let apart = history.reach.surely_apart(standing.node, other);
        let far = apart && peer.is_some_and(|peer| peer.connected && !peer.unreachable);
        return far.then(|| "their clocks are too far apart, and nobody says so".to_owned());
    }
    let Some(PeerStanding { connected, unreachable, backlog, limits_differ, .. }) = peer else {
        return Some("they never met".to_owned());
    };
    match (*connected, *unreachable, *backlog) {
        (false, ..) => return Some("they are not connected".to_owned()),
        (_, true, _) => return Some("a clock is called too far away that is not".to_owned()),
        (_, _, 1..) => return Some(format!("{backlog} chunks were not acknowledged")),
        _ => {}
    }
    let differ = really_differ(history, standing.node, other);
    (differ != *limits_differ).then(|| format!("limits {differ:?} differ, {limits_differ:?} are said to"))
}

/// Names of the limits that two nodes have differently at the end, in order.
fn really_differ(history: &History, a: usize, b: usize) -> Vec<String> {
    let last = |node: usize, of: usize| {
        let of_node = |event: &&crate::schedule::Event| matches!(event.what, What::Limit { node: n, limit, .. } if (n, limit) == (node, of));
        let last = history.schedule.events.iter().rev().find(of_node);
        match last.map(|event| &event.what) {
            Some(What::Limit { spec, .. }) => spec.check().ok(),
            _ => Some(history.limits[of].clone()),
        }
    };
    let differ = (0..history.limits.len()).filter(|of| last(a, *of) != last(b, *of));
    let mut names: Vec<String> = differ.map(|of| history.limits[of].name.to_string()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::quiet;

    fn settled() -> History {
        let mut history = quiet();
        let peer =
            |node| PeerStanding { node, connected: true, unreachable: false, backlog: 0, limits_differ: Vec::new() };
        let standing = |node: usize| Standing {
            node,
            not_ready: None,
            degraded: None,
            peers: (0..3).filter(|other| *other != node).map(peer).collect(),
        };
        history.settled = (0..3).map(standing).collect();
        history
    }

    #[test]
    fn whatever_is_not_well_is_found() {
        assert_eq!(broken(&settled()), Vec::<String>::new());
        let spoil: [fn(&mut History); 7] = [
            |history| history.settled[0].not_ready = Some("no".into()),
            |history| history.settled[0].degraded = Some("full".into()),
            |history| history.settled[0].peers[0].connected = false,
            |history| history.settled[0].peers[0].unreachable = true,
            |history| history.settled[0].peers[0].backlog = 3,
            |history| history.settled[0].peers[0].limits_differ = vec!["ten".into()],
            |history| drop(history.settled[0].peers.remove(1)),
        ];
        for (at, spoil) in spoil.iter().enumerate() {
            let mut history = settled();
            spoil(&mut history);
            assert_eq!(broken(&history).len(), 1, "{at}");
        }
    }

    #[test]
    fn clocks_too_far_apart_must_be_told() {
        let mut history = settled();
        history.schedule.nodes[1].clock_offset_us = 3_000_000;
        history.reach = crate::reach::Reach::new(&history.schedule);
        assert_eq!(broken(&history).len(), 4);
        for (node, peer) in [(0, 0), (1, 0), (1, 1), (2, 1)] {
            history.settled[node].peers[peer].unreachable = true;
        }
        assert_eq!(broken(&history), Vec::<String>::new());
    }
}
