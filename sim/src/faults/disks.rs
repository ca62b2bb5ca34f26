//! Disks that fail.

use rand::Rng;
use rand::rngs::StdRng;

use super::network::begin_ms;
use super::processes::down;
use crate::schedule::{DiskState, DiskTrouble, Drawing, What};

/// Trouble for a while. Returns the node, and begin and end of it.
fn trouble(drawing: &mut Drawing, rng: &mut StdRng, fault: DiskTrouble) -> (usize, u64, u64) {
    let (node, from_ms) = (rng.random_range(0..drawing.nodes()), begin_ms(rng));
    let until_ms = from_ms + rng.random_range(300..3_000);
    let (begin, end) = (What::Disk { node, fault: Some(fault) }, What::Disk { node, fault: None });
    drawing.fault(from_ms, begin, until_ms, end);
    (node, from_ms, until_ms)
}

pub fn full(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, _, until_ms) = trouble(drawing, rng, DiskTrouble::Full);
    let crash_ms = until_ms + rng.random_range(100..4_000);
    down(drawing, node, crash_ms, crash_ms + rng.random_range(100..1_000), DiskState::Kept);
}

pub fn failing(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, _, until_ms) = trouble(drawing, rng, DiskTrouble::Failing);
    down(drawing, node, until_ms - 100, until_ms + rng.random_range(100..1_000), DiskState::Kept);
}

pub fn torn(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, _, until_ms) = trouble(drawing, rng, DiskTrouble::Lying);
    down(drawing, node, until_ms - 100, until_ms + rng.random_range(100..1_000), DiskState::Kept);
}

pub fn slow(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, _, until_ms) = trouble(drawing, rng, DiskTrouble::Slow);
    if rng.random() {
        down(drawing, node, until_ms - 100, until_ms + rng.random_range(100..1_000), DiskState::Kept);
    }
}

pub fn damaged(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, from_ms) = (rng.random_range(0..drawing.nodes()), begin_ms(rng));
    drawing.at(from_ms + 50, What::Damage { node, records: rng.random_range(1..20) });
    down(drawing, node, from_ms, from_ms + rng.random_range(100..1_000), DiskState::Kept);
}
