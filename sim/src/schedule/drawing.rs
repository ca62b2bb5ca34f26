//! A schedule while it is drawn.

use rand::Rng;
use rand::rngs::StdRng;
use tidegate::limits::LimitSpec;

use super::{Ask, Event, KeyPlan, Operation, Schedule, Setup, VERSION, What, draw_regions};
use crate::reach::Reach;
use crate::seed::Seed;

/// When the load begins, milliseconds: nodes have met by then.
pub const LOAD_FROM_MS: u64 = 1_000;
/// The first fault begins when the load has been running for a while, milliseconds.
pub const FAULTS_FROM_MS: u64 = 2_500;
/// How long the load goes on after the last fault and what it takes to get over it, milliseconds.
const LOAD_AFTER_MS: u64 = 2_000;

/// A schedule to which load and faults are added. Each purpose has a generator of its own.
#[derive(Debug)]
pub struct Drawing {
    /// What there is of it.
    pub schedule: Schedule,
    /// When the last fault ends.
    pub faults_until_ms: u64,
    seed: Seed,
}

impl Drawing {
    /// Nodes, and nothing that happens. Clocks are within 1 ms of true time.
    pub fn new(scenario: &str, seed: u64, nodes: usize) -> Self {
        let root = Seed(seed).of(scenario);
        let (mut plans, links) = draw_regions(nodes, &mut root.rng("topology"));
        let mut rng = root.rng("clocks");
        for plan in &mut plans {
            plan.clock_offset_us = rng.random_range(-1_000..=1_000);
            plan.clock_drift_ppm = rng.random_range(-20..=20);
        }
        let schedule = Schedule {
            version: VERSION,
            scenario: scenario.to_owned(),
            seed,
            nodes: plans,
            links,
            setup: Setup { interval_ms: 50, ring_bytes: 16 << 20, max_keys: 1_000_000, max_cells: 8_000_000 },
            limits: Vec::new(),
            keys: Vec::new(),
            load_until_ms: 6_000,
            calm_ms: 0,
            settle_ms: 1_000,
            until_expired: false,
            events: Vec::new(),
        };
        Self { schedule, faults_until_ms: 0, seed: root }
    }

    /// The generator of one purpose.
    pub fn rng(&self, purpose: &str) -> StdRng {
        self.seed.rng(purpose)
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.schedule.nodes.len()
    }

    /// A limit and a key of it. Returns the key's index.
    pub fn key(&mut self, limit: LimitSpec, key: String, tried_at: Option<usize>) -> usize {
        let known = self.schedule.limits.iter().position(|known| known.name == limit.name);
        let limit = known.unwrap_or_else(|| {
            self.schedule.limits.push(limit);
            self.schedule.limits.len() - 1
        });
        self.schedule.keys.push(KeyPlan { limit, key, tried_at });
        self.schedule.keys.len() - 1
    }

    /// Something happens.
    pub fn at(&mut self, at_ms: u64, what: What) {
        self.schedule.events.push(Event { at_ms, what });
    }

    /// A client asks.
    pub fn ask(&mut self, at_ms: u64, node: usize, key: usize, cost: u32) {
        self.at(at_ms, What::Ask(Ask { node, key, cost, op: Operation::Check }));
    }

    /// A fault lasts until then.
    pub fn lasts_until(&mut self, ms: u64) {
        self.faults_until_ms = self.faults_until_ms.max(ms);
    }

    /// A fault: it happens, and ends by something else happening.
    pub fn fault(&mut self, from_ms: u64, what: What, until_ms: u64, end: What) {
        self.at(from_ms, what);
        self.at(until_ms, end);
        self.lasts_until(until_ms);
    }

    /// Nothing passes between two nodes for a while.
    pub fn cut_between(&mut self, a: usize, b: usize, from_ms: u64, until_ms: u64) {
        for (from, to) in [(a, b), (b, a)] {
            self.fault(from_ms, What::Cut { from, to }, until_ms, What::Heal { from, to });
        }
    }

    /// Now that all faults are known: how long the load lasts, and when all is calm. To be called before load is added.
    pub fn set_end(&mut self) {
        let faults_ms = self.faults_until_ms;
        if faults_ms == 0 {
            self.schedule.calm_ms = self.schedule.load_until_ms;
            return;
        }
        self.schedule.calm_ms = faults_ms;
        let over_ms = Reach::new(&self.schedule).over_ms().max(faults_ms);
        self.schedule.load_until_ms = self.schedule.load_until_ms.max(over_ms + LOAD_AFTER_MS);
        self.schedule.calm_ms = self.schedule.load_until_ms;
        self.schedule.settle_ms = 2_000;
    }

    /// The schedule.
    pub fn done(mut self) -> Schedule {
        self.schedule.sort();
        self.schedule
    }
}
