//! The scenarios: who there is, what is asked, and which faults there may be. A seed draws a schedule of one.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use crate::faults::{self, FAULTS};
use crate::load::{self, KeyLoad, SHAPES};
use crate::schedule::{Drawing, Schedule};

/// How one kind of schedule is drawn.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// How many nodes there are, from and to.
    nodes: (usize, usize),
    /// Faults that every run has.
    always: &'static [&'static str],
    /// Faults of which a run has some.
    some_of: &'static [&'static str],
    /// How many of those at most.
    at_most: usize,
    /// Keys and what is asked of them.
    load: Load,
}

/// Which load a scenario has.
enum Load {
    /// A key of each algorithm, steady, 0.8 to 5 times the limit.
    Steady,
    /// A key of each algorithm, the same everywhere and 3 to 5 times the limit, so that shares can be compared.
    Even,
    /// A key of each algorithm, each in a shape of its own.
    Shapes,
    /// More keys than nodes may count.
    Churn,
    /// Keys that owe for longer than slots are kept, and so are the records of the journal.
    Debts,
}

const NETWORK: &[&str] = &["isolate", "isolate-long", "split", "one-way", "chain", "flap", "asymmetric"];
const WEATHER: &[&str] = &["loss", "loss-burst", "duplicate", "reorder", "jitter", "corrupt"];
const CLOCKS: &[&str] = &["offset", "drift", "step", "edge-step", "pause"];
/// A run in so many has a ring that is too short for what peers miss.
const SHORT_RING_EVERY: u32 = 4;
const PROCESSES: &[&str] = &["crash", "crash-loop", "crash-in-cut", "rolling-restart", "empty-disk", "old-disk"];
const DISKS: &[&str] = &["disk-full", "disk-failing", "disk-torn", "disk-slow", "disk-damaged"];
const LIMITS: &[&str] = &["limit-change", "limit-in-cut", "reset", "reset-in-cut"];

const fn scenario(name: &'static str, about: &'static str, load: Load) -> Scenario {
    Scenario { name, about, nodes: (3, 3), always: &[], some_of: &[], at_most: 0, load }
}

/// All scenarios. A sweep goes through them in turn.
pub const SCENARIOS: &[Scenario] = &[
    scenario("converge", "nothing goes wrong", Load::Steady),
    Scenario {
        always: &["isolate", "loss", "duplicate", "reorder"],
        ..scenario("partition", "one region is cut off for 2 to 4 s, packets are lost, repeated and late", Load::Steady)
    },
    Scenario { always: &["offset", "drift"], ..scenario("skew", "clocks up to 1 s apart, drifting", Load::Even) },
    Scenario {
        always: &["crash", "loss", "reorder"],
        ..scenario("restart", "a process dies under load and comes back", Load::Steady)
    },
    Scenario {
        nodes: (2, 5),
        some_of: NETWORK,
        at_most: 3,
        ..scenario("network", "links are cut, one way and both", Load::Shapes)
    },
    Scenario {
        nodes: (2, 4),
        some_of: WEATHER,
        at_most: 3,
        ..scenario("weather", "packets are lost, late, repeated, changed", Load::Shapes)
    },
    Scenario {
        nodes: (2, 3),
        always: &["gaps"],
        ..scenario("gaps", "frames vanish, come twice and out of order", Load::Steady)
    },
    Scenario {
        always: &["asymmetric"],
        some_of: CLOCKS,
        at_most: 2,
        ..scenario("clocks", "clocks are apart, jump, machines stand still", Load::Steady)
    },
    Scenario { always: &["wrong-boot"], ..scenario("wrong-boot", "a node starts with a wrong clock", Load::Steady) },
    Scenario {
        nodes: (2, 3),
        some_of: PROCESSES,
        at_most: 2,
        ..scenario("processes", "processes die, disks are old or empty", Load::Shapes)
    },
    Scenario { some_of: DISKS, at_most: 2, ..scenario("disks", "disks are full, fail, tear and rot", Load::Steady) },
    Scenario { some_of: LIMITS, at_most: 2, ..scenario("limits", "limits change and keys are reset", Load::Steady) },
    Scenario {
        always: &["join-in-chain"],
        ..scenario("joins", "an empty node reaches only some of the others", Load::Shapes)
    },
    Scenario {
        some_of: &["strangers", "crash"],
        at_most: 2,
        ..scenario("churn", "more keys than there is room for", Load::Churn)
    },
    Scenario {
        always: &["late-crash"],
        some_of: &["isolate", "loss", "long-down"],
        at_most: 2,
        ..scenario("debts", "buckets owe for longer than slots are kept", Load::Debts)
    },
    Scenario {
        nodes: (1, 5),
        some_of: &[
            "isolate",
            "split",
            "one-way",
            "chain",
            "flap",
            "loss",
            "loss-burst",
            "duplicate",
            "reorder",
            "corrupt",
            "offset",
            "step",
            "pause",
            "crash",
            "crash-loop",
            "crash-in-cut",
            "empty-disk",
            "old-disk",
            "disk-full",
            "disk-torn",
            "disk-damaged",
            "limit-change",
            "reset",
            "strangers",
        ],
        at_most: 4,
        ..scenario("any", "everything at once", Load::Shapes)
    },
];

/// The scenario of a name.
pub fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

/// Which faults may be drawn.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// Only these; empty: all that the scenario has.
    pub only: Vec<String>,
    /// Not these.
    pub without: Vec<String>,
    /// Only those that the node tier can carry.
    pub node_tier: bool,
}

impl Switches {
    fn allow(&self, name: &str) -> bool {
        let known = faults::find(name).is_some_and(|fault| fault.node_tier || !self.node_tier);
        let only = self.only.is_empty() || self.only.iter().any(|only| only == name);
        known && only && !self.without.iter().any(|without| without == name)
    }
}

/// The schedule that a seed draws, with all faults that the scenario has.
pub fn draw(scenario: &Scenario, seed: u64) -> Schedule {
    draw_with(scenario, seed, &Switches::default())
}

/// The schedule that a seed draws.
pub fn draw_with(scenario: &Scenario, seed: u64, switches: &Switches) -> Schedule {
    let nodes = crate::seed::Seed(seed).rng("nodes").random_range(scenario.nodes.0..=scenario.nodes.1);
    let mut drawing = Drawing::new(scenario.name, seed, nodes);
    let loads = scenario.load.keys(&mut drawing);
    let mut rng = drawing.rng("faults");
    let mut some: Vec<&str> = scenario.some_of.to_vec();
    some.shuffle(&mut rng);
    some.truncate(if scenario.at_most > 0 { rng.random_range(1..=scenario.at_most) } else { 0 });
    for name in scenario.always.iter().chain(&some).filter(|name| switches.allow(name)) {
        let fault = FAULTS.iter().find(|fault| fault.name == *name).expect("scenarios name faults that there are");
        let mut rng = drawing.rng(name);
        (fault.draw)(&mut drawing, &mut rng);
    }
    drawing.set_end();
    scenario.load.requests(&mut drawing, &loads);
    if drawing.rng("ring").random_range(0..SHORT_RING_EVERY) == 0 {
        drawing.schedule.setup.ring_bytes = drawing.rng("ring bytes").random_range(500..5_000);
    }
    // Most runs end when all agree; some go on until everything has expired.
    drawing.schedule.until_expired = drawing.rng("end").random_range(0..8) == 0;
    drawing.done()
}

const ALGORITHMS: [&str; 3] = ["fixed_window", "sliding_window", "token_bucket"];
/// Keys beyond what nodes may count.
const CHURNED_KEYS: usize = 24;

impl Load {
    /// Limits and keys, and how much is asked of each.
    fn keys(&self, drawing: &mut Drawing) -> Vec<KeyLoad> {
        let mut rng = drawing.rng("keys");
        match self {
            Self::Churn => churned_keys(drawing, &mut rng),
            _ => ALGORITHMS.iter().map(|algorithm| self.key(algorithm, drawing, &mut rng)).collect(),
        }
    }

    fn key(&self, algorithm: &str, drawing: &mut Drawing, rng: &mut StdRng) -> KeyLoad {
        let spec = load::small_limit(algorithm, rng);
        let (rate, tried_at) = (load::rate(&spec), Some(rng.random_range(0..drawing.nodes())));
        let key = drawing.key(spec, format!("user:{}", rng.random_range(0..1_000)), tried_at);
        let factor_pct =
            if matches!(self, Self::Even) { rng.random_range(300..=500) } else { rng.random_range(80..=500) };
        KeyLoad { key, rate, factor_pct, most_cost: *[1, 1, 3].choose(rng).expect("there are some") }
    }

    /// What is asked.
    fn requests(&self, drawing: &mut Drawing, loads: &[KeyLoad]) {
        let mut rng = drawing.rng("load");
        for key in loads {
            match self {
                Self::Steady | Self::Churn => load::steady(drawing, key, &mut rng),
                Self::Even => load::even(drawing, key, &mut rng),
                Self::Shapes => (SHAPES.choose(&mut rng).expect("there are some").draw)(drawing, key, &mut rng),
                Self::Debts => {
                    let node = rng.random_range(0..drawing.nodes());
                    load::debts(drawing, key, node, &mut rng);
                    load::steady(drawing, key, &mut rng);
                }
            }
        }
    }
}

/// Many keys of two limits, of which nodes may count fewer.
fn churned_keys(drawing: &mut Drawing, rng: &mut StdRng) -> Vec<KeyLoad> {
    drawing.schedule.setup.max_keys = rng.random_range(4..16);
    if rng.random() {
        drawing.schedule.setup.max_cells = rng.random_range(20..60);
    }
    let mut fixed = load::small_limit("fixed_window", rng);
    fixed.on_full = Some("deny".to_owned());
    let mut sliding = load::small_limit("sliding_window", rng);
    sliding.on_full = Some("deny".to_owned());
    let mut key = |at: usize| {
        let spec = if at.is_multiple_of(2) { fixed.clone() } else { sliding.clone() };
        let rate = load::rate(&spec) / 8 + 1;
        let key = drawing.key(spec, format!("churn:{at}"), None);
        KeyLoad { key, rate, factor_pct: 100, most_cost: 1 }
    };
    (0..CHURNED_KEYS).map(&mut key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_draws_a_schedule_that_makes_sense() {
        for scenario in SCENARIOS {
            for seed in 0..50 {
                let schedule = draw(scenario, seed);
                assert!(schedule.checked_limits().is_ok());
                assert!(schedule.events.is_sorted_by_key(|event| event.at_ms));
                assert!(schedule.asks().all(|(at_ms, _)| at_ms < schedule.load_until_ms));
                assert!(schedule.troubles().all(|event| event.at_ms <= schedule.calm_ms), "{} {seed}", scenario.name);
            }
        }
    }

    #[test]
    fn a_seed_draws_the_same_twice_and_switches_switch() {
        let any = find("any").expect("it is there");
        assert_eq!(draw(any, 5), draw(any, 5));
        assert_ne!(draw(any, 5), draw(any, 6));
        let without =
            Switches { only: vec!["isolate".to_owned()], without: vec!["isolate".to_owned()], node_tier: false };
        for seed in 0..20 {
            assert_eq!(draw_with(any, seed, &without).troubles().count(), 0);
        }
    }

    #[test]
    fn every_fault_is_in_some_scenario() {
        for fault in FAULTS {
            let named =
                |scenario: &&Scenario| scenario.always.iter().chain(scenario.some_of).any(|name| *name == fault.name);
            assert!(SCENARIOS.iter().any(|scenario| named(&scenario)), "{} is drawn nowhere", fault.name);
        }
        for scenario in SCENARIOS {
            for name in scenario.always.iter().chain(scenario.some_of) {
                assert!(faults::find(name).is_some(), "{} names {name}", scenario.name);
            }
        }
    }
}
