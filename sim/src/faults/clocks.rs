//! Clocks that are wrong, and machines that stand still.

use rand::Rng;
use rand::rngs::StdRng;

use super::network::begin_ms;
use crate::schedule::{Drawing, What};

/// The furthest from true time that a clock is set within which all must work, microseconds.
const MOST_OFFSET_US: i64 = 500_000;

pub fn offset(drawing: &mut Drawing, rng: &mut StdRng) {
    for node in &mut drawing.schedule.nodes {
        node.clock_offset_us = rng.random_range(-MOST_OFFSET_US..=MOST_OFFSET_US);
    }
    if drawing.nodes() > 1 {
        // The worst that it promises, whatever else is drawn: one clock at each end.
        let (first, apart) = (rng.random_range(0..drawing.nodes()), rng.random_range(1..drawing.nodes()));
        let last = (first + apart) % drawing.nodes();
        drawing.schedule.nodes[first].clock_offset_us = MOST_OFFSET_US - 20_000;
        drawing.schedule.nodes[last].clock_offset_us = 20_000 - MOST_OFFSET_US;
    }
}

pub fn drift(drawing: &mut Drawing, rng: &mut StdRng) {
    for node in &mut drawing.schedule.nodes {
        node.clock_drift_ppm = rng.random_range(-200..=200);
    }
}

pub fn step(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, at_ms, by_ms) = (rng.random_range(0..drawing.nodes()), begin_ms(rng), rng.random_range(20..1_500));
    let by_ms = if rng.random() { by_ms } else { -by_ms };
    drawing.at(at_ms, What::Step { node, by_ms });
    drawing.lasts_until(at_ms);
}

pub fn edge_step(drawing: &mut Drawing, rng: &mut StdRng) {
    // Windows of whole seconds have their edges at whole seconds.
    let (node, edge_ms) = (rng.random_range(0..drawing.nodes()), begin_ms(rng).div_ceil(1_000) * 1_000);
    let by_ms = rng.random_range(100..400);
    let ahead = rng.random();
    let (first, then) = if ahead { (by_ms, -by_ms) } else { (-by_ms, by_ms) };
    drawing.at(edge_ms - 50, What::Step { node, by_ms: first });
    drawing.at(edge_ms + 1_450, What::Step { node, by_ms: then });
    drawing.lasts_until(edge_ms + 1_450);
}

pub fn wrong_boot(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, at_ms) = (rng.random_range(0..drawing.nodes()), begin_ms(rng) + 2_000);
    let off_ms: i64 = if rng.random() { rng.random_range(3_000..20_000) } else { rng.random_range(60_000..3_600_000) };
    let off_ms = if rng.random() { off_ms } else { -off_ms };
    drawing.schedule.nodes[node].clock_offset_us += off_ms * 1_000;
    drawing.at(at_ms, What::Step { node, by_ms: -off_ms });
    drawing.lasts_until(at_ms);
}

pub fn pause(drawing: &mut Drawing, rng: &mut StdRng) {
    let (node, from_ms) = (rng.random_range(0..drawing.nodes()), begin_ms(rng));
    let lasting_ms = if rng.random() { rng.random_range(100..2_000) } else { rng.random_range(2_000..8_000) };
    drawing.fault(from_ms, What::Pause { node }, from_ms + lasting_ms, What::Resume { node });
}
