//! Several engines that exchange what they drained, late, twice, out of order or never.

use proptest::prelude::*;

use super::*;
use crate::limits::Retention;
use crate::time::{MS, SECOND};

const NODES: usize = 3;

/// What one node did, or what befell it.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Ask(usize, Op, u8, u32),
    /// A node drains; its parts are on their way to everybody.
    Drain(usize),
    /// Some of what is on its way to a node arrives; it may come again.
    Arrive(usize, usize, bool),
    Sweep(usize),
    /// A node dies, with what it had not drained, and starts as another replica from its own parts.
    Restart(usize),
    /// One node gives another all it has.
    Sync(usize, usize),
}

fn steps(returns: bool, longest_wait: u64) -> impl Strategy<Value = Vec<Step>> {
    let op = prop_oneof![
        8 => Just(Op::Check),
        1 => Just(Op::Debit),
        u32::from(returns) => Just(Op::Reset),
        u32::from(returns) => Just(Op::Refund),
    ];
    let node = 0..NODES;
    let step = prop_oneof![
        3 => (0..longest_wait).prop_map(Step::Wait),
        8 => (node.clone(), op, 0..2u8, 0..6u32).prop_map(|(node, op, key, cost)| Step::Ask(node, op, key, cost)),
        3 => node.clone().prop_map(Step::Drain),
        5 => (node.clone(), 0..50usize, any::<bool>()).prop_map(|(node, pick, again)| Step::Arrive(node, pick, again)),
        1 => node.clone().prop_map(Step::Sweep),
        1 => node.clone().prop_map(Step::Restart),
        1 => (node.clone(), node).prop_map(|(from, to)| Step::Sync(from, to)),
    ];
    prop::collection::vec(step, 1..120)
}

type Parcel = (ReplicaId, Part);

struct Cluster {
    now: u64,
    limits: LimitSet,
    nodes: Vec<Engine>,
    /// What is on its way to each node.
    post: Vec<Vec<Parcel>>,
    /// What each node drained or heard: its journal.
    journals: Vec<Vec<Parcel>>,
    /// Hears of everything as soon as it is drained, and never forgets.
    all: Engine,
    lives: u64,
}

impl Cluster {
    fn new(spec: LimitSpec) -> Self {
        let limits = set(&[spec]);
        let make = |name: &str| {
            let engine = engine(name, settings());
            engine.install(T0, limits.clone());
            engine
        };
        let nodes = ["a", "b", "c"].map(make).into();
        let all = make("all");
        Self { now: T0, limits, nodes, post: vec![vec![]; NODES], journals: vec![vec![]; NODES], all, lives: 1 }
    }

    fn step(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Wait(ns) => self.now += ns,
            Step::Ask(node, op, key, cost) => {
                one(&self.nodes[node], now, op, "l", &format!("k{key}"), cost);
            }
            Step::Drain(node) => self.drain(node),
            Step::Arrive(node, pick, again) => {
                if self.post[node].is_empty() {
                    return;
                }
                let at = pick % self.post[node].len();
                let parcel = if again { self.post[node][at].clone() } else { self.post[node].swap_remove(at) };
                self.arrive(node, &parcel);
            }
            Step::Sweep(node) => {
                let own = self.nodes[node].own();
                let saved = self.nodes[node].sweep(now);
                self.journals[node].extend(saved.into_iter().map(|part| (own.clone(), part)));
            }
            Step::Restart(node) => self.restart(node),
            Step::Sync(from, to) => {
                let mut at = Some(ExportCursor::default());
                while let Some(from_entry) = at {
                    let export = self.nodes[from].export(now, from_entry, None);
                    for parcel in export.parts {
                        self.arrive(to, &parcel);
                    }
                    at = export.next;
                }
            }
        }
    }

    fn drain(&mut self, node: usize) {
        let own = self.nodes[node].own();
        let drained = self.nodes[node].drain(self.now);
        for part in drained.parts {
            assert!(part.groups.iter().map(Group::len).sum::<usize>() <= MAX_PART_ITEMS);
            let parcel = (own.clone(), part);
            let merged = self.all.merge(self.now, &own, &parcel.1.groups).unwrap();
            assert_eq!(merged.refused, 0);
            self.journals[node].push(parcel.clone());
            for other in (0..NODES).filter(|other| *other != node) {
                self.post[other].push(parcel.clone());
            }
        }
    }

    fn arrive(&mut self, node: usize, (from, part): &Parcel) {
        let merged = self.nodes[node].merge(self.now, from, &part.groups).unwrap();
        assert!(!merged.own_above);
        self.journals[node].push((from.clone(), part.clone()));
    }

    fn restart(&mut self, node: usize) {
        self.lives += 1;
        let own = replica(self.nodes[node].own().node.as_str(), self.lives);
        let engine = Engine::new(settings(), own, &Secret([3; 32]));
        engine.install(self.now, self.limits.clone());
        for (from, part) in self.journals[node].iter().filter(|(_, part)| part.expires_ns > self.now) {
            engine.merge(self.now, from, &part.groups).unwrap();
        }
        self.nodes[node] = engine;
    }

    /// Everything drained, everything arrived.
    fn settle(&mut self) {
        for node in 0..NODES {
            self.drain(node);
        }
        for node in 0..NODES {
            for parcel in std::mem::take(&mut self.post[node]) {
                self.arrive(node, &parcel);
            }
        }
        // What a dead life drained before it died may be known to its peers only, and the other way round.
        for from in 0..NODES {
            for to in 0..NODES {
                self.step(&Step::Sync(from, to));
            }
        }
    }

    fn used(&self, engine: &Engine, key: u8) -> u64 {
        engine.usage(self.now, "l", &format!("k{key}")).unwrap().used
    }

    /// A node that knows less never reads more.
    fn nobody_reads_more_than_all(&mut self) {
        for node in 0..NODES {
            self.drain(node);
        }
        for key in 0..2 {
            let all = self.used(&self.all, key);
            for node in &self.nodes {
                assert!(self.used(node, key) <= all, "{} reads {} of {all}", node.own(), self.used(node, key));
            }
        }
    }
}

fn settings() -> Settings {
    let retention = Retention { partition_memory_ns: 3 * SECOND, max_skew_ns: 200 * MS };
    Settings { retention, expected_nodes: 3, ..Settings::default() }
}

fn spec() -> impl Strategy<Value = LimitSpec> {
    prop_oneof![
        (1..30i64, 100..4_000u64, 1..30i64).prop_map(|(tokens, window, burst)| limit(
            "l",
            "token_bucket",
            tokens,
            &format!("{window}ms"),
            Some(burst)
        )),
        (1..30i64, 100..4_000u64, any::<bool>()).prop_map(|(tokens, window, sliding)| {
            let algorithm = if sliding { "sliding_window" } else { "fixed_window" };
            limit("l", algorithm, tokens, &format!("{window}ms"), None)
        }),
        (1..30i64, 10..400u64, 1..10i64, any::<bool>()).prop_map(|(tokens, slot, slots, log)| {
            let algorithm = if log { "sliding_log" } else { "sliding_window" };
            let window = format!("{}ms", slot * slots as u64);
            LimitSpec { slots: (!log).then_some(slots), ..limit("l", algorithm, tokens, &window, None) }
        }),
        (1..30i64, 100..4_000u64, 1..30i64, 1..2_000u64).prop_map(|(tokens, window, burst, queue)| LimitSpec {
            queue: Some(format!("{queue}ms")),
            ..limit("l", "leaky_bucket", tokens, &format!("{window}ms"), Some(burst))
        }),
    ]
}

proptest! {
    /// With loss, repetition, reordering, restarts, and slots that are dropped at different times.
    #[test]
    fn knowing_less_never_reads_more(spec in spec(), steps in steps(false, 2 * SECOND)) {
        let mut cluster = Cluster::new(spec);
        for step in &steps {
            cluster.step(step);
            if matches!(step, Step::Arrive(..) | Step::Restart(_) | Step::Sync(..)) {
                cluster.nobody_reads_more_than_all();
            }
        }
    }

    /// Once everything has arrived everybody reads the same, resets and refunds or not, as long as nothing arrived too late.
    #[test]
    fn all_converge(spec in spec(), steps in steps(true, 50 * MS)) {
        let mut cluster = Cluster::new(spec);
        for step in &steps {
            cluster.step(step);
        }
        cluster.settle();
        for key in 0..2 {
            let used: Vec<_> = cluster.nodes.iter().map(|node| cluster.used(node, key)).collect();
            prop_assert!(used.iter().all(|one| *one == used[0]), "{:?}", used);
        }
    }
}
