//! The engine as a whole.

mod arbitrary;
mod books;
mod changes;
mod cluster;
mod exchange;
mod matching;
mod oracle;
mod overload;
mod tables;
mod threads;
mod vectors;

use super::*;
use crate::id::NodeName;
use crate::limits::{Limit, LimitSet, LimitSpec};

/// Some instant.
pub const T0: u64 = 1_728_000_000_000_000_000;

pub fn replica(node: &str, generation: u64) -> ReplicaId {
    ReplicaId { node: NodeName::new(node).unwrap(), generation, nonce: 7 }
}

pub fn engine(node: &str, settings: Settings) -> Engine {
    Engine::new(settings, replica(node, 1), &Secret([3; 32]))
}

pub fn limit(name: &str, algorithm: &str, tokens: i64, window: &str, burst: Option<i64>) -> LimitSpec {
    LimitSpec {
        name: name.to_owned(),
        algorithm: Some(algorithm.to_owned()),
        limit: Some(tokens),
        window: Some(window.to_owned()),
        burst,
        ..LimitSpec::default()
    }
}

pub fn set(specs: &[LimitSpec]) -> LimitSet {
    LimitSet::new(specs.iter().map(|spec| spec.check().unwrap())).unwrap()
}

/// One part of one request.
pub fn one(engine: &Engine, now_ns: u64, op: Op, limit: &str, key: &str, cost: u32) -> Outcome {
    let answer = engine.decide(now_ns, op, &[Ask { limit, key, cost }]).unwrap();
    answer.results.into_iter().next().unwrap()
}

/// Each takes in what the other drained.
pub fn exchange(a: &Engine, b: &Engine, now_ns: u64) {
    for (from, to) in [(a, b), (b, a)] {
        for part in from.drain(now_ns).parts {
            let merged = to.merge(now_ns, &from.own(), &part.groups).unwrap();
            assert_eq!((merged.refused, merged.own_above), (0, false));
        }
    }
}
