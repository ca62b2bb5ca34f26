//! What single packets suffer.

use rand::Rng;
use rand::rngs::StdRng;

use super::network::begin_ms;
use crate::schedule::{Drawing, Weather, What};

/// Weather that lasts for a while.
fn storm(drawing: &mut Drawing, rng: &mut StdRng, lasting_ms: u64, weather: Weather) {
    let from_ms = begin_ms(rng);
    drawing.fault(from_ms, What::Weather(weather), from_ms + lasting_ms, What::Weather(Weather::default()));
}

pub fn loss(drawing: &mut Drawing, rng: &mut StdRng) {
    let (lasting_ms, loss_ppm) = (rng.random_range(2_000..5_000), rng.random_range(1_000..20_000));
    storm(drawing, rng, lasting_ms, Weather { loss_ppm, ..Weather::default() });
}

pub fn loss_burst(drawing: &mut Drawing, rng: &mut StdRng) {
    let (lasting_ms, loss_ppm) = (rng.random_range(200..1_500), rng.random_range(200_000..400_000));
    storm(drawing, rng, lasting_ms, Weather { loss_ppm, ..Weather::default() });
}

pub fn duplicate(drawing: &mut Drawing, rng: &mut StdRng) {
    let (lasting_ms, duplicate_ppm) = (rng.random_range(2_000..5_000), rng.random_range(1_000..100_000));
    storm(drawing, rng, lasting_ms, Weather { duplicate_ppm, ..Weather::default() });
}

pub fn reorder(drawing: &mut Drawing, rng: &mut StdRng) {
    let (lasting_ms, late_ppm) = (rng.random_range(2_000..5_000), rng.random_range(1_000..100_000));
    let late_ms = rng.random_range(5..60);
    storm(drawing, rng, lasting_ms, Weather { late_ppm, late_ms, ..Weather::default() });
}

pub fn jitter(drawing: &mut Drawing, rng: &mut StdRng) {
    let lasting_ms = rng.random_range(2_000..5_000);
    storm(drawing, rng, lasting_ms, Weather { late_ppm: 1_000_000, late_ms: 10, ..Weather::default() });
}

pub fn corrupt(drawing: &mut Drawing, rng: &mut StdRng) {
    let (lasting_ms, corrupt_ppm) = (rng.random_range(1_000..4_000), rng.random_range(500..10_000));
    storm(drawing, rng, lasting_ms, Weather { corrupt_ppm, ..Weather::default() });
}

pub fn gaps(drawing: &mut Drawing, rng: &mut StdRng) {
    let (lasting_ms, gap_ppm) = (rng.random_range(500..4_000), rng.random_range(10_000..200_000));
    storm(drawing, rng, lasting_ms, Weather { gap_ppm, ..Weather::default() });
}
