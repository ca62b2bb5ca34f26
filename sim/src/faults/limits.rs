//! Limits that change, and keys that are reset.

use rand::Rng;
use rand::rngs::StdRng;
use tidegate::limits::LimitSpec;

use super::network::{begin_ms, isolate, two};
use crate::schedule::{Ask, Drawing, Operation, What};

/// A limit as it is, with another number of tokens.
fn changed(drawing: &Drawing, limit: usize, rng: &mut StdRng) -> LimitSpec {
    let mut spec = drawing.schedule.limits[limit].clone();
    let tokens = spec.limit.unwrap_or(1).max(1);
    spec.limit = Some((tokens * rng.random_range(40..200) / 100).max(2));
    spec
}

fn any_limit(drawing: &Drawing, rng: &mut StdRng) -> Option<usize> {
    let limits = drawing.schedule.limits.len();
    (limits > 0).then(|| rng.random_range(0..limits))
}

pub fn change(drawing: &mut Drawing, rng: &mut StdRng) {
    let Some(limit) = any_limit(drawing, rng) else { return };
    let spec = changed(drawing, limit, rng);
    let mut at_ms = begin_ms(rng);
    for node in 0..drawing.nodes() {
        drawing.at(at_ms, What::Limit { node, limit, spec: Box::new(spec.clone()) });
        drawing.lasts_until(at_ms);
        at_ms += rng.random_range(0..1_500);
    }
}

pub fn change_in_cut(drawing: &mut Drawing, rng: &mut StdRng) {
    let Some(limit) = any_limit(drawing, rng) else { return };
    isolate(drawing, rng);
    let (here, there) = (changed(drawing, limit, rng), changed(drawing, limit, rng));
    let healed_ms = drawing.faults_until_ms;
    for node in 0..drawing.nodes() {
        let spec = if node == 0 { &there } else { &here };
        drawing.at(healed_ms - rng.random_range(500..1_500), What::Limit { node, limit, spec: Box::new(spec.clone()) });
    }
    // Somebody makes up their mind.
    let last_ms = healed_ms + 500;
    drawing.at(last_ms, What::Limit { node: 0, limit, spec: Box::new(here) });
    drawing.lasts_until(last_ms);
}

/// Resets a key at a node.
fn reset_at(drawing: &mut Drawing, rng: &mut StdRng, at_ms: u64, node: usize) {
    let key = rng.random_range(0..drawing.schedule.keys.len());
    drawing.at(at_ms, What::Ask(Ask { node, key, cost: 0, op: Operation::Reset }));
    drawing.lasts_until(at_ms);
}

pub fn reset(drawing: &mut Drawing, rng: &mut StdRng) {
    for _ in 0..rng.random_range(1..=3) {
        let (at_ms, node) = (begin_ms(rng) + rng.random_range(0..1_000), rng.random_range(0..drawing.nodes()));
        reset_at(drawing, rng, at_ms, node);
    }
}

pub fn reset_in_cut(drawing: &mut Drawing, rng: &mut StdRng) {
    let Some((node, _)) = two(drawing, rng) else { return };
    let from_ms = begin_ms(rng);
    let until_ms = from_ms + rng.random_range(2_000..5_000);
    for other in drawing.schedule.others(node) {
        drawing.cut_between(node, other, from_ms, until_ms);
    }
    let at_ms = rng.random_range(from_ms + 100..from_ms + 1_000);
    reset_at(drawing, rng, at_ms, node);
}
