//! Clocks that are apart: three regions, one clock at each end and one true, the same load everywhere, for several windows.

use std::fmt;

use serde::Serialize;

use super::figures::{Spread, asked, over_pct, share, sums};
use super::{ALGORITHMS, Cell, dealt, even_load, limit};
use crate::history::History;
use crate::report::Report;
use crate::run::Run;
use crate::schedule::{Drawing, LOAD_FROM_MS, Schedule};

/// How clocks are wrong: the name, microseconds ahead and parts per million of the one at the further end; the one at the
/// other end is behind by as much.
const CLOCKS: [(&str, i64, i64); 5] =
    [("10ms", 10_000, 0), ("100ms", 100_000, 0), ("500ms", 500_000, 0), ("200ppm", 0, 200), ("1500ms", 1_500_000, 0)];
/// Seconds of a window, and for how many of them the load lasts.
const WINDOWS: [(u64, u64); 3] = [(1, 60), (10, 8), (60, 5)];

/// A cell.
#[derive(Clone, Copy, Debug)]
pub struct Skew {
    clocks: (&'static str, i64, i64),
    window_s: u64,
    windows: u64,
    algorithm: &'static str,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Figures {
    over_pct: f64,
    worst_pct: f64,
    predicted_pct: f64,
    slowest_share: f64,
    false_denials: u64,
    far: Far,
}

/// Nodes whose peers' clocks are too far away, in pairs of a node and its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Far {
    /// How many there are.
    pub apart: usize,
    /// Where the node says so.
    pub told: usize,
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// How far clocks are off.
    pub clocks: String,
    /// Seconds.
    pub window_s: u64,
    /// How the limit counts.
    pub algorithm: String,
    /// How many runs there are.
    pub runs: usize,
    /// Admitted beyond what one limiter would have admitted, per cent of it.
    pub over_pct: Option<Spread>,
    /// What the formula for even load expects over the limit in a window, per cent.
    pub predicted_pct: Option<Spread>,
    /// The most used beyond the limit at one instant, per cent of the limit.
    pub worst_pct: Option<Spread>,
    /// What the node whose clock is the furthest behind admitted, over a fair share.
    pub slowest_share: Option<Spread>,
    /// Of all runs.
    pub false_denials: u64,
    /// Of all runs.
    pub far: Far,
    /// Runs in which something did not hold.
    pub broken: usize,
}

impl Cell for Skew {
    type Figures = Figures;
    type Row = Row;

    fn grid() -> Vec<Self> {
        let cell = |clocks, (window_s, windows), algorithm| Self { clocks, window_s, windows, algorithm };
        let of_clocks = |clocks| {
            WINDOWS.into_iter().flat_map(move |window| ALGORITHMS.map(|algorithm| cell(clocks, window, algorithm)))
        };
        CLOCKS.into_iter().flat_map(of_clocks).collect()
    }

    fn name(&self) -> String {
        format!("skew-{}-{}s-{}", self.clocks.0, self.window_s, self.algorithm)
    }

    fn draw(&self, seed: u64) -> Schedule {
        let mut drawing = Drawing::new(&self.name(), seed, 3);
        for (plan, end) in drawing.schedule.nodes.iter_mut().zip(dealt(&self.name(), seed, &[-1, 0, 1])) {
            (plan.clock_offset_us, plan.clock_drift_ppm) = (end * self.clocks.1, end * self.clocks.2);
        }
        let window_ms = self.window_s * 1_000;
        let until_ms = LOAD_FROM_MS + self.windows * window_ms + window_ms / 2;
        even_load(&mut drawing, limit(self.algorithm, self.window_s), until_ms);
        drawing.done()
    }

    fn figures(&self, run: &Run, report: &Report) -> Figures {
        let schedule = &run.history.schedule;
        let (asked, key) = (asked(&run.history, 0), &report.keys[0]);
        let behind = |node: &usize| (schedule.nodes[*node].clock_offset_us, schedule.nodes[*node].clock_drift_ppm);
        let slowest = (0..schedule.nodes.len()).min_by_key(behind).expect("there are nodes");
        Figures {
            over_pct: over_pct(sums(&asked, 0, u64::MAX)),
            worst_pct: key.worst_pct,
            predicted_pct: key.predicted_pct,
            slowest_share: share(&asked, slowest, schedule.nodes.len()),
            false_denials: key.false_denials,
            far: far(&run.history),
        }
    }

    fn wrong(&self, figures: &Figures) -> Vec<String> {
        let Far { apart, told } = figures.far;
        let untold = (told < apart).then(|| format!("{told} of {apart} clocks that are too far away were told of"));
        untold.into_iter().collect()
    }

    fn row(&self, figures: &[Figures], broken: usize) -> Row {
        let spread = |of: fn(&Figures) -> f64| Spread::of(figures.iter().map(of));
        let far = figures.iter().map(|figures| figures.far);
        Row {
            clocks: self.clocks.0.to_owned(),
            window_s: self.window_s,
            algorithm: self.algorithm.to_owned(),
            runs: figures.len(),
            over_pct: spread(|figures| figures.over_pct),
            predicted_pct: spread(|figures| figures.predicted_pct),
            worst_pct: spread(|figures| figures.worst_pct),
            slowest_share: spread(|figures| figures.slowest_share),
            false_denials: figures.iter().map(|figures| figures.false_denials).sum(),
            far: far.fold(Far::default(), |sum, far| Far { apart: sum.apart + far.apart, told: sum.told + far.told }),
            broken,
        }
    }

    fn heading() -> String {
        format!(
            "{:>7} {:>6} {:<14} {:>4} {:>6} {:>6} {:>8} {:>6} {:>6} {:>7} {:>7} {:>6} {:>8} {:>6}",
            "clocks",
            "window",
            "algorithm",
            "runs",
            "over%",
            "most",
            "predict%",
            "worst%",
            "most",
            "slowest",
            "least",
            "falsed",
            "told far",
            "broken"
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(over), Some(predicted), Some(worst), Some(share)) =
            (self.over_pct, self.predicted_pct, self.worst_pct, self.slowest_share)
        else {
            return write!(f, "{:>7} {:>5}s {:<14} no run came to its end", self.clocks, self.window_s, self.algorithm);
        };
        let far = if self.far.apart > 0 { format!("{}/{}", self.far.told, self.far.apart) } else { "-".to_owned() };
        write!(
            f,
            "{:>7} {:>5}s {:<14} {:>4} {:>6.1} {:>6.1} {:>8.1} {:>6.1} {:>6.1} {:>7.2} {:>7.2} {:>6} {far:>8} {:>6}",
            self.clocks,
            self.window_s,
            self.algorithm,
            self.runs,
            over.mean,
            over.most,
            predicted.mean,
            worst.mean,
            worst.most,
            share.mean,
            share.least,
            self.false_denials,
            self.broken
        )
    }
}

/// Who is too far from whom at the end, and who says so.
fn far(history: &History) -> Far {
    let nodes = history.schedule.nodes.len();
    let pairs = (0..nodes).flat_map(|node| history.schedule.others(node).map(move |peer| (node, peer)));
    let apart: Vec<(usize, usize)> = pairs.filter(|(node, peer)| history.reach.surely_apart(*node, *peer)).collect();
    let tells = |(node, peer): &&(usize, usize)| {
        let mut peers = history.settled.iter().filter(|standing| standing.node == *node).flat_map(|s| &s.peers);
        peers.any(|known| known.node == *peer && known.unreachable)
    };
    Far { apart: apart.len(), told: apart.iter().filter(tells).count() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::Reach;

    fn cell(clocks: &str) -> Skew {
        Skew::grid().into_iter().find(|cell| cell.clocks.0 == clocks).expect("it is there")
    }

    #[test]
    fn one_clock_is_at_each_end() {
        for seed in 0..10 {
            let offsets = |clocks| {
                let mut of: Vec<(i64, i64)> =
                    cell(clocks).draw(seed).nodes.iter().map(|n| (n.clock_offset_us, n.clock_drift_ppm)).collect();
                of.sort_unstable();
                of
            };
            assert_eq!(offsets("100ms"), [(-100_000, 0), (0, 0), (100_000, 0)]);
            assert_eq!(offsets("200ppm"), [(0, -200), (0, 0), (0, 200)]);
        }
    }

    #[test]
    fn only_one_and_a_half_seconds_are_too_far() {
        for (clocks, ..) in CLOCKS {
            let reach = Reach::new(&cell(clocks).draw(3));
            let apart =
                (0..3).flat_map(|a| (a + 1..3).map(move |b| (a, b))).filter(|(a, b)| reach.surely_apart(*a, *b));
            assert_eq!(apart.count(), usize::from(clocks == "1500ms"), "{clocks}");
        }
    }

    #[test]
    fn a_far_clock_that_nobody_tells_of_is_wrong() {
        let (cell, figures) = (cell("1500ms"), |apart, told| Figures {
            over_pct: 0.0,
            worst_pct: 0.0,
            predicted_pct: 0.0,
            slowest_share: 1.0,
            false_denials: 0,
            far: Far { apart, told },
        });
        assert_eq!(cell.wrong(&figures(2, 2)), Vec::<String>::new());
        assert_eq!(cell.wrong(&figures(2, 1)).len(), 1);
        let row = cell.row(&[figures(2, 2), figures(2, 1)], 1);
        assert_eq!((row.runs, row.far, row.broken), (2, Far { apart: 4, told: 3 }, 1));
        assert!(row.to_string().contains("3/4"));
    }
}
