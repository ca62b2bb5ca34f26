//! What tidegate promises, as formulas: how soon a spend is known elsewhere, and how much may be admitted over a limit.
//! The checks hold every run to them; [`PROMISES`] says them in words, and docs/guarantees.md is written from it.

use tidegate::limits::{Limit, Shape};

use crate::schedule::{Schedule, Weather};

/// What a spend takes from one node to another beyond the flush interval and the way itself, milliseconds: the answer's
/// way to the client that records it, and whole milliseconds at every step.
const SLACK_MS: u64 = 20;
/// What lost packets may add, milliseconds: they are sent again after a probe timeout, and may be lost once more.
const RESENT_MS: u64 = 500;
/// A connection lives through a cut of this length, milliseconds: less than the idle timeout by what it takes to probe.
const LIVED_THROUGH_MS: u64 = 4_000;
/// After a short cut or a start everyone knows all that had been spent by then within this, milliseconds.
pub const REJOIN_MS: u64 = 1_000;
/// The same after connections had ended: a dial that is given up, the longest wait before the next one, and its way.
pub const REDIAL_MS: u64 = 11_000;
/// What a journal's round and the one after it take, milliseconds: what was spent before is durable.
pub const DURABLE_MS: u64 = 250;
/// Frames that vanish (which QUIC never lets happen) are sent again when acknowledgements have stood still for a while, and
/// once more after twice that, milliseconds.
pub const STALL_MS: u64 = 7_000;
/// Packets lost so often that no time is promised, of a million.
const HEAVY_LOSS_PPM: u32 = 100_000;
/// M: `gossip.expected_nodes` of the nodes of a simulation.
pub const EXPECTED_NODES: u32 = 8;
/// `gossip.max_skew`, seconds: a spend may be stamped so far ahead.
const MAX_SKEW_S: f64 = 2.0;

/// What a formula is about. A promise reads what its formula names.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The limit: L, W, C, rate, g.
    pub limit: &'a Limit,
    /// The run: ways, weather, interval.
    pub schedule: &'a Schedule,
    /// U: tokens asked of others too late to be known.
    pub unknown: u64,
    /// s_i: the part of the load that each node takes.
    pub shares: &'a [f64],
    /// R: tokens a second asked for.
    pub tokens_per_s: f64,
    /// k: how many sides count alone.
    pub sides: u64,
    /// T: for how long, milliseconds.
    pub lasting_ms: u64,
    /// Tokens of one request.
    pub cost: u64,
}

impl<'a> Terms<'a> {
    /// Nothing is asked, nothing is cut.
    pub fn new(schedule: &'a Schedule, limit: &'a Limit) -> Self {
        Self { limit, schedule, unknown: 0, shares: &[], tokens_per_s: 0.0, sides: 1, lasting_ms: 0, cost: 0 }
    }

    fn lasting_s(&self) -> f64 {
        self.lasting_ms as f64 / 1e3
    }
}

/// Something promised: a bound under a condition.
#[derive(Debug)]
pub struct Promise {
    /// Its name.
    pub name: &'static str,
    /// The consistency word that promises it.
    pub word: &'static str,
    /// When it holds, and what is measured.
    pub condition: &'static str,
    /// The bound as text.
    pub formula: &'static str,
    /// The bound as a figure, in `unit`.
    pub of: fn(&Terms<'_>) -> f64,
    /// Of what.
    pub unit: &'static str,
    /// Whether it bounds the mean alone: what it says of load that is never quite even.
    pub in_mean: bool,
}

const fn promise(
    name: &'static str,
    condition: &'static str,
    formula: &'static str,
    unit: &'static str,
    of: fn(&Terms<'_>) -> f64,
) -> Promise {
    Promise { name, word: "eventual", condition, formula, of, unit, in_mean: false }
}

/// All promises that are measured. `tau` is the first of them.
pub const PROMISES: &[Promise] = &[
    promise(
        "known",
        "nothing is wrong: until every node holds what was spent",
        "tau = gossip.interval + one way + 20 ms",
        "ms",
        |t| slowest(t, fair_reach_ms),
    ),
    promise(
        "caught up",
        "after a cut, a crash, lost packets: until every node holds what was spent by then",
        "tau + late packets + (500 ms + round trip where packets are lost) + (1 s after trouble up to 4 s, 11 s where \
         connections ended or wait to)",
        "ms",
        |t| slowest(t, reach_ms) + rejoin_ms(t.lasting_ms) as f64,
    ),
    promise(
        "instant",
        "at any instant, whatever happens: used beyond the limit",
        "U + rate * g; U asked of others within tau or since a cut, g = 0 for windows",
        "tokens",
        |t| eventual_most(t.limit, t.unknown).saturating_sub(t.limit.capacity()) as f64,
    ),
    Promise {
        in_mean: true,
        ..promise(
            "even load",
            "nothing is wrong, load arrives evenly: used beyond the limit, in the mean",
            "(1 - sum of s_i^2) * R * tau",
            "tokens",
            |t| eventual_over(t.shares, t.tokens_per_s, slowest(t, fair_reach_ms) / 1e3),
        )
    },
    promise(
        "cut",
        "k sides count alone for T: admitted by all of them",
        "k * (C + rate * T) of a bucket, k * L * (T/W rounded up + 1) of a window; and `even load` of every side of \
         several nodes, once a window",
        "tokens",
        // Every node is taken for a side of its own.
        |t| eventual_partition(t.limit, t.sides, t.lasting_s(), 0.0),
    ),
    promise(
        "recovery",
        "a bucket that is overspent: until it admits",
        "(cap - C + cost) / rate + gossip.max_skew, cap = C + (M - 1) * (C + rate * 1 s)",
        "s",
        |t| recovery_s(t.limit, t.cost, EXPECTED_NODES),
    ),
    promise(
        "false denials",
        "at any instant, whatever happens: denials that all true spends leave room for",
        "0",
        "requests",
        |_| 0.0,
    ),
];

/// The promise of a name.
///
/// # Panics
/// When there is none.
pub fn named(name: &str) -> &'static Promise {
    PROMISES.iter().find(|promise| promise.name == name).expect("promises are named as the table names them")
}

/// The largest of all ways between nodes.
fn slowest(terms: &Terms<'_>, of: fn(&Schedule, usize, usize) -> u64) -> f64 {
    let nodes = 0..terms.schedule.nodes.len();
    let pairs = nodes.clone().flat_map(|a| nodes.clone().filter(move |b| *b != a).map(move |b| (a, b)));
    pairs.map(|(a, b)| of(terms.schedule, a, b)).max().unwrap_or(0) as f64
}

/// How long after trouble that lasted `lasting_ms` everyone knows all that had been spent by its end, milliseconds.
pub fn rejoin_ms(lasting_ms: u64) -> u64 {
    if lasting_ms <= LIVED_THROUGH_MS { REJOIN_MS } else { REDIAL_MS }
}

/// Weather in which no time is promised.
pub fn is_trouble(weather: &Weather) -> bool {
    weather.loss_ppm >= HEAVY_LOSS_PPM || weather.gap_ppm > 0 || weather.corrupt_ppm > 0
}

/// Tau: within how many milliseconds a spend at one node is known at another, while they reach each other.
pub fn reach_ms(schedule: &Schedule, from: usize, to: usize) -> u64 {
    let weather = schedule.worst_weather();
    let resent_ms = if weather.loss_ppm > 0 {
        RESENT_MS + schedule.one_way_ms(from, to) + schedule.one_way_ms(to, from)
    } else {
        0
    };
    fair_reach_ms(schedule, from, to) + weather.late_ms + resent_ms
}

/// The same while no packet is lost or late.
pub fn fair_reach_ms(schedule: &Schedule, from: usize, to: usize) -> u64 {
    schedule.setup.interval_ms + schedule.one_way_ms(from, to) + SLACK_MS
}

/// `eventual`, for each admission: a node admits up to the limit by what it knows. So all that is used, by everybody,
/// is at most the limit, what others spent too late to be known there (within tau, or since a cut began), and what a
/// bucket read from several nodes may miss.
pub fn eventual_most(limit: &Limit, unknown: u64) -> u64 {
    limit.capacity().saturating_add(unknown).saturating_add(under_count(limit))
}

/// `eventual`, for load that arrives evenly: node i, with the share s_i of R tokens a second, stops when its own spends
/// and those of the others up to tau ago reach L, `s_i R t + (1 - s_i) R (t - tau) = L`; summed over the nodes they have
/// then admitted `L + (1 - sum of s_i^2) * R * tau`. Tokens over the limit, a window.
pub fn eventual_over(shares: &[f64], tokens_per_s: f64, tau_s: f64) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (1.0 - squares) * tokens_per_s * tau_s
}

/// `eventual`, while `sides` count alone for `lasting_s`: what all of them together may admit. Each has the capacity at
/// once and the rate after it, or the limit in every window that the cut touches. `within` is what the nodes of sides of
/// several nodes admit beyond that because they hear late of each other: [`eventual_over`] of each such side, summed. It
/// comes once a window; a bucket keeps it as debt, so that it comes once.
pub fn eventual_partition(limit: &Limit, sides: u64, lasting_s: f64, within: f64) -> f64 {
    let rate = limit.limit as f64 / (limit.window_ns as f64 / 1e9);
    let windows = (lasting_s * 1e9 / limit.window_ns as f64).ceil() + 1.0;
    let (alone, times) = match limit.shape() {
        Shape::Window(_) => (windows * limit.limit as f64, windows),
        Shape::Bucket(_) => (limit.capacity() as f64 + rate * lasting_s, 1.0),
    };
    sides as f64 * alone + times * within
}

/// Tokens of a bucket's debt that the replicated form may not see: those of one slot, `rate * g`, rounded up. A window
/// misses none.
pub fn under_count(limit: &Limit) -> u64 {
    match limit.shape() {
        Shape::Bucket(bucket) => {
            let scaled = u128::from(bucket.limit) * u128::from(bucket.slot_ns);
            u64::try_from(scaled.div_ceil(u128::from(bucket.window_ns.max(1)))).unwrap_or(u64::MAX)
        }
        Shape::Window(_) => 0,
    }
}

/// How many tokens a bucket may owe: what is overspent beyond `cap = C + (M-1) * (C + rate * 1 s)` is forgiven.
pub fn bucket_cap(limit: &Limit, expected_nodes: u32) -> u64 {
    let a_second = u128::from(limit.limit) * 1_000_000_000 / u128::from(limit.window_ns.max(1));
    let one_more = u128::from(limit.capacity()) + a_second;
    let cap = u128::from(limit.capacity()) + u128::from(expected_nodes.max(1) - 1) * one_more;
    u64::try_from(cap).unwrap_or(u64::MAX)
}

/// How long a bucket takes to admit `cost`, however overspent, seconds.
fn recovery_s(limit: &Limit, cost: u64, expected_nodes: u32) -> f64 {
    let rate = limit.limit as f64 / (limit.window_ns as f64 / 1e9);
    (bucket_cap(limit, expected_nodes) - limit.capacity() + cost) as f64 / rate + MAX_SKEW_S
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;
    use crate::schedule::Drawing;

    #[test]
    fn the_promises_by_hand() {
        let mut schedule = Drawing::new("by-hand", 1, 3).done();
        schedule.links.iter_mut().for_each(|link| (link.one_way_ms, link.back_ms) = (100, 80));
        let bucket = load::limit("token_bucket", 10, 1, 32).check().expect("a good limit");
        let third = 1.0 / 3.0;
        let terms = Terms {
            unknown: 5,
            shares: &[third, third, third],
            tokens_per_s: 150.0,
            sides: 2,
            lasting_ms: 10_000,
            cost: 4,
            ..Terms::new(&schedule, &bucket)
        };
        let by_hand = [
            ("known", 170.0),
            ("caught up", 170.0 + 11_000.0),
            ("instant", 7.0),
            ("even load", 17.0),
            ("cut", 264.0),
            ("recovery", 29.8 + 2.0),
            ("false denials", 0.0),
        ];
        assert_eq!(by_hand.map(|(name, _)| name).to_vec(), PROMISES.iter().map(|p| p.name).collect::<Vec<_>>());
        for (name, bound) in by_hand {
            let is = (named(name).of)(&terms);
            assert!((is - bound).abs() < 0.001, "{name}: {is}, by hand {bound}");
        }
    }

    #[test]
    fn the_texts_have_the_figures_of_the_formulas() {
        assert!(named("known").formula.ends_with(&format!("+ {SLACK_MS} ms")));
        let seconds = |ms: u64| format!("{} s", ms / 1_000);
        let (short, rejoin, redial) = (seconds(LIVED_THROUGH_MS), seconds(REJOIN_MS), seconds(REDIAL_MS));
        let text = format!(
            "({RESENT_MS} ms + round trip where packets are lost) + ({rejoin} after trouble up to {short}, {redial} where"
        );
        assert!(named("caught up").formula.contains(&text), "{text}");
    }

    #[test]
    fn the_formulas_by_hand() {
        // Three regions that share 15 times 100 a 10 s evenly, 80 ms apart: 8 of 100.
        let third = 1.0 / 3.0;
        assert!((eventual_over(&[third, third, third], 150.0, 0.08) - 8.0).abs() < 0.001);
        assert!(eventual_over(&[1.0, 0.0], 150.0, 0.08).abs() < 0.001);
        let bucket = load::limit("token_bucket", 10, 1, 32).check().expect("a good limit");
        // g is a sixteenth of 3.2 s.
        assert_eq!(under_count(&bucket), 2);
        assert_eq!(bucket_cap(&bucket, 8), 32 + 7 * 42);
        assert_eq!(eventual_most(&bucket, 5), 32 + 5 + 2);
        assert!((eventual_partition(&bucket, 2, 10.0, 3.0) - 267.0).abs() < 0.001);
        let window = load::limit("fixed_window", 10, 1, 1).check().expect("a good limit");
        assert!((eventual_partition(&window, 3, 2.0, 1.0) - 93.0).abs() < 0.001);
        assert_eq!(under_count(&window), 0);
    }
}
