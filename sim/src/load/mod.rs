//! What clients ask, in shapes that limiters meet. A shape adds its requests to a schedule; the requests are data, the
//! same in both tiers.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use tidegate::limits::LimitSpec;

use crate::schedule::{Ask, Drawing, LOAD_FROM_MS, Operation, What};

/// The load on one key.
#[derive(Clone, Copy, Debug)]
pub struct KeyLoad {
    /// Index of the key.
    pub key: usize,
    /// Tokens a second that the limit lets through.
    pub rate: u64,
    /// Tokens asked for, in per cent of that.
    pub factor_pct: u64,
    /// Requests cost 1 up to this.
    pub most_cost: u32,
}

/// How load comes.
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// Adds the requests.
    pub draw: fn(&mut Drawing, &KeyLoad, &mut StdRng),
}

/// All shapes. The first one is what most runs have.
pub const SHAPES: &[Shape] = &[
    Shape { name: "steady", draw: steady },
    Shape { name: "burst-after-idle", draw: burst_after_idle },
    Shape { name: "edge-burst", draw: edge_burst },
    Shape { name: "switching", draw: switching },
    Shape { name: "retry-storm", draw: retry_storm },
    Shape { name: "too-costly", draw: too_costly },
];

/// How steady load is spread over the nodes, in per cent; nodes beyond share what the last one has.
const SPREADS: [[u64; 3]; 4] = [[34, 33, 33], [60, 30, 10], [70, 30, 0], [100, 0, 0]];
/// Requests of one client at a node are at least this far apart: the node tier's clients wait for the answer.
const LEAST_GAP_MS: u64 = 8;

/// The mean time between requests of a client that asks for `share` per cent of the load; None: it asks for nothing.
fn gap_ms(load: &KeyLoad, share: u64) -> Option<u64> {
    // Requests a second times 10,000: the rate times two percentages, over the mean cost.
    let per_s = load.rate * load.factor_pct * share * 2 / (1 + u64::from(load.most_cost));
    (per_s > 0).then(|| (1_000 * 10_000 / per_s).max(LEAST_GAP_MS))
}

/// One client that asks at times `gap_ms` apart in the mean.
fn client(
    drawing: &mut Drawing,
    load: &KeyLoad,
    rng: &mut StdRng,
    node: usize,
    gap_ms: u64,
    (from_ms, until_ms): (u64, u64),
) {
    let mut at_ms = from_ms;
    loop {
        at_ms += rng.random_range(1..2 * gap_ms.max(1));
        if at_ms >= until_ms {
            return;
        }
        drawing.ask(at_ms, node, load.key, rng.random_range(1..=load.most_cost));
    }
}

/// The same load from the beginning to the end, spread as [`SPREADS`] have it.
pub fn steady(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng) {
    let spread = *SPREADS.choose(rng).expect("there are some");
    spread_over(drawing, load, rng, &spread);
}

/// The same load on every node.
pub fn even(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng) {
    let (nodes, until_ms) = (drawing.nodes(), drawing.schedule.load_until_ms);
    for node in 0..nodes {
        if let Some(gap_ms) = gap_ms(load, 100 / nodes as u64) {
            client(drawing, load, rng, node, gap_ms, (LOAD_FROM_MS, until_ms));
        }
    }
}

fn spread_over(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng, spread: &[u64; 3]) {
    let nodes = drawing.nodes();
    let until_ms = drawing.schedule.load_until_ms;
    let mut order: Vec<usize> = (0..nodes).collect();
    order.shuffle(rng);
    let last = nodes.saturating_sub(2).max(1) as u64;
    for (at, node) in order.into_iter().enumerate() {
        let share = if at < 2 { spread[at] } else { spread[2] / last };
        let share = if nodes == 1 { 100 } else { share };
        if let Some(gap_ms) = gap_ms(load, share) {
            client(drawing, load, rng, node, gap_ms, (LOAD_FROM_MS, until_ms));
        }
    }
}

/// Nothing for a while, then all that a second allows, several times over, in a fifth of it and everywhere.
fn burst_after_idle(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng) {
    let until_ms = drawing.schedule.load_until_ms;
    let mut at_ms = LOAD_FROM_MS + rng.random_range(500..2_000);
    while at_ms + 400 < until_ms {
        burst(drawing, load, rng, (at_ms, at_ms + 200));
        at_ms += rng.random_range(1_500..4_000);
    }
}

/// Bursts across the edges of windows: windows of whole seconds have theirs at whole seconds.
fn edge_burst(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng) {
    let until_ms = drawing.schedule.load_until_ms;
    for edge_ms in (LOAD_FROM_MS / 1_000 + 1..until_ms / 1_000).map(|s| s * 1_000) {
        if rng.random_range(0..2) == 0 {
            burst(drawing, load, rng, (edge_ms - 100, edge_ms + 100));
        }
    }
}

/// A second's load within `(from_ms, until_ms)`, from every node at once.
fn burst(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng, (from_ms, until_ms): (u64, u64)) {
    let nodes = drawing.nodes();
    let tokens = load.rate * load.factor_pct / 100 / nodes as u64;
    let requests = (tokens * 2 / (1 + u64::from(load.most_cost))).min((until_ms - from_ms) / LEAST_GAP_MS).max(1);
    for node in 0..nodes {
        for _ in 0..requests {
            drawing.ask(rng.random_range(from_ms..until_ms), node, load.key, rng.random_range(1..=load.most_cost));
        }
    }
}

/// One client that goes to another node every second or so.
fn switching(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng) {
    let until_ms = drawing.schedule.load_until_ms;
    let Some(gap_ms) = gap_ms(load, 100) else { return };
    let mut from_ms = LOAD_FROM_MS;
    while from_ms < until_ms {
        let (node, to_ms) = (rng.random_range(0..drawing.nodes()), from_ms + rng.random_range(300..1_500));
        client(drawing, load, rng, node, gap_ms, (from_ms, to_ms.min(until_ms)));
        from_ms = to_ms;
    }
}

/// Clients that ask again and again as soon as they are told no.
fn retry_storm(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng) {
    let until_ms = drawing.schedule.load_until_ms;
    for node in 0..drawing.nodes() {
        let from_ms = rng.random_range(LOAD_FROM_MS..until_ms - 1_000);
        client(drawing, load, rng, node, LEAST_GAP_MS + 2, (from_ms, (from_ms + 2_500).min(until_ms)));
    }
}

/// Some requests ask for more than there ever is; the others are steady.
fn too_costly(drawing: &mut Drawing, load: &KeyLoad, rng: &mut StdRng) {
    steady(drawing, load, rng);
    let until_ms = drawing.schedule.load_until_ms;
    for _ in 0..5 {
        let node = rng.random_range(0..drawing.nodes());
        drawing.ask(rng.random_range(LOAD_FROM_MS..until_ms), node, load.key, 1_000_000);
    }
}

/// How long what [`debts`] takes is owed, seconds.
const OWED_S: u64 = 30;

/// Takes tokens whatever the state, few at a time, until a bucket owes for half a minute.
pub fn debts(drawing: &mut Drawing, load: &KeyLoad, node: usize, rng: &mut StdRng) {
    let (mut left, mut at_ms) = (OWED_S * load.rate, LOAD_FROM_MS);
    while left > 0 {
        let cost = left.min(rng.random_range(2..8));
        left -= cost;
        at_ms += rng.random_range(10..30);
        drawing.at(at_ms, What::Ask(Ask { node, key: load.key, cost: cost as u32, op: Operation::Debit }));
    }
}

/// A limit of `algorithm`: 10 to 30 tokens a second, windows of 1 to 3 s.
pub fn small_limit(algorithm: &str, rng: &mut StdRng) -> LimitSpec {
    let window_s = if algorithm == "token_bucket" { 1 } else { rng.random_range(1..=3u64) };
    limit(algorithm, rng.random_range(10..=30) * window_s, window_s, rng.random_range(10..=40))
}

/// A limit of so many tokens a window; `burst` is for buckets.
pub fn limit(algorithm: &str, tokens: u64, window_s: u64, burst: i64) -> LimitSpec {
    LimitSpec {
        name: algorithm.replace('_', "-"),
        algorithm: Some(algorithm.to_owned()),
        limit: Some(tokens as i64),
        window: Some(format!("{window_s}s")),
        burst: (algorithm == "token_bucket").then_some(burst),
        ..LimitSpec::default()
    }
}

/// Tokens a second that a limit lets through.
pub fn rate(spec: &LimitSpec) -> u64 {
    let limit = spec.check().expect("scenarios draw good limits");
    (u128::from(limit.limit) * 1_000_000_000 / u128::from(limit.window_ns)).max(1) as u64
}
