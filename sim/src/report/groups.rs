//! Many runs together: spreads of figures, by what the runs and their keys have in common.

use std::collections::BTreeMap;

use super::promises::Held;
use super::{KeyFigures, Report, promises};
use crate::bound::Promise;

/// How figures are spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// 95 of 100 are at most this.
    pub p95: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these; None: there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = figures.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let max = *all.last()?;
        let count = all.len();
        let p95 = all[(count * 95).div_ceil(100) - 1];
        Some(Self { count, mean: all.iter().sum::<f64>() / count as f64, p95, max })
    }
}

/// Figures beside their bounds.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What was measured.
    pub is: Spread,
    /// What was promised of each.
    pub bound: Spread,
    /// The largest part of its own bound that a figure took; 0 where bounds are 0.
    pub nearest: f64,
    /// How many are beyond their bound.
    pub beyond: usize,
}

impl Measured {
    /// Of these; None: there are none.
    pub fn of(all: &[Held]) -> Option<Self> {
        let parts = all.iter().filter(|one| one.bound > 0.0).map(|one| one.is / one.bound);
        Some(Self {
            is: Spread::of(all.iter().map(|one| one.is))?,
            bound: Spread::of(all.iter().map(|one| one.bound))?,
            nearest: parts.fold(0.0, f64::max),
            beyond: all.iter().filter(|one| !one.holds()).count(),
        })
    }

    /// Of what runs show of a promise; None: nowhere was its condition met.
    pub fn promise(runs: &[&Report], promise: &Promise) -> Option<Self> {
        let all: Vec<Held> = runs.iter().flat_map(|run| promises::measured(run, promise.name)).collect();
        Self::of(&all)
    }

    /// Whether what was measured is within what was promised: each figure, or where only that is promised their mean.
    pub fn holds(&self, promise: &Promise) -> bool {
        if promise.in_mean { self.is.mean <= self.bound.mean } else { self.beyond == 0 }
    }
}

/// A key and its run.
pub type Key<'a> = (&'a Report, &'a KeyFigures);

/// What keys have in common: its name, and what it is of a key.
pub type Common = (&'static str, fn(Key<'_>) -> String);

/// By what keys are put together.
pub const KEYS_BY: &[Common] = &[
    ("algorithm", |key| key.1.algorithm.clone()),
    ("consistency", |key| key.1.consistency.clone()),
    ("window", |key| window(key.1)),
    ("algorithm, window", |key| format!("{}, {}", key.1.algorithm, window(key.1))),
    ("regions", |key| key.0.regions.to_string()),
    ("latency, one way in the mean", |key| band(key.0.mean_one_way_ms)),
];

fn window(key: &KeyFigures) -> String {
    format!("{} s", key.window_s)
}

/// Milliseconds that a band of latencies is wide.
const BAND_MS: u64 = 30;

fn band(ms: u64) -> String {
    let from = ms / BAND_MS * BAND_MS;
    format!("{from:>3} to {} ms", from + BAND_MS - 1)
}

/// What belongs together, in order.
pub fn grouped<T>(of: impl IntoIterator<Item = T>, by: impl Fn(&T) -> String) -> BTreeMap<String, Vec<T>> {
    let mut groups: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for one in of {
        groups.entry(by(&one)).or_default().push(one);
    }
    groups
}

/// The keys of runs that have one limit all the time.
pub fn steady<'a>(runs: &[&'a Report]) -> Vec<Key<'a>> {
    runs.iter().flat_map(|run| run.keys.iter().filter(|key| key.steady).map(|key| (*run, key))).collect()
}

/// Bytes that a pair of nodes exchanges in a second; None: the node is alone.
pub fn bytes_per_pair_s(run: &Report) -> Option<f64> {
    let pairs = run.nodes * run.nodes.saturating_sub(1) / 2;
    (pairs > 0).then(|| run.bytes as f64 / pairs as f64 / (run.simulated_ms.max(1) as f64 / 1e3))
}

/// Bytes that an admitted token cost; None: none was admitted.
pub fn bytes_per_token(run: &Report) -> Option<f64> {
    (run.admitted > 0).then(|| run.bytes as f64 / run.admitted as f64)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bound::named;
    use crate::report::Kind;
    use crate::run::Tier;

    /// A key that was used `worst` per cent beyond its limit, `promised` at most.
    pub fn key(worst: f64, promised: f64) -> KeyFigures {
        KeyFigures {
            algorithm: "fixed_window".to_owned(),
            consistency: "eventual".to_owned(),
            window_s: 2.0,
            capacity: 10,
            offered: 50,
            admitted: 22,
            allowed: 20,
            worst_pct: worst,
            promised_pct: promised,
            predicted_pct: 15.0,
            steady: true,
            even: true,
            cut: None,
            recovery: None,
            false_denials: 0,
            denials: 28,
        }
    }

    /// A run of these keys, in which that was wrong.
    pub fn run(faults: &[Kind], keys: Vec<KeyFigures>) -> Report {
        Report {
            tier: Tier::Protocol,
            scenario: "by-hand".to_owned(),
            seed: 1,
            nodes: 3,
            regions: 3,
            mean_one_way_ms: 89,
            faults: faults.iter().copied().collect(),
            offered: 50,
            admitted: 22,
            allowed: 20,
            over_pct: 10.0,
            worst_pct: 20.0,
            predicted_pct: 15.0,
            false_denials: 0,
            converge_ms: Some(110),
            heal_ms: Some(400),
            known: faults.is_empty().then_some(Held { is: 110.0, bound: 210.0 }),
            caught_up: (!faults.is_empty()).then_some(Held { is: 400.0, bound: 1_200.0 }),
            packets: 100,
            bytes: 6_600,
            least_share: 1.0,
            most_share: 1.0,
            simulated_ms: 2_000,
            trace_hash: String::new(),
            keys,
            broken: Vec::new(),
        }
    }

    #[test]
    fn a_spread_by_hand() {
        assert_eq!(Spread::of([]), None);
        let hundred = Spread::of((1..=100).rev().map(f64::from));
        assert_eq!(hundred, Some(Spread { count: 100, mean: 50.5, p95: 95.0, max: 100.0 }));
        assert_eq!(Spread::of([7.0]), Some(Spread { count: 1, mean: 7.0, p95: 7.0, max: 7.0 }));
    }

    #[test]
    fn each_figure_is_held_to_its_own_bound() {
        // 30 of 20 is beyond, although 100 was promised of the other.
        let runs = [run(&[], vec![key(30.0, 20.0), key(10.0, 100.0)])];
        let runs: Vec<&Report> = runs.iter().collect();
        let instant = Measured::promise(&runs, named("instant")).expect("two keys");
        assert_eq!((instant.is.max, instant.bound.max, instant.beyond), (30.0, 100.0, 1));
        assert!((instant.nearest - 1.5).abs() < 1e-9 && !instant.holds(named("instant")));
        // 20 in the mean, where 15 is expected.
        let even = Measured::promise(&runs, named("even load")).expect("two keys");
        assert!(!even.holds(named("even load")));
        let good = [run(&[], vec![key(20.0, 20.0), key(10.0, 100.0)])];
        let good: Vec<&Report> = good.iter().collect();
        for promise in ["instant", "even load", "known", "false denials"] {
            assert!(Measured::promise(&good, named(promise)).is_some_and(|is| is.holds(named(promise))), "{promise}");
        }
        assert!(Measured::promise(&good, named("caught up")).is_none());
    }

    #[test]
    fn what_has_no_one_limit_and_what_is_uneven_is_left_out() {
        let changed = KeyFigures { steady: false, ..key(90.0, 0.0) };
        let uneven = KeyFigures { even: false, ..key(1.0, 2.0) };
        let runs = [run(&[], vec![changed, uneven]), run(&[Kind::Cut], vec![key(3.0, 4.0)])];
        let runs: Vec<&Report> = runs.iter().collect();
        assert_eq!(Measured::promise(&runs, named("instant")).map(|is| (is.is.count, is.beyond)), Some((2, 0)));
        assert!(Measured::promise(&runs, named("even load")).is_none());
        assert_eq!(steady(&runs).len(), 2);
    }

    #[test]
    fn groups_and_traffic_by_hand() {
        let runs = [run(&[], vec![key(1.0, 2.0), KeyFigures { window_s: 1.0, ..key(1.0, 2.0) }])];
        let runs: Vec<&Report> = runs.iter().collect();
        let by = |name: &str| {
            let by = KEYS_BY.iter().find(|by| by.0 == name).expect("one of them").1;
            grouped(steady(&runs), |key| by(*key)).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(by("window"), ["1 s", "2 s"]);
        assert_eq!(by("latency, one way in the mean"), [" 60 to 89 ms"]);
        assert_eq!((bytes_per_pair_s(runs[0]), bytes_per_token(runs[0])), (Some(1_100.0), Some(300.0)));
    }
}
