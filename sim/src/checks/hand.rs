//! Histories by hand, for the tests of the checks: two seconds of three nodes and one key of a fixed window, 10 a second,
//! slot clocks that are true time.

use tidegate::algorithms::Wait;
use tidegate::limits::{LimitSpec, Retention};

use crate::history::{HeldCell, History, Life, Outcome, Probe, Request};
use crate::scenario::{KeyPlan, Name, Scenario};

pub const MS: u64 = 1_000_000;

pub fn life(node: usize) -> Life {
    Life { node, number: 0 }
}

/// Nothing happened yet.
pub fn quiet() -> History {
    let mut scenario = Scenario::draw(Name::Converge, 1);
    let limit = LimitSpec {
        name: "ten".into(),
        algorithm: Some("fixed_window".into()),
        limit: Some(10),
        window: Some("1s".into()),
        ..LimitSpec::default()
    };
    let limits = vec![limit.check().expect("a good limit")];
    scenario.keys = vec![KeyPlan { limit, key: "k".into(), most_cost: 1, gap_ms: vec![None; 3], tried_at: 0 }];
    for link in &mut scenario.links {
        link.one_way_ms = 100;
    }
    (scenario.load_from_ms, scenario.load_until_ms, scenario.settle_ms) = (0, 1_500, 500);
    History {
        scenario,
        epoch_ns: 0,
        limits,
        retention: Retention::default(),
        requests: Vec::new(),
        probes: Vec::new(),
        trials: Vec::new(),
        bad_answers: Vec::new(),
    }
}

/// A request of `cost` at `node`, sent at `ms` and answered 2 ms later.
pub fn request(node: usize, ms: u64, cost: u64, outcome: Outcome) -> Request {
    let (sent_ns, answered_ns) = (ms * MS, (ms + 2) * MS);
    Request {
        life: life(node),
        key: 0,
        cost,
        sent_ns,
        answered_ns,
        slot_from_ns: sent_ns,
        slot_to_ns: answered_ns,
        before: Wait::None,
        outcome,
    }
}

/// What `node` held at `ms`: (slot, whose, tokens).
pub fn probe(node: usize, ms: u64, cells: &[(u64, usize, u64)]) -> Probe {
    let held = |&(slot, of, spent): &(u64, usize, u64)| HeldCell { key: 0, slot, life: life(of), spent };
    Probe { at_ns: ms * MS, life: life(node), slot_now_ns: ms * MS, cells: cells.iter().map(held).collect() }
}
