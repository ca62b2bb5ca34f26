//! Grids of schedules: what clocks that are apart and links that are cut come to, for each window and algorithm. A cell of
//! a grid draws a schedule from each seed; every run is held to all checks, and to what is promised of this cell.

mod figures;
pub mod partition;
pub mod skew;

use rand::Rng;
use rand::seq::SliceRandom;
use serde::Serialize;
use tidegate::limits::LimitSpec;

use crate::load;
use crate::report::Report;
use crate::run::Run;
use crate::schedule::{Drawing, LOAD_FROM_MS, Schedule};
use crate::seed::Seed;

pub use figures::Spread;

/// Each has its cells.
pub const ALGORITHMS: [&str; 3] = ["fixed_window", "sliding_window", "token_bucket"];
/// How long nodes may take to agree once the load has ended, milliseconds.
const SETTLE_MS: u64 = 2_000;
/// What is asked for, in per cent of the limit: from and to. At the least a third of it is more than the limit.
const FACTOR_PCT: (u64, u64) = (330, 500);

/// A cell of a grid.
pub trait Cell: Sized + Sync {
    /// What one run comes to.
    type Figures: Send;
    /// What the runs of a cell come to: a line of the table.
    type Row: Serialize + std::fmt::Display;

    /// All cells.
    fn grid() -> Vec<Self>;
    /// Its name; what its schedules call their scenario.
    fn name(&self) -> String;
    /// The schedule of a seed.
    fn draw(&self, seed: u64) -> Schedule;
    /// What a run came to.
    fn figures(&self, run: &Run, report: &Report) -> Self::Figures;
    /// What is promised of such a run and did not hold.
    fn wrong(&self, figures: &Self::Figures) -> Vec<String>;
    /// The line of the table; in `broken` of the runs something did not hold.
    fn row(&self, figures: &[Self::Figures], broken: usize) -> Self::Row;
    /// What stands over the lines.
    fn heading() -> String;
}

/// A limit of so many seconds. Enough tokens for figures in per cent, few enough for runs of many windows.
fn limit(algorithm: &str, window_s: u64) -> LimitSpec {
    let tokens = match window_s {
        ..=1 => 20,
        2..=10 => 100,
        _ => 300,
    };
    load::limit(algorithm, tokens, window_s, tokens as i64)
}

/// Load that ends then, the same at every node, above the limit at each third of them.
fn even_load(drawing: &mut Drawing, limit: LimitSpec, until_ms: u64) {
    drawing.schedule.load_until_ms = until_ms;
    drawing.schedule.calm_ms = until_ms;
    drawing.schedule.settle_ms = SETTLE_MS;
    let nodes = drawing.nodes() as u64;
    let mut rng = drawing.rng("load");
    let checked = limit.check().expect("the limits of the grids are good");
    let factor_pct = rng.random_range(FACTOR_PCT.0..=FACTOR_PCT.1);
    let gap_ms = (nodes * checked.window_ns / 1_000_000 * 100 / (checked.limit * factor_pct)).max(1);
    let tried_at = Some(rng.random_range(0..drawing.nodes()));
    let key = drawing.key(limit, format!("user:{}", rng.random_range(0..1_000)), tried_at);
    for node in 0..drawing.nodes() {
        let mut at_ms = LOAD_FROM_MS + rng.random_range(0..gap_ms);
        while at_ms < until_ms {
            drawing.ask(at_ms, node, key, 1);
            // Never less than half of it apart: clients wait for the answer.
            at_ms += rng.random_range(gap_ms / 2..=gap_ms + gap_ms / 2).max(1);
        }
    }
}

/// What the nodes of a cell's schedule are given, each in its turn: in an order of the seed's own.
fn dealt<T: Clone>(cell: &str, seed: u64, to_nodes: &[T]) -> Vec<T> {
    let mut dealt = to_nodes.to_vec();
    dealt.shuffle(&mut Seed(seed).of(cell).rng("dealt"));
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good<C: Cell>(seeds: u64) {
        let mut names: Vec<String> = C::grid().iter().map(Cell::name).collect();
        let cells = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cells, "every cell has a name of its own");
        for cell in C::grid() {
            for seed in 0..seeds {
                let schedule = cell.draw(seed);
                assert_eq!(schedule.scenario, cell.name());
                assert!(schedule.scenario.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)));
                assert!(schedule.checked_limits().is_ok());
                assert!(schedule.events.is_sorted_by_key(|event| event.at_ms));
                assert!(schedule.troubles().all(|event| event.at_ms < schedule.load_until_ms));
            }
        }
    }

    #[test]
    fn every_cell_draws_schedules_that_make_sense() {
        good::<skew::Skew>(2);
        good::<partition::Partition>(2);
    }

    #[test]
    fn load_is_even_and_above_the_limit() {
        for nodes in [3, 5] {
            for seed in 0..20 {
                let mut drawing = Drawing::new("even", seed, nodes);
                even_load(&mut drawing, limit("fixed_window", 10), 101_000);
                let schedule = drawing.done();
                let at = |node| schedule.asks().filter(|(_, ask)| ask.node == node).count() as f64;
                let fair = schedule.asks().count() as f64 / nodes as f64;
                assert!((0..nodes).all(|node| (0.85..1.15).contains(&(at(node) / fair))), "{nodes} {seed}");
                // A hundred seconds of a hundred each ten.
                assert!((3_150..5_250).contains(&schedule.asks().count()), "{nodes} {seed}");
            }
        }
    }
}
