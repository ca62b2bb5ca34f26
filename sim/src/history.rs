//! What happened in a run, as the oracle knows it: every request in true time, and what every node held when. Pure
//! data: both tiers make it, and so can a test by hand.

use std::sync::OnceLock;

use tidegate::algorithms::Verdict;
use tidegate::limits::{Limit, Retention, Shape};
use tidegate::node::Sizes;

use crate::model::{Rule, Spend};
use crate::reach::{Reach, cuts};
use crate::schedule::{Event, Operation, Schedule, What};
use crate::states::{Sometimes, States};

const MS: u64 = 1_000_000;

/// Everything known of a run.
#[derive(Debug)]
pub struct History {
    /// What was to happen.
    pub schedule: Schedule,
    /// What is promised in it.
    pub reach: Reach,
    /// True time when the run began, nanoseconds since the Unix epoch.
    pub epoch_ns: u64,
    /// The limits as they were at first.
    pub limits: Vec<Limit>,
    /// How long nodes keep slots.
    pub retention: Retention,
    /// When each life began.
    pub lives: Vec<LifeStart>,
    /// Every request, in the order of sending.
    pub requests: Vec<Request>,
    /// Every look at a node's state, in the order of time.
    pub probes: Vec<Probe>,
    /// The trials of `remaining` and `retry_after`.
    pub trials: Vec<Trial>,
    /// How each node stood once all was to be settled.
    pub settled: Vec<Standing>,
    /// What each node still held when everything had expired; empty when the run did not go on until then.
    pub expired: Vec<(usize, Sizes)>,
    /// Answers that are wrong by themselves, and strangers that were let in.
    pub wrong: Vec<String>,
    /// Which states were met.
    pub states: States,
    /// Looked up often; made when first asked for.
    pub rare: OnceLock<Rare>,
}

/// What is rare among the many events and requests of a run.
#[derive(Debug)]
pub struct Rare {
    /// Resets by key.
    resets: Vec<Vec<Request>>,
    /// Changes of limits: when in nanoseconds, at which node, which one, and what to.
    changes: Vec<(u64, usize, usize, Limit)>,
}

/// One life of one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Life {
    /// Index of the node.
    pub node: usize,
    /// From 0.
    pub number: u64,
}

/// When a life began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifeStart {
    /// Which.
    pub life: Life,
    /// True time, nanoseconds of the run.
    pub at_ns: u64,
    /// When its process began: a process may take a new id while it runs.
    pub process_ns: u64,
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
    /// What for.
    pub op: Operation,
    /// True time, nanoseconds of the run.
    pub sent_ns: u64,
    /// True time; `u64::MAX` while there is no answer.
    pub answered_ns: u64,
    /// The node's slot clock when it was sent.
    pub slot_from_ns: u64,
    /// The node's slot clock when it was answered; `u64::MAX` while there is no answer.
    pub slot_to_ns: u64,
    /// What the node would have answered when it was sent, by its own word.
    pub before: Verdict,
    /// The answer.
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Taken.
    Admitted,
    /// Not taken: too much was used.
    Denied,
    /// Not taken: the node's table of keys was full.
    TableFull,
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
    /// Up to when, by the slot clock, it knows all that a life spent, by its own word.
    pub complete_to: Vec<(Life, u64)>,
    /// How much it held.
    pub sizes: Sizes,
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

/// How a node stood once all was to be settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Index of the node.
    pub node: usize,
    /// Why it was not ready; None when it was.
    pub not_ready: Option<String>,
    /// What is wrong with its journal, by its own word.
    pub degraded: Option<String>,
    /// What it knew of each other node that it had ever met.
    pub peers: Vec<PeerStanding>,
}

/// What a node knew of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStanding {
    /// Index of the other.
    pub node: usize,
    /// Whether they were connected.
    pub connected: bool,
    /// Whether its clock was too far away, by this node's word.
    pub unreachable: bool,
    /// Own chunks that it had not acknowledged.
    pub backlog: u64,
    /// Limits that differ, by this node's word.
    pub limits_differ: Vec<String>,
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
    /// How long it then said to wait, nanoseconds; None: it went on admitting, or said never.
    pub retry_after_ns: Option<u64>,
    /// Whether it would have admitted the same a little before that time. None: the wait was too short to try.
    pub admitted_early: Option<bool>,
    /// Whether it admitted the same after that time.
    pub admitted_then: bool,
}

impl History {
    /// When all must be settled, nanoseconds of the run: the trials come after it.
    pub fn settled_ns(&self) -> u64 {
        self.schedule.settled_ms() * MS
    }

    /// The requests of the load, without those of the trials.
    pub fn load(&self) -> impl Iterator<Item = &Request> {
        let settled_ns = self.settled_ns();
        self.requests.iter().filter(move |request| request.sent_ns < settled_ns)
    }

    /// The limit of a key as it was at first.
    pub fn limit(&self, key: usize) -> &Limit {
        &self.limits[self.schedule.keys[key].limit]
    }

    /// The rule of a key as it was at first.
    pub fn rule(&self, key: usize) -> Rule {
        Rule::of(self.limit(key))
    }

    /// The limits that a key's node may have decided a request by: more than one where it changed meanwhile.
    pub fn limits_of(&self, request: &Request) -> Vec<Limit> {
        // A change is a matter of a few milliseconds of a run.
        const AROUND_NS: u64 = 5 * MS;
        let (from_ns, to_ns) =
            (request.sent_ns.saturating_sub(AROUND_NS), request.answered_ns.saturating_add(AROUND_NS));
        let of = self.schedule.keys[request.key].limit;
        let mut may = vec![self.limits[of].clone()];
        for (at_ns, node, limit, changed) in &self.rare().changes {
            if (*node, *limit) != (request.life.node, of) || *at_ns > to_ns {
                continue;
            }
            if *at_ns <= from_ns {
                may.clear();
            }
            may.push(changed.clone());
        }
        may
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(|| {
            let mut resets = vec![Vec::new(); self.schedule.keys.len()];
            for request in self.requests.iter().filter(|request| request.op == Operation::Reset) {
                resets[request.key].push(*request);
            }
            let change = |event: &Event| match &event.what {
                What::Limit { node, limit, spec } => Some((event.at_ms * MS, *node, *limit, spec.check().ok()?)),
                _ => None,
            };
            Rare { resets, changes: self.schedule.events.iter().filter_map(change).collect() }
        })
    }

    /// Whether a bucket of this key changes in the run: what nodes took between their instants may count once.
    pub fn changes_bucket(&self, key: usize) -> bool {
        let of = self.schedule.keys[key].limit;
        matches!(self.rule(key), Rule::Bucket { .. }) && self.rare().changes.iter().any(|change| change.2 == of)
    }

    /// Whether a spend may have been forgiven by a reset: one in its slot or a later one, of which its node did not know.
    pub fn may_be_forgiven(&self, request: &Request) -> bool {
        let shape = self.shape(request.key);
        self.resets(request.key).any(|reset| {
            // A reset names the newest slot counted: by the furthest clock.
            let slot = shape.slot(reset.slot_to_ns.saturating_add(self.clocks_apart_ns()));
            let known_ns = self.reach.due_ns(reset.life.node, request.life.node, reset.answered_ns).unwrap_or(u64::MAX);
            request.sent_ns <= known_ns && shape.slot(request.slot_from_ns) <= slot
        })
    }

    /// How far apart the clocks of the nodes ever are, about, nanoseconds.
    fn clocks_apart_ns(&self) -> u64 {
        let offsets = self.schedule.nodes.iter().map(|node| node.clock_offset_us * 1_000);
        let (most, least) = offsets.fold((0, 0), |(most, least), ns| (ns.max(most), ns.min(least)));
        let step = |event: &Event| match event.what {
            What::Step { by_ms, .. } => by_ms.unsigned_abs() * MS,
            _ => 0,
        };
        most.abs_diff(least) + self.schedule.events.iter().map(step).sum::<u64>() + 20 * MS
    }

    /// The resets of a key.
    pub fn resets(&self, key: usize) -> impl Iterator<Item = &Request> {
        self.rare().resets[key].iter()
    }

    /// Counts the states that only the whole of a run shows.
    pub fn tell_states(&mut self) {
        let nodes = self.schedule.nodes.len();
        let pairs = (0..nodes).flat_map(|a| (0..nodes).filter(move |b| *b != a).map(move |b| (a, b)));
        let cuts: Vec<_> =
            pairs.flat_map(|(a, b)| cuts(&self.schedule, a, b).into_iter().map(move |cut| (a, b, cut))).collect();
        let (mut denied, mut both) = (0, 0);
        for (a, b, (from_ms, until_ms)) in cuts {
            let within = |r: &&Request| r.decided() && (from_ms * MS..until_ms * MS).contains(&r.sent_ns);
            let mut admitted = vec![[false; 2]; self.schedule.keys.len()];
            for request in self.requests.iter().filter(within) {
                let side = [a, b].iter().position(|node| *node == request.life.node);
                denied += u64::from(side.is_some() && request.outcome == Outcome::Denied);
                if let Some(side) = side.filter(|_| request.outcome == Outcome::Admitted) {
                    admitted[request.key][side] = true;
                }
            }
            both += admitted.iter().filter(|sides| **sides == [true; 2]).count() as u64;
        }
        let unanswered = self.requests.iter().filter(|request| request.outcome == Outcome::Unknown).count() as u64;
        self.states.add_to(Sometimes::DeniedInCut, denied);
        self.states.add_to(Sometimes::AdmittedOnBothSides, both);
        self.states.add_to(Sometimes::UnderWay, unanswered);
    }

    /// How the state of a key is addressed at first.
    pub fn shape(&self, key: usize) -> Shape {
        self.limit(key).shape()
    }

    /// When a life began; what `process_ns` tells, for what must be heard again.
    pub fn process_start_ns(&self, life: Life) -> u64 {
        self.lives.iter().find(|start| start.life == life).map_or(0, |start| start.process_ns)
    }

    /// When a spend must be known to another life at the latest, nanoseconds of the run: a while after it was answered,
    /// or after the two could hear each other again. None: it may be lost, with the node that took it.
    pub fn due_ns(&self, spend: &Request, at: Life) -> Option<u64> {
        if spend.life == at {
            return Some(spend.answered_ns);
        }
        if self.reach.may_be_lost(spend.life.node, spend.answered_ns) {
            return None;
        }
        let due_ns = self.reach.due_ns(spend.life.node, at.node, spend.answered_ns)?;
        // What the node knew before it died it may have to hear again.
        Some(due_ns.max(self.reach.caught_up_ns(at.node, self.process_start_ns(at))))
    }

    /// `limit/key`, for messages.
    pub fn key_name(&self, key: usize) -> String {
        let plan = &self.schedule.keys[key];
        format!("{}/{}", self.schedule.limits[plan.limit].name, plan.key)
    }

    /// A cell as a node held it, for messages.
    pub fn cell_name(&self, cell: &HeldCell) -> String {
        let (of, key) = (self.life_name(cell.life), self.key_name(cell.key));
        format!("{} of {of} for {key} in slot {}", cell.spent, cell.slot)
    }

    /// What was asked of whom, for messages: `node VERB cost of key sent at ..`.
    pub fn request_name(&self, request: &Request, verb: &str) -> String {
        let (node, key) = (self.life_name(request.life), self.key_name(request.key));
        format!("{node} {verb} {} of {key} sent at {} ms", request.cost, request.sent_ns / MS)
    }

    /// The name of a node.
    pub fn node_name(&self, node: usize) -> &str {
        &self.schedule.nodes[node].name
    }

    /// The name of a node, with the number of the life where it is not the first.
    pub fn life_name(&self, life: Life) -> String {
        let name = self.node_name(life.node);
        if life.number == 0 { name.to_owned() } else { format!("{name} in life {}", life.number + 1) }
    }
}

impl Request {
    /// Whether tokens may have been taken.
    pub fn took(&self) -> bool {
        matches!(self.outcome, Outcome::Admitted | Outcome::Unknown) && self.op != Operation::Reset
    }

    /// Whether tokens were taken for certain.
    pub fn surely_took(&self) -> bool {
        self.outcome == Outcome::Admitted && self.op != Operation::Reset
    }

    /// Whether it was decided: a check that was answered.
    pub fn decided(&self) -> bool {
        self.op == Operation::Check && matches!(self.outcome, Outcome::Admitted | Outcome::Denied)
    }

    /// The spend, placed as early as it can have been.
    pub fn earliest(&self) -> Spend {
        Spend { at_ns: self.slot_from_ns, tokens: self.cost }
    }

    /// The spend, placed as late as it can have been, but not after `now_ns` unless it was so for certain.
    pub fn latest(&self, now_ns: u64) -> Spend {
        Spend { at_ns: self.slot_to_ns.min(now_ns.max(self.slot_from_ns)), tokens: self.cost }
    }
}
