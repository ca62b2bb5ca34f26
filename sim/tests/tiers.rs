//! The same schedule gives the same totals in both tiers: what one leaves out is not what decides.
//!
//! Two things differ by nature, and these schedules make them not matter: over HTTP a request reaches the node a
//! millisecond after it was sent, and clients wait for each answer.

use std::collections::BTreeMap;

use tidegate::limits::Shape;
use tidegate_sim::history::{HeldCell, History, Outcome, Request};
use tidegate_sim::run::{Run, Tier};
use tidegate_sim::scenarios::{Switches, draw_with, find};
use tidegate_sim::schedule::{Schedule, What};
use tidegate_sim::trace::Trace;

const MS: u64 = 1_000_000;
/// What a request takes from the client to the node over HTTP, milliseconds.
const HTTP_MS: u64 = 1;
/// A client has its answer within this, milliseconds, and asks on.
const ANSWERED_MS: u64 = 5;
/// Slot clocks of the two tiers are within this, milliseconds: what nodes take for the way from a peer differs.
const CLOCKS_MS: u64 = 30;
/// By how much the two may differ where nodes decide by what they heard when, in per cent of what was admitted, and one
/// token.
const MOST_APART_PCT: u64 = 4;
/// More than anyone asks for.
const PLENTY: i64 = 1_000_000_000;

fn run(tier: Tier, mut schedule: Schedule) -> Run {
    if tier == Tier::Node {
        for event in schedule.events.iter_mut().filter(|event| matches!(event.what, What::Ask(_))) {
            event.at_ms -= HTTP_MS;
        }
        schedule.sort();
    }
    tier.run(schedule, Trace::new()).expect("the run comes to its end")
}

/// A drawn schedule without trials, in which no client has to wait.
fn drawn(scenario: &str, seed: u64) -> Schedule {
    let switches = Switches { node_tier: true, ..Switches::default() };
    let mut schedule = draw_with(find(scenario).expect("it is there"), seed, &switches);
    schedule.keys.iter_mut().for_each(|key| key.tried_at = None);
    let mut asked_ms = BTreeMap::new();
    schedule.events.retain(|event| match event.what {
        What::Ask(ask) => {
            let last_ms = asked_ms.entry((ask.node, ask.key)).or_insert(0);
            let waits = event.at_ms < *last_ms + ANSWERED_MS;
            *last_ms = if waits { *last_ms } else { event.at_ms };
            !waits
        }
        _ => true,
    });
    schedule
}

/// There is enough for everybody: limits so high that nothing is denied, with slots of a second and more.
fn with_plenty(mut schedule: Schedule) -> Schedule {
    for limit in &mut schedule.limits {
        limit.limit = Some(PLENTY);
        limit.burst = limit.burst.map(|_| 16 * PLENTY);
    }
    schedule
}

/// Without the requests that one tier may place in another slot than the other: those close to the edge of one. Buckets'
/// slots count where `of_buckets` says so.
fn off_the_edges(schedule: &Schedule, of_buckets: bool) -> Schedule {
    let run = run(Tier::Protocol, schedule.clone());
    let close = |request: &Request| {
        let shape = run.history.shape(request.key);
        let (slot_ns, around_ns) = (shape.slot_ns(), CLOCKS_MS * MS);
        let counts = of_buckets || !matches!(shape, Shape::Bucket(_));
        counts && (request.slot_from_ns + around_ns) % slot_ns < 2 * around_ns
    };
    let mut requests = run.history.load();
    let mut left = schedule.clone();
    left.events.retain(|event| match event.what {
        What::Ask(_) => !close(requests.next().expect("a node that runs answers every request")),
        _ => true,
    });
    assert!(requests.next().is_none());
    assert!(left.asks().count() > 100, "{} requests are left", left.asks().count());
    left
}

/// Tokens admitted, by (node, key).
fn admitted(history: &History) -> BTreeMap<(usize, usize), u64> {
    let mut admitted = BTreeMap::new();
    for request in history.load().filter(|request| request.surely_took()) {
        *admitted.entry((request.life.node, request.key)).or_insert(0) += request.cost;
    }
    admitted
}

/// What each node held when it was looked at for the last time.
fn last_looks(history: &History) -> BTreeMap<usize, (u64, &[HeldCell])> {
    history.probes.iter().map(|probe| (probe.life.node, (probe.at_ns / MS, &probe.cells[..]))).collect()
}

/// Runs a schedule in both tiers.
fn both(schedule: &Schedule) -> [Run; 2] {
    [Tier::Protocol, Tier::Node].map(|tier| run(tier, schedule.clone()))
}

fn by_key(admitted: &BTreeMap<(usize, usize), u64>, keys: usize) -> Vec<u64> {
    let sum = |key| admitted.iter().filter(|((_, of), _)| *of == key).map(|(_, tokens)| *tokens).sum();
    (0..keys).map(sum).collect()
}

#[test]
fn with_enough_for_everybody_both_tiers_admit_and_hold_the_same() {
    for (scenario, seeds) in [("network", 1..=5), ("weather", 1..=2), ("partition", 1..=2), ("skew", 1..=2)] {
        for seed in seeds {
            let schedule = off_the_edges(&with_plenty(drawn(scenario, seed)), true);
            let [protocol, node] = both(&schedule);
            let name = format!("{scenario} {seed}");
            let asked: u64 = schedule.asks().map(|(_, ask)| u64::from(ask.cost)).sum();
            assert_eq!(admitted(&node.history), admitted(&protocol.history), "{name}");
            assert_eq!(admitted(&node.history).values().sum::<u64>(), asked, "{name}");
            assert_eq!(last_looks(&node.history), last_looks(&protocol.history), "{name}");
            assert_eq!(last_looks(&node.history).len(), schedule.nodes.len(), "{name}");
        }
    }
}

#[test]
fn above_the_limits_at_one_node_both_tiers_admit_the_same() {
    for (scenario, seeds) in [("partition", 1..=4), ("skew", 1..=4)] {
        for seed in seeds {
            let mut schedule = drawn(scenario, seed);
            let asked_of = |node: &usize| schedule.asks().filter(|(_, ask)| ask.node == *node).count();
            let most = (0..schedule.nodes.len()).max_by_key(asked_of);
            schedule.events.retain(|event| !matches!(event.what, What::Ask(ask) if Some(ask.node) != most));
            let [protocol, node] = both(&off_the_edges(&schedule, false));
            assert_eq!(admitted(&node.history), admitted(&protocol.history), "{scenario} {seed}");
            let denied = |run: &Run| run.history.load().filter(|r| r.outcome == Outcome::Denied).count();
            assert!(denied(&protocol) > 0, "{scenario} {seed}");
            assert_eq!(denied(&node), denied(&protocol), "{scenario} {seed}");
        }
    }
}

#[test]
fn above_the_limits_everywhere_both_tiers_admit_about_the_same() {
    for (scenario, seeds) in [("converge", 1..=3), ("skew", 1..=3), ("weather", 1..=3), ("network", 1..=3)] {
        for seed in seeds {
            let schedule = drawn(scenario, seed);
            let [protocol, node] = both(&schedule).map(|run| by_key(&admitted(&run.history), schedule.keys.len()));
            println!("{scenario} {seed}: protocol tier {protocol:?}, node tier {node:?}");
            for (a, b) in protocol.iter().zip(&node) {
                assert!(a.abs_diff(*b) * 100 <= MOST_APART_PCT * a + 100, "{scenario} {seed}: {protocol:?}, {node:?}");
            }
        }
    }
}
