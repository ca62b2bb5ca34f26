//! What happens in a run, as data: one seed draws the regions and their distances, the clocks, the limits, the load and
//! the faults. A failing run prints it.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use serde::Serialize;
use tidegate::limits::LimitSpec;

use crate::net::Weather;
use crate::seed::Seed;

/// Between two flushes of a node, milliseconds: the product's default.
pub const GOSSIP_INTERVAL_MS: u64 = 50;
/// Nodes of a cluster.
pub const NODES: usize = 3;

/// The scenarios there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    /// Three regions, no faults.
    Converge,
    /// One region is cut off from the others for a while; packets are lost, repeated and late.
    Partition,
    /// Clocks up to a second apart, each within 500 ms of true time, drifting by up to 200 ppm.
    Skew,
    /// A node crashes under load, loses what its disk had not taken, and comes back.
    Restart,
}

/// One run. All times are milliseconds of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// Which kind.
    pub name: Name,
    /// What drew it.
    pub seed: u64,
    /// One node a region.
    pub nodes: Vec<NodePlan>,
    /// Every pair of nodes, by index.
    pub links: Vec<Link>,
    /// What single packets suffer.
    pub weather: Weather,
    /// What is counted and who asks for it.
    pub keys: Vec<KeyPlan>,
    /// In order of time.
    pub faults: Vec<Fault>,
    /// When the load begins.
    pub load_from_ms: u64,
    /// When it ends.
    pub load_until_ms: u64,
    /// How long after the load and the last fault the nodes may take to agree.
    pub settle_ms: u64,
}

/// A region and its clock.
#[derive(Clone, Debug, Serialize)]
pub struct NodePlan {
    /// Node and region.
    pub name: &'static str,
    /// Microseconds ahead of true time at the start.
    pub clock_offset_us: i64,
    /// Parts per million.
    pub clock_drift_ppm: i64,
}

/// How far apart two nodes are.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Link {
    /// The one.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// Milliseconds from one to the other.
    pub one_way_ms: u64,
}

/// A key of a limit, and the load on it.
#[derive(Clone, Debug, Serialize)]
pub struct KeyPlan {
    /// The limit.
    pub limit: LimitSpec,
    /// The key.
    pub key: String,
    /// Requests cost 1 up to this.
    pub most_cost: u32,
    /// For every node the mean time between two requests; None: nobody asks there.
    pub gap_ms: Vec<Option<u64>>,
    /// Where `remaining` and `retry_after` are tried once all is quiet.
    pub tried_at: usize,
}

/// Something going wrong, or right again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// When.
    pub at_ms: u64,
    /// What.
    pub what: What,
}

/// What a fault does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum What {
    /// No packet passes between this node and all others.
    Cut(usize),
    /// They pass again.
    Heal(usize),
    /// The process dies: what it held in memory is gone.
    Crash(usize),
    /// It is started again.
    Start(usize),
}

impl Scenario {
    /// The run that `seed` draws.
    pub fn draw(name: Name, seed: u64) -> Self {
        let root = Seed(seed);
        let (nodes, links) = draw_topology(&mut root.rng("topology"));
        let mut scenario = Self {
            name,
            seed,
            nodes,
            links,
            weather: Weather::default(),
            keys: draw_keys(&mut root.rng("keys"), name == Name::Skew),
            faults: Vec::new(),
            load_from_ms: 1_000,
            load_until_ms: 6_000,
            settle_ms: 1_000,
        };
        scenario.draw_clocks(&mut root.rng("clocks"));
        scenario.draw_faults(&mut root.rng("faults"));
        scenario
    }

    fn draw_clocks(&mut self, rng: &mut StdRng) {
        let (most_us, most_ppm) = if self.name == Name::Skew { (500_000, 200) } else { (1_000, 20) };
        for node in &mut self.nodes {
            node.clock_offset_us = rng.random_range(-most_us..=most_us);
            node.clock_drift_ppm = rng.random_range(-most_ppm..=most_ppm);
        }
        if self.name == Name::Skew {
            // The worst that the scenario promises, whatever else is drawn: one clock at each end.
            let (first, last) = (rng.random_range(0..NODES), rng.random_range(1..NODES));
            self.nodes[first].clock_offset_us = most_us - 20_000;
            self.nodes[(first + last) % NODES].clock_offset_us = 20_000 - most_us;
        }
    }

    fn draw_faults(&mut self, rng: &mut StdRng) {
        let (node, begin_ms) = (rng.random_range(0..NODES), rng.random_range(2_500..3_500));
        let (begin, end, lasting_ms) = match self.name {
            Name::Converge | Name::Skew => return,
            Name::Partition => (What::Cut(node), What::Heal(node), rng.random_range(2_000..4_000)),
            Name::Restart => (What::Crash(node), What::Start(node), rng.random_range(300..2_000)),
        };
        let end_ms = begin_ms + lasting_ms;
        self.faults = vec![Fault { at_ms: begin_ms, what: begin }, Fault { at_ms: end_ms, what: end }];
        self.load_until_ms = end_ms + REJOIN_MS + 2_000;
        self.settle_ms = 2_000;
        self.weather = Weather {
            loss_ppm: rng.random_range(0..20_000),
            duplicate_ppm: rng.random_range(0..20_000),
            late_ppm: rng.random_range(0..50_000),
            late_ms: 30,
            until_ns: self.load_until_ms * 1_000_000,
        };
    }

    /// Milliseconds from one node to another.
    pub fn one_way_ms(&self, a: usize, b: usize) -> u64 {
        let joins = |link: &&Link| (link.a, link.b) == (a, b) || (link.b, link.a) == (a, b);
        self.links.iter().find(joins).map_or(0, |link| link.one_way_ms)
    }

    /// When the last fault is over and the load has ended.
    pub fn calm_from_ms(&self) -> u64 {
        self.faults.iter().map(|fault| fault.at_ms).max().unwrap_or(0).max(self.load_until_ms)
    }

    /// Within how many milliseconds a spend at one node must be known at another, the link being up.
    pub fn reach_ms(&self, from: usize, to: usize) -> u64 {
        let lost = if self.weather.loss_ppm > 0 { RESENT_MS + 2 * self.one_way_ms(from, to) } else { 0 };
        self.fair_reach_ms(from, to) + lost
    }

    /// The same while no packet is lost.
    pub fn fair_reach_ms(&self, from: usize, to: usize) -> u64 {
        GOSSIP_INTERVAL_MS + self.one_way_ms(from, to) + SLACK_MS
    }
}

/// What a spend takes from one node to another beyond the flush interval and the way itself: the answer's way to the
/// client that records it, and whole milliseconds at every step.
const SLACK_MS: u64 = 20;
/// What lost packets may add: they are sent again after a probe timeout, and may be lost once more.
const RESENT_MS: u64 = 500;
/// After a cut healed or a node started, everyone knows all that had been spent by then within this.
pub const REJOIN_MS: u64 = 1_000;

/// Regions of public clouds and the round trips between them in milliseconds, as cloud latency monitors show them. Pairs
/// nearer than 80 ms or further than 300 ms are left out.
const ROUND_TRIPS: [(&str, &str, u64); 17] = [
    ("us-east", "eu-central", 92),
    ("us-east", "ap-tokyo", 150),
    ("us-east", "ap-singapore", 215),
    ("us-east", "ap-mumbai", 190),
    ("us-east", "sa-east", 115),
    ("us-east", "ap-sydney", 198),
    ("eu-central", "ap-tokyo", 225),
    ("eu-central", "ap-singapore", 160),
    ("eu-central", "ap-mumbai", 125),
    ("eu-central", "sa-east", 203),
    ("eu-central", "ap-sydney", 250),
    ("ap-tokyo", "ap-mumbai", 130),
    ("ap-tokyo", "sa-east", 257),
    ("ap-tokyo", "ap-sydney", 105),
    ("ap-singapore", "ap-sydney", 92),
    ("ap-mumbai", "sa-east", 300),
    ("ap-mumbai", "ap-sydney", 150),
];

fn round_trip_ms(a: &str, b: &str) -> Option<u64> {
    ROUND_TRIPS.iter().find(|r| (r.0, r.1) == (a, b) || (r.1, r.0) == (a, b)).map(|r| r.2)
}

/// Three regions of which every pair is in the table.
fn draw_topology(rng: &mut StdRng) -> (Vec<NodePlan>, Vec<Link>) {
    loop {
        let mut names: Vec<&'static str> = ROUND_TRIPS.iter().flat_map(|r| [r.0, r.1]).collect();
        names.sort_unstable();
        names.dedup();
        names.shuffle(rng);
        names.truncate(NODES);
        let pairs = (0..NODES).flat_map(|a| (a + 1..NODES).map(move |b| (a, b)));
        let links: Option<Vec<Link>> = pairs
            .map(|(a, b)| round_trip_ms(names[a], names[b]).map(|rtt| Link { a, b, one_way_ms: rtt / 2 }))
            .collect();
        if let Some(links) = links {
            let plan = |name| NodePlan { name, clock_offset_us: 0, clock_drift_ppm: 0 };
            return (names.into_iter().map(plan).collect(), links);
        }
    }
}

/// How the load of a key is spread over the regions, in per cent.
const SPREADS: [[u64; NODES]; 4] = [[34, 33, 33], [60, 30, 10], [70, 30, 0], [100, 0, 0]];
/// A node answers one client of a key at a time; closer requests would queue.
const LEAST_GAP_MS: u64 = 8;

/// One key of each algorithm. `even`: the same load everywhere, and above the limit, so that shares can be compared.
fn draw_keys(rng: &mut StdRng, even: bool) -> Vec<KeyPlan> {
    let algorithms = ["fixed_window", "sliding_window", "token_bucket"];
    let draw = |algorithm: &&str| {
        let window_s = if *algorithm == "token_bucket" { 1 } else { rng.random_range(2..=3u64) };
        let limit = rng.random_range(10..=30) * window_s;
        let factor_pct = if even { rng.random_range(300..=500u64) } else { rng.random_range(80..=500) };
        let most_cost = *[1, 1, 3].choose(rng).expect("three to choose from");
        let mut spread = if even { SPREADS[0] } else { *SPREADS.choose(rng).expect("four to choose from") };
        spread.shuffle(rng);
        // Requests a window times 10,000: the limit times two percentages, over the mean cost.
        let gap = |share: u64| {
            let per_window = limit * factor_pct * share * 2 / (1 + u64::from(most_cost));
            (share > 0).then(|| (window_s * 1_000 * 10_000 / per_window.max(1)).max(LEAST_GAP_MS))
        };
        KeyPlan {
            limit: LimitSpec {
                name: algorithm.replace('_', "-"),
                algorithm: Some((*algorithm).to_owned()),
                limit: Some(limit as i64),
                window: Some(format!("{window_s}s")),
                burst: (*algorithm == "token_bucket").then(|| rng.random_range(10..=40)),
                ..LimitSpec::default()
            },
            key: format!("user:{}", rng.random_range(0..1_000)),
            most_cost,
            gap_ms: spread.map(gap).to_vec(),
            tried_at: rng.random_range(0..NODES),
        }
    };
    algorithms.iter().map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_draws_what_the_scenarios_promise() {
        for seed in 0..200 {
            for name in [Name::Converge, Name::Partition, Name::Skew, Name::Restart] {
                let scenario = Scenario::draw(name, seed);
                assert!(scenario.links.iter().all(|link| (40..=150).contains(&link.one_way_ms)));
                assert!(scenario.keys.iter().all(|key| key.limit.check().is_ok()));
                assert!(scenario.faults.is_sorted_by_key(|fault| fault.at_ms));
                let offsets = scenario.nodes.iter().map(|node| node.clock_offset_us);
                let apart = offsets.clone().max().zip(offsets.clone().min()).map_or(0, |(most, least)| most - least);
                assert!(offsets.clone().all(|offset| offset.abs() <= 500_000));
                assert_eq!(apart > 950_000, name == Name::Skew);
            }
        }
    }

    #[test]
    fn a_seed_draws_the_same_twice() {
        let drawn = |seed| format!("{:?}", Scenario::draw(Name::Partition, seed));
        assert_eq!(drawn(5), drawn(5));
        assert_ne!(drawn(5), drawn(6));
    }
}
