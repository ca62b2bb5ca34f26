//! Processes that die, and the disks on which they are started again.

use rand::Rng;
use rand::rngs::StdRng;

use super::network::{begin_ms, two};
use crate::schedule::{DiskState, Drawing, What};

fn any(drawing: &Drawing, rng: &mut StdRng) -> usize {
    rng.random_range(0..drawing.nodes())
}

/// A node is down for a while.
pub fn down(drawing: &mut Drawing, node: usize, from_ms: u64, until_ms: u64, disk: DiskState) {
    drawing.fault(from_ms, What::Crash { node }, until_ms, What::Start { node, disk });
}

pub fn crash(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, from_ms, lasting_ms) = (any(drawing, rng), begin_ms(rng), rng.random_range(300..2_000));
    down(drawing, node, from_ms, from_ms + lasting_ms, DiskState::Kept);
}

pub fn late_crash(drawing: &mut Drawing, rng: &mut StdRng) {
    // Slots are kept for eight seconds, records of the journal for up to ten more.
    let (node, from_ms, lasting_ms) = (any(drawing, rng), begin_ms(rng) + 19_000, rng.random_range(300..2_000));
    down(drawing, node, from_ms, from_ms + lasting_ms, DiskState::Kept);
}

pub fn long_down(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, from_ms, lasting_ms) = (any(drawing, rng), begin_ms(rng) + 4_000, rng.random_range(3_000..7_000));
    down(drawing, node, from_ms, from_ms + lasting_ms, DiskState::Kept);
}

pub fn crash_loop(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, mut at_ms) = (any(drawing, rng), begin_ms(rng));
    for _ in 0..rng.random_range(2..=5) {
        let (down_ms, up_ms) = (rng.random_range(20..400), rng.random_range(20..800));
        down(drawing, node, at_ms, at_ms + down_ms, DiskState::Kept);
        at_ms += down_ms + up_ms;
    }
}

pub fn crash_in_cut(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, from_ms) = (any(drawing, rng), begin_ms(rng));
    let (alive_ms, down_ms, more_ms) =
        (rng.random_range(200..2_000), rng.random_range(100..1_000), rng.random_range(100..1_000));
    for other in drawing.schedule.others(node) {
        drawing.cut_between(node, other, from_ms, from_ms + alive_ms + down_ms + more_ms);
    }
    down(drawing, node, from_ms + alive_ms, from_ms + alive_ms + down_ms, DiskState::Kept);
}

pub fn rolling_restart(drawing: &mut Drawing, rng: &mut StdRng) {
    let mut at_ms = begin_ms(rng);
    for node in 0..drawing.nodes() {
        let (down_ms, up_ms) = (rng.random_range(100..500), rng.random_range(300..1_500));
        down(drawing, node, at_ms, at_ms + down_ms, DiskState::Kept);
        at_ms += down_ms + up_ms;
    }
}

pub fn empty_disk(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, from_ms, lasting_ms) = (any(drawing, rng), begin_ms(rng), rng.random_range(100..2_000));
    down(drawing, node, from_ms, from_ms + lasting_ms, DiskState::Empty);
}

pub fn old_disk(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, from_ms, lasting_ms) = (any(drawing, rng), begin_ms(rng), rng.random_range(100..2_000));
    drawing.at(from_ms, What::Copy { node });
    let crash_ms = from_ms + rng.random_range(200..2_000);
    down(drawing, node, crash_ms, crash_ms + lasting_ms, DiskState::Copy);
}

pub fn join_in_chain(drawing: &mut Drawing, rng: &mut StdRng) {
    let Some((a, b)) = two(drawing, rng) else { return };
    let (from_ms, down_ms, after_ms) = (begin_ms(rng), rng.random_range(100..600), rng.random_range(500..4_000));
    let crash_ms = from_ms + rng.random_range(100..1_000);
    drawing.cut_between(a, b, from_ms, crash_ms + down_ms + after_ms);
    down(drawing, a, crash_ms, crash_ms + down_ms, DiskState::Empty);
    if rng.random() {
        // State goes where the ring is too short.
        drawing.schedule.setup.ring_bytes = rng.random_range(500..5_000);
    }
}
