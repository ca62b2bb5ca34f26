//! Links that are cut.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::schedule::{Drawing, FAULTS_FROM_MS, What};

/// When something begins.
pub fn begin_ms(rng: &mut StdRng) -> u64 {
    FAULTS_FROM_MS + rng.random_range(0..1_000)
}

/// Two different nodes; None where there is only one.
pub fn two(drawing: &Drawing, rng: &mut StdRng) -> Option<(usize, usize)> {
    let mut nodes: Vec<usize> = (0..drawing.nodes()).collect();
    nodes.shuffle(rng);
    Some((*nodes.first()?, *nodes.get(1)?))
}

fn isolate_for(drawing: &mut Drawing, rng: &mut StdRng, lasting_ms: u64) {
    let (node, from_ms) = (rng.random_range(0..drawing.nodes()), begin_ms(rng));
    for other in drawing.schedule.others(node) {
        drawing.cut_between(node, other, from_ms, from_ms + lasting_ms);
    }
}

pub fn isolate(drawing: &mut Drawing, rng: &mut StdRng) {
    let lasting_ms = rng.random_range(2_000..4_000);
    isolate_for(drawing, rng, lasting_ms);
}

pub fn isolate_long(drawing: &mut Drawing, rng: &mut StdRng) {
    let lasting_ms = rng.random_range(6_000..10_000);
    isolate_for(drawing, rng, lasting_ms);
}

pub fn split(drawing: &mut Drawing, rng: &mut StdRng) {
    let (from_ms, lasting_ms, sides) = (begin_ms(rng), rng.random_range(1_000..4_000), rng.random_range(2..=3));
    let side: Vec<usize> = (0..drawing.nodes()).map(|_| rng.random_range(0..sides)).collect();
    split_into(drawing, &side, from_ms, from_ms + lasting_ms);
}

/// Cuts every link between nodes of different sides.
pub fn split_into(drawing: &mut Drawing, side: &[usize], from_ms: u64, until_ms: u64) {
    for a in 0..side.len() {
        for b in a + 1..side.len() {
            if side[a] != side[b] {
                drawing.cut_between(a, b, from_ms, until_ms);
            }
        }
    }
}

pub fn one_way(drawing: &mut Drawing, rng: &mut StdRng) {
    let Some((from, to)) = two(drawing, rng) else { return };
    let (from_ms, lasting_ms) = (begin_ms(rng), rng.random_range(1_000..8_000));
    drawing.fault(from_ms, What::Cut { from, to }, from_ms + lasting_ms, What::Heal { from, to });
}

pub fn chain(drawing: &mut Drawing, rng: &mut StdRng) {
    let Some((a, b)) = two(drawing, rng) else { return };
    let (from_ms, lasting_ms) = (begin_ms(rng), rng.random_range(2_000..8_000));
    drawing.cut_between(a, b, from_ms, from_ms + lasting_ms);
}

pub fn flap(drawing: &mut Drawing, rng: &mut StdRng) {
    let Some((a, b)) = two(drawing, rng) else { return };
    let mut at_ms = begin_ms(rng);
    for _ in 0..rng.random_range(5..=10) {
        let (down_ms, up_ms) = (rng.random_range(50..500), rng.random_range(50..500));
        drawing.cut_between(a, b, at_ms, at_ms + down_ms);
        at_ms += down_ms + up_ms;
    }
}

pub fn asymmetric(drawing: &mut Drawing, rng: &mut StdRng) {
    for link in &mut drawing.schedule.links {
        let by_ms = rng.random_range(0..=20.min(link.one_way_ms / 2));
        let (longer, shorter) = (link.one_way_ms + by_ms, link.one_way_ms - by_ms);
        (link.one_way_ms, link.back_ms) = if rng.random() { (longer, shorter) } else { (shorter, longer) };
    }
}
