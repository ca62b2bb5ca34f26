//! Histories by hand, for the tests of the checks: two seconds of three nodes and one key of a fixed window, 10 a second,
//! slot clocks that are true time, 100 ms from each to each.

use std::sync::OnceLock;

use tidegate::algorithms::Verdict;
use tidegate::limits::Retention;
use tidegate::node::Sizes;

use crate::history::{HeldCell, History, Life, LifeStart, Outcome, Probe, Request};
use crate::load;
use crate::reach::Reach;
use crate::schedule::{Drawing, Event, Operation, What};
use crate::states::States;

pub const MS: u64 = 1_000_000;

pub fn life(node: usize) -> Life {
    Life { node, number: 0 }
}

/// Nothing happened yet.
pub fn quiet() -> History {
    troubled(&[])
}

/// Nothing happened yet but these troubles.
pub fn troubled(events: &[(u64, What)]) -> History {
    let mut drawing = Drawing::new("by-hand", 1, 3);
    drawing.key(load::limit("fixed_window", 10, 1, 1), "k".to_owned(), Some(0));
    let mut schedule = drawing.done();
    schedule.links.iter_mut().for_each(|link| (link.one_way_ms, link.back_ms) = (100, 100));
    for node in &mut schedule.nodes {
        (node.clock_offset_us, node.clock_drift_ppm) = (0, 0);
    }
    (schedule.load_until_ms, schedule.calm_ms, schedule.settle_ms) = (1_500, 1_500, 500);
    schedule.events = events.iter().map(|(at_ms, what)| Event { at_ms: *at_ms, what: what.clone() }).collect();
    let begins = |node| LifeStart { life: life(node), at_ns: 0, process_ns: 0 };
    History {
        reach: Reach::new(&schedule),
        limits: schedule.checked_limits().expect("a good limit"),
        schedule,
        epoch_ns: 0,
        retention: Retention::default(),
        lives: (0..3).map(begins).collect(),
        requests: Vec::new(),
        probes: Vec::new(),
        trials: Vec::new(),
        settled: Vec::new(),
        expired: Vec::new(),
        wrong: Vec::new(),
        states: States::default(),
        rare: OnceLock::new(),
    }
}

/// Node 1 hears nothing and is not heard for a while.
pub fn cut_1(from_ms: u64, until_ms: u64) -> Vec<(u64, What)> {
    let both = [(0, 1), (1, 0), (2, 1), (1, 2)];
    let cuts = both.map(|(from, to)| (from_ms, What::Cut { from, to }));
    cuts.into_iter().chain(both.map(|(from, to)| (until_ms, What::Heal { from, to }))).collect()
}

/// A request of `cost` at `node`, sent at `ms` and answered 2 ms later.
pub fn request(node: usize, ms: u64, cost: u64, outcome: Outcome) -> Request {
    let (sent_ns, answered_ns) = (ms * MS, (ms + 2) * MS);
    Request {
        life: life(node),
        key: 0,
        cost,
        op: Operation::Check,
        sent_ns,
        answered_ns,
        slot_from_ns: sent_ns,
        slot_to_ns: answered_ns,
        before: Verdict::Admitted(0),
        outcome,
    }
}

/// What `node` held at `ms`: (slot, whose, tokens).
pub fn probe(node: usize, ms: u64, cells: &[(u64, usize, u64)]) -> Probe {
    let held = |&(slot, of, spent): &(u64, usize, u64)| HeldCell { key: 0, slot, life: life(of), spent };
    Probe {
        at_ns: ms * MS,
        life: life(node),
        slot_now_ns: ms * MS,
        cells: cells.iter().map(held).collect(),
        complete_to: Vec::new(),
        sizes: Sizes::default(),
    }
}
