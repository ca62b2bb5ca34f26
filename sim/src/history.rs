//! What happened in a run, as the oracle knows it: every request in true time, and what every node held when. Pure
//! data: the checks read it, and so can a history that something else made, such as an event queue driving the state
//! machines without sockets, or a test by hand.

use tidegate::algorithms::Wait;
use tidegate::limits::{Algorithm, Limit, Retention, Shape};

use crate::model::{Rule, Spend};
use crate::scenario::{Scenario, What};

/// Everything known of a run.
#[derive(Debug)]
pub struct History {
    /// What was to happen.
    pub scenario: Scenario,
    /// True time when the run began, nanoseconds since the Unix epoch.
    pub epoch_ns: u64,
    /// The limit of each key of the scenario.
    pub limits: Vec<Limit>,
    /// How long nodes keep slots.
    pub retention: Retention,
    /// Every request, in the order of sending.
    pub requests: Vec<Request>,
    /// Every look at a node's state, in the order of time.
    pub probes: Vec<Probe>,
    /// The trials of `remaining` and `retry_after`.
    pub trials: Vec<Trial>,
    /// Answers that are wrong by themselves.
    pub bad_answers: Vec<String>,
}

/// One life of one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Life {
    /// Index of the node.
    pub node: usize,
    /// From 0.
    pub number: u64,
}

/// One request. It was decided at some instant between its being sent and answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Who was asked.
    pub life: Life,
    /// Index of the key.
    pub key: usize,
    /// Tokens.
    pub cost: u64,
    /// True time, nanoseconds of the run.
    pub sent_ns: u64,
    /// True time; `u64::MAX` while there is no answer.
    pub answered_ns: u64,
    /// The node's slot clock when it was sent.
    pub slot_from_ns: u64,
    /// The node's slot clock when it was answered; `u64::MAX` while there is no answer.
    pub slot_to_ns: u64,
    /// What the node would have answered when it was sent, by its own word.
    pub before: Wait,
    /// The answer.
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Taken.
    Admitted,
    /// Not taken.
    Denied,
    /// No answer: the node died. It may have been taken.
    Unknown,
}

/// What one node held at one instant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// True time, nanoseconds of the run.
    pub at_ns: u64,
    /// Which node.
    pub life: Life,
    /// Its slot clock.
    pub slot_now_ns: u64,
    /// Its cells, in order.
    pub cells: Vec<HeldCell>,
}

/// A cell as a node holds it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HeldCell {
    /// Index of the key.
    pub key: usize,
    /// The slot.
    pub slot: u64,
    /// Whose.
    pub life: Life,
    /// Tokens.
    pub spent: u64,
}

/// `remaining` and `retry_after` tried on one key, with nothing else arriving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trial {
    /// Where.
    pub node: usize,
    /// Index of the key.
    pub key: usize,
    /// What the node said would be admitted.
    pub remaining: u64,
    /// How many of those it admitted.
    pub admitted: u64,
    /// How long it then said to wait; None: it went on admitting, or said never.
    pub retry_after_ms: Option<u64>,
    /// Whether it would have admitted the same a little before that time. None: the wait was too short to try.
    pub admitted_early: Option<bool>,
    /// Whether it admitted the same after that time.
    pub admitted_then: bool,
}

impl History {
    /// When all must be settled, nanoseconds of the run: the trials come after it.
    pub fn settled_ns(&self) -> u64 {
        (self.scenario.calm_from_ms() + self.scenario.settle_ms) * 1_000_000
    }

    /// The requests of the load, without those of the trials.
    pub fn load(&self) -> impl Iterator<Item = &Request> {
        let settled_ns = self.settled_ns();
        self.requests.iter().filter(move |request| request.sent_ns < settled_ns)
    }

    /// The rule of a key.
    pub fn rule(&self, key: usize) -> Rule {
        let limit = &self.limits[key];
        let (tokens, window_ns) = (limit.limit, limit.window_ns);
        match limit.algorithm {
            Algorithm::FixedWindow => Rule::Fixed { limit: tokens, window_ns },
            Algorithm::SlidingWindow => Rule::Sliding { limit: tokens, window_ns },
            Algorithm::TokenBucket => Rule::Bucket { limit: tokens, window_ns, capacity: limit.capacity() },
        }
    }

    /// How the state of a key is addressed.
    pub fn shape(&self, key: usize) -> Shape {
        self.limits[key].shape()
    }

    /// `limit/key`, for messages.
    pub fn key_name(&self, key: usize) -> String {
        format!("{}/{}", self.scenario.keys[key].limit.name, self.scenario.keys[key].key)
    }

    /// A cell as a node held it, for messages.
    pub fn cell_name(&self, cell: &HeldCell) -> String {
        let (of, key) = (self.node_name(cell.life.node), self.key_name(cell.key));
        format!("{} of {of} for {key} in slot {}", cell.spent, cell.slot)
    }

    /// What was asked of whom, for messages: `node VERB cost of key sent at ..`.
    pub fn request_name(&self, request: &Request, verb: &str) -> String {
        let (node, key) = (self.node_name(request.life.node), self.key_name(request.key));
        format!("{node} {verb} {} of {key} sent at {} ms", request.cost, request.sent_ns / 1_000_000)
    }

    /// The name of a node.
    pub fn node_name(&self, node: usize) -> &'static str {
        self.scenario.nodes[node].name
    }

    /// When a spend must be known at another node at the latest, nanoseconds of the run: a while after it was answered,
    /// or after the two could hear each other again. None: it may be lost, with the node that took it.
    pub fn due_ns(&self, spend: &Request, at: Life) -> Option<u64> {
        const MS: u64 = 1_000_000;
        let (from, to) = (spend.life.node, at.node);
        let reach_ns = if from == to { 0 } else { self.scenario.reach_ms(from, to) * MS };
        let mut due_ns = spend.answered_ns.saturating_add(reach_ns);
        for (node, what, begin_ns, end_ns) in self.troubles() {
            let rejoined_ns = end_ns + crate::scenario::REJOIN_MS * MS + reach_ns;
            let meets = |from_ns: u64| spend.answered_ns < rejoined_ns && due_ns > from_ns;
            match what {
                What::Crash(_) if node == from && meets(begin_ns) && spend.answered_ns <= begin_ns => return None,
                // What the node knew before it died it may have to hear again.
                What::Crash(_) if node == to && spend.answered_ns < rejoined_ns && at.number > 0 => {
                    due_ns = due_ns.max(rejoined_ns);
                }
                _ if from != to && (node == from || node == to) && meets(begin_ns) => due_ns = due_ns.max(rejoined_ns),
                _ => {}
            }
        }
        Some(due_ns)
    }

    /// (node, how it began, begin, end) of every time in which a node is cut off or down; nanoseconds of the run.
    fn troubles(&self) -> impl Iterator<Item = (usize, What, u64, u64)> {
        const MS: u64 = 1_000_000;
        let faults = &self.scenario.faults;
        faults.iter().enumerate().filter_map(move |(at, fault)| {
            let (What::Cut(node) | What::Crash(node)) = fault.what else { return None };
            let ends =
                |later: &&crate::scenario::Fault| matches!(later.what, What::Heal(n) | What::Start(n) if n == node);
            let end_ms = faults[at..].iter().find(ends).map_or(u64::MAX / MS / 2, |later| later.at_ms);
            Some((node, fault.what, fault.at_ms * MS, end_ms * MS))
        })
    }
}

impl Request {
    /// The spend, placed as early as it can have been.
    pub fn earliest(&self) -> Spend {
        Spend { at_ns: self.slot_from_ns, tokens: self.cost }
    }

    /// The spend, placed as late as it can have been, but not after `now_ns` unless it was so for certain.
    pub fn latest(&self, now_ns: u64) -> Spend {
        Spend { at_ns: self.slot_to_ns.min(now_ns.max(self.slot_from_ns)), tokens: self.cost }
    }
}
