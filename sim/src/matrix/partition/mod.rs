//! Links that are cut: shapes, lengths and algorithms, with load above the limit on every side during the cut and long
//! after it.

mod row;

pub use row::Row;

use super::figures::{Asked, Spread, asked, sums, times};
use super::{ALGORITHMS, Cell, dealt, even_load, limit};
use crate::bound::{self, eventual_partition};
use crate::report::Report;
use crate::run::Run;
use crate::schedule::{Drawing, LOAD_FROM_MS, Schedule, What};

/// Into which sides the nodes fall.
#[derive(Clone, Copy, Debug)]
struct Shape {
    name: &'static str,
    /// The side of each node.
    side: &'static [usize],
    /// Whether nothing passes from one side to another.
    cuts: fn(usize, usize) -> bool,
}

const SHAPES: [Shape; 5] = [
    Shape { name: "2-1", side: &[0, 0, 1], cuts: |from, to| from != to },
    Shape { name: "1-1-1", side: &[0, 1, 2], cuts: |from, to| from != to },
    // One node hears nobody, and is heard.
    Shape { name: "deaf", side: &[0, 0, 1], cuts: |from, to| (from, to) == (0, 1) },
    // And the reverse.
    Shape { name: "mute", side: &[0, 0, 1], cuts: |from, to| (from, to) == (1, 0) },
    Shape { name: "3-2", side: &[0, 0, 0, 1, 1], cuts: |from, to| from != to },
];
/// Seconds of a cut, and of a window.
const LENGTHS: [(u64, u64); 4] = [(10, 1), (10, 10), (60, 10), (600, 10)];
/// Windows of load before the cut, and at least after all is got over.
const WINDOWS_BEFORE: u64 = 2;
const WINDOWS_AFTER: u64 = 6;
/// What connecting again takes at most, milliseconds.
const CONNECTED_MS: u64 = bound::REDIAL_MS + 1_000;
/// Requests are so far apart at most that a first admission may be this late, and looks at nodes, milliseconds.
const SLACK_MS: u64 = 3_000;
/// What buckets admit in the long run, as a multiple of what one limiter does: no more than this.
const MOST_LONG_RUN: f64 = 1.05;
/// What the nodes configure as M.
const EXPECTED_NODES: u32 = 8;

/// A cell.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    shape: Shape,
    lasting_s: u64,
    window_s: u64,
    algorithm: &'static str,
}

/// What a run came to. Tokens are (admitted, allowed to one limiter).
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    during: (u64, u64),
    /// From the heal until it was got over.
    recovering: (u64, u64),
    after: (u64, u64),
    promised: f64,
    heal_ms: Option<u64>,
    recover_ms: Option<u64>,
    false_denials: u64,
}

impl Partition {
    fn limit(&self) -> tidegate::limits::Limit {
        limit(self.algorithm, self.window_s).check().expect("the limits of the grid are good")
    }

    fn sides(&self) -> u64 {
        self.shape.side.iter().max().map_or(1, |last| *last as u64 + 1)
    }

    /// The side of each node.
    fn side(&self, seed: u64) -> Vec<usize> {
        dealt(&self.name(), seed, self.shape.side)
    }

    /// Tokens that all sides together may admit during the cut: each as if it were alone, and what its nodes admit among
    /// each other before they hear of it, which a window forgives when it ends and a bucket does not.
    fn promised(&self, schedule: &Schedule, lasting_s: f64) -> f64 {
        let limit = self.limit();
        let over: f64 =
            (0..self.sides() as usize).map(|one| over_within(schedule, &self.side(schedule.seed), one)).sum();
        eventual_partition(&limit, self.sides(), lasting_s, over)
    }

    /// How long an overspent limit admits nothing at most, milliseconds: a bucket owes no more than its cap, and a window
    /// counts as far back as it looks.
    fn recovers_within_ms(&self) -> u64 {
        let limit = self.limit();
        let window_ms = limit.window_ns / 1_000_000;
        match self.algorithm {
            "token_bucket" => {
                let owed = bound::bucket_cap(&limit, EXPECTED_NODES) - limit.capacity();
                (owed * window_ms).div_ceil(limit.limit)
            }
            "sliding_window" => 2 * window_ms,
            _ => window_ms,
        }
    }

    /// When the cut begins and ends, milliseconds.
    fn cut(schedule: &Schedule) -> (u64, u64) {
        let of = |which: fn(&What) -> bool| schedule.troubles().find(|e| which(&e.what)).map_or(0, |e| e.at_ms);
        (of(|what| matches!(what, What::Cut { .. })), of(|what| matches!(what, What::Heal { .. })))
    }

    /// The figures of these requests.
    fn figures_of(asked: &[Asked], (cut_ms, heals_ms): (u64, u64), heal_ms: Option<u64>, promised: f64) -> Figures {
        let healed_ms = heal_ms.map(|ms| heals_ms + ms);
        // The first admission by a node that knows what all sides have spent.
        let recovered = healed_ms.and_then(|ms| asked.iter().find(|a| a.at_ms >= ms && a.admitted > 0));
        let recovered_ms = recovered.map_or(u64::MAX, |asked| asked.at_ms);
        Figures {
            during: sums(asked, cut_ms, heals_ms),
            recovering: sums(asked, heals_ms, recovered_ms),
            after: sums(asked, recovered_ms, u64::MAX),
            promised,
            heal_ms,
            recover_ms: recovered.map(|asked| asked.at_ms - heals_ms),
            false_denials: 0,
        }
    }
}

impl Cell for Partition {
    type Figures = Figures;
    type Row = Row;

    fn grid() -> Vec<Self> {
        let cell = |shape, (lasting_s, window_s), algorithm| Self { shape, lasting_s, window_s, algorithm };
        let of_shape = |shape| {
            LENGTHS.into_iter().flat_map(move |length| ALGORITHMS.map(|algorithm| cell(shape, length, algorithm)))
        };
        SHAPES.into_iter().flat_map(of_shape).collect()
    }

    fn name(&self) -> String {
        format!("partition-{}-{}s-{}s-{}", self.shape.name, self.lasting_s, self.window_s, self.algorithm)
    }

    fn draw(&self, seed: u64) -> Schedule {
        use rand::Rng;
        let mut drawing = Drawing::new(&self.name(), seed, self.shape.side.len());
        let (side, window_ms) = (self.side(seed), self.window_s * 1_000);
        let from_ms = LOAD_FROM_MS + WINDOWS_BEFORE * window_ms + drawing.rng("cut").random_range(0..window_ms);
        let until_ms = from_ms + self.lasting_s * 1_000;
        let pairs = (0..side.len()).flat_map(|from| (0..side.len()).map(move |to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| (self.shape.cuts)(side[*from], side[*to])) {
            drawing.fault(from_ms, What::Cut { from, to }, until_ms, What::Heal { from, to });
        }
        let over_ms = until_ms + CONNECTED_MS + self.recovers_within_ms() + SLACK_MS;
        even_load(&mut drawing, limit(self.algorithm, self.window_s), over_ms + WINDOWS_AFTER * window_ms);
        drawing.done()
    }

    fn figures(&self, run: &Run, report: &Report) -> Figures {
        let schedule = &run.history.schedule;
        let cut = Self::cut(schedule);
        let promised = self.promised(schedule, (cut.1 - cut.0) as f64 / 1e3);
        let figures = Self::figures_of(&asked(&run.history, 0), cut, report.heal_ms, promised);
        Figures { false_denials: report.false_denials, ..figures }
    }

    fn wrong(&self, figures: &Figures) -> Vec<String> {
        let mut wrong = Vec::new();
        let (admitted, promised) = (figures.during.0, figures.promised);
        if admitted as f64 > promised {
            wrong.push(format!("{admitted} were admitted during the cut, {promised:.0} at most are promised"));
        }
        let within_ms = self.recovers_within_ms();
        if self.algorithm == "token_bucket" && times(figures.after).is_some_and(|times| times > MOST_LONG_RUN) {
            let (admitted, allowed) = figures.after;
            wrong.push(format!("{admitted} were admitted after the recovery where {allowed} should have been"));
        }
        match (figures.heal_ms, figures.recover_ms) {
            (Some(heal_ms), Some(ms)) if ms <= heal_ms + within_ms + SLACK_MS => {}
            (Some(heal_ms), Some(ms)) => wrong.push(format!(
                "all was known {heal_ms} ms after the heal, and admitted again after {ms}; {within_ms} ms from the one \
                 to the other are promised"
            )),
            (heal_ms, _) => wrong.push(format!("never recovered; all was known {heal_ms:?} ms after the heal")),
        }
        wrong
    }

    fn row(&self, figures: &[Figures], broken: usize) -> Row {
        let spread = |of: &dyn Fn(&Figures) -> Option<f64>| Spread::of(figures.iter().filter_map(of));
        let seconds = |ms: Option<u64>| ms.map(|ms| ms as f64 / 1e3);
        let recovering = figures.iter().map(|figures| figures.recovering);
        let recovering = recovering.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Row {
            shape: self.shape.name.to_owned(),
            lasting_s: self.lasting_s,
            window_s: self.window_s,
            algorithm: self.algorithm.to_owned(),
            runs: figures.len(),
            sides: self.sides(),
            during_times: spread(&|figures| times(figures.during)),
            of_promise_pct: spread(&|figures| Some(100.0 * figures.during.0 as f64 / figures.promised)),
            recovering_times: times(recovering),
            after_times: spread(&|figures| times(figures.after)),
            heal_s: spread(&|figures| seconds(figures.heal_ms)),
            recover_s: spread(&|figures| seconds(figures.recover_ms)),
            recover_promised_s: self.recovers_within_ms() as f64 / 1e3,
            false_denials: figures.iter().map(|figures| figures.false_denials).sum(),
            broken,
        }
    }

    fn heading() -> String {
        row::heading()
    }
}

/// Tokens over the limit that the nodes of one side admit before they hear of each other.
fn over_within(schedule: &Schedule, side: &[usize], one: usize) -> f64 {
    let nodes: Vec<usize> = (0..side.len()).filter(|node| side[*node] == one).collect();
    let lasting_s = (schedule.load_until_ms - LOAD_FROM_MS) as f64 / 1e3;
    let offered = |node: &usize| schedule.asks().filter(|(_, ask)| ask.node == *node).count() as f64 / lasting_s;
    let offered: Vec<f64> = nodes.iter().map(offered).collect();
    let load: f64 = offered.iter().sum();
    let shares: Vec<f64> = offered.iter().map(|one| one / load).collect();
    let pairs = nodes.iter().flat_map(|a| nodes.iter().filter(move |b| *b != a).map(move |b| (*a, *b)));
    let tau_ms = pairs.map(|(a, b)| bound::fair_reach_ms(schedule, a, b)).max().unwrap_or(0);
    bound::eventual_over(&shares, load, tau_ms as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(name: &str) -> Partition {
        Partition::grid().into_iter().find(|cell| cell.name() == name).expect("it is there")
    }

    fn admitted(at_ms: u64, admitted: u64, allowed: u64) -> Asked {
        Asked { at_ms, node: 0, admitted, allowed }
    }

    #[test]
    fn figures_by_hand() {
        let cell = cell("partition-2-1-10s-10s-fixed_window");
        // The cut lasts from 20 to 30 s; at 32 s all is known; at 40 s one admits again.
        let asked = [
            admitted(19_000, 7, 7),
            admitted(25_000, 200, 100),
            admitted(31_000, 30, 60),
            admitted(33_000, 0, 5),
            admitted(40_000, 90, 100),
            admitted(50_000, 110, 100),
        ];
        // Two sides, and two windows that 10 s may touch.
        let figures = Partition::figures_of(&asked, (20_000, 30_000), Some(2_000), 400.0);
        let expected = Figures {
            during: (200, 100),
            recovering: (30, 65),
            after: (200, 200),
            promised: 400.0,
            heal_ms: Some(2_000),
            recover_ms: Some(10_000),
            false_denials: 0,
        };
        assert_eq!(figures, expected);
        assert_eq!(cell.wrong(&figures), Vec::<String>::new());
        assert_eq!(cell.wrong(&Figures { during: (401, 100), ..figures.clone() }).len(), 1);
        let late = 2_000 + 10_000 + SLACK_MS;
        assert_eq!(cell.wrong(&Figures { recover_ms: Some(late), ..figures.clone() }), Vec::<String>::new());
        assert_eq!(cell.wrong(&Figures { recover_ms: Some(late + 1), ..figures.clone() }).len(), 1);
        assert_eq!(cell.wrong(&Figures { recover_ms: None, ..figures.clone() }).len(), 1);
        let bucket = self::cell("partition-2-1-10s-10s-token_bucket");
        for (after, wrong) in [((105, 100), 0), ((106, 100), 1)] {
            assert_eq!(bucket.wrong(&Figures { after, ..figures.clone() }).len(), wrong);
        }
        let row = cell.row(&[figures.clone(), Figures { during: (100, 100), ..figures }], 0);
        assert_eq!(row.during_times, Some(Spread { mean: 1.5, least: 1.0, most: 2.0 }));
        assert_eq!(row.of_promise_pct.map(|spread| spread.most), Some(50.0));
        assert_eq!(row.recovering_times, Some(60.0 / 130.0));
    }

    #[test]
    fn a_side_of_several_nodes_admits_more_than_one_alone() {
        let cell = cell("partition-2-1-10s-1s-fixed_window");
        let mut schedule = cell.draw(1);
        schedule.links.iter_mut().for_each(|link| link.one_way_ms = 130);
        schedule.load_until_ms = LOAD_FROM_MS + 10_000;
        let ask = |node| crate::schedule::Ask { node, key: 0, cost: 1, op: crate::schedule::Operation::Check };
        let asks = (0..3).flat_map(|node| (0..100).map(move |_| What::Ask(ask(node))));
        schedule.events = asks.map(|what| crate::schedule::Event { at_ms: LOAD_FROM_MS, what }).collect();
        // Two nodes of 10 a second each, 200 ms from one to the other: half of 20 a second times that, in each of the
        // eleven windows that 10 s may touch, where two sides have 20 each.
        assert!((cell.promised(&schedule, 10.0) - (440.0 + 11.0 * 2.0)).abs() < 1e-6);
    }

    #[test]
    fn recovery_by_hand() {
        // A hundred each ten seconds: seven times 100 and a second's 10 may be owed beyond the burst.
        assert_eq!(cell("partition-2-1-10s-10s-token_bucket").recovers_within_ms(), 77_000);
        assert_eq!(cell("partition-2-1-10s-10s-sliding_window").recovers_within_ms(), 20_000);
        assert_eq!(cell("partition-2-1-10s-1s-fixed_window").recovers_within_ms(), 1_000);
    }

    #[test]
    fn every_shape_cuts_what_it_says() {
        let cuts = |shape: &str| {
            let schedule = cell(&format!("partition-{shape}-10s-1s-fixed_window")).draw(5);
            let (cut_ms, heals_ms) = Partition::cut(&schedule);
            assert_eq!(heals_ms - cut_ms, 10_000);
            let cut = |e: &&crate::schedule::Event| matches!(e.what, What::Cut { .. });
            (schedule.nodes.len(), schedule.troubles().filter(cut).count())
        };
        assert_eq!(cuts("2-1"), (3, 4));
        assert_eq!(cuts("1-1-1"), (3, 6));
        assert_eq!(cuts("deaf"), (3, 2));
        assert_eq!(cuts("mute"), (3, 2));
        assert_eq!(cuts("3-2"), (5, 12));
    }
}
