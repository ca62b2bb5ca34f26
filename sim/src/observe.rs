//! What a run leaves behind: collects requests, looks at nodes' states, and knows which life of a node is which.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tidegate::engine::{Engine, ExportCursor};
use tidegate::id::{KeyHash, ReplicaId, Secret};
use tidegate::limits::{Limit, Shape};
use tidegate::time::SlotClock;

use crate::clock::elapsed_ns;
use crate::history::{HeldCell, Life, Outcome, Probe, Request, Trial};
use crate::scenario::Scenario;
use crate::trace::Trace;

/// Collects what happens on all hosts of a run. Clones share it.
#[derive(Clone)]
pub struct Record {
    trace: Trace,
    keys: Arc<HashMap<KeyHash, (usize, Shape)>>,
    nodes: Arc<[&'static str]>,
    seen: Arc<Mutex<Seen>>,
}

/// What was collected.
#[derive(Debug, Default)]
pub struct Seen {
    /// Every request, in the order of sending.
    pub requests: Vec<Request>,
    /// Every look at a node's state.
    pub probes: Vec<Probe>,
    /// Trials that came to an end.
    pub trials: Vec<Trial>,
    /// Answers that are wrong by themselves.
    pub bad_answers: Vec<String>,
    /// The lives of each node, in the order in which they were met.
    lives: Vec<(ReplicaId, Life)>,
}

/// A node as its host sees it.
#[derive(Clone)]
pub struct Observed {
    /// Its state.
    pub engine: Arc<Engine>,
    /// Its slot clock.
    pub slot_clock: Arc<SlotClock>,
}

impl Observed {
    /// The slot clock now. Only on the node's own host.
    pub fn slot_now_ns(&self) -> u64 {
        self.slot_clock.now(elapsed_ns())
    }
}

impl Record {
    /// Nothing yet.
    pub fn new(scenario: &Scenario, limits: &[Limit], secret: &Secret, trace: Trace) -> Self {
        let hash = |limit: &Limit, key: &str| secret.key_hasher(limit.name.as_str()).hash(key);
        let keys = scenario.keys.iter().zip(limits).enumerate();
        let keys = keys.map(|(at, (plan, limit))| (hash(limit, &plan.key), (at, limit.shape()))).collect();
        let nodes = scenario.nodes.iter().map(|node| node.name).collect();
        Self { trace, keys: Arc::new(keys), nodes, seen: Arc::default() }
    }

    /// What was collected so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("a simulation is one thread, and ends with the first panic")
    }

    /// Which life of which node writes under an id.
    pub fn life(&self, replica: &ReplicaId) -> Life {
        let mut seen = self.seen();
        if let Some((_, life)) = seen.lives.iter().find(|known| known.0 == *replica) {
            return *life;
        }
        let node = self.nodes.iter().position(|name| *name == replica.node.as_str());
        let node = node.expect("cells are written by nodes of the scenario");
        let number = seen.lives.iter().filter(|known| known.1.node == node).count() as u64;
        let life = Life { node, number };
        seen.lives.push((replica.clone(), life));
        life
    }

    /// A request is sent. Returns its number.
    pub fn sent(&self, request: Request) -> usize {
        let numbers = [request.key as u64, request.cost, request.life.number, request.slot_from_ns];
        self.event(request.life.node, "ask", &numbers);
        let mut seen = self.seen();
        seen.requests.push(request);
        seen.requests.len() - 1
    }

    /// Its answer came.
    pub fn answered(&self, request: usize, outcome: Outcome, slot_to_ns: u64, remaining: u64) {
        let (node, key) = {
            let mut seen = self.seen();
            let request = &mut seen.requests[request];
            (request.answered_ns, request.slot_to_ns, request.outcome) = (elapsed_ns(), slot_to_ns, outcome);
            (request.life.node, request.key)
        };
        let numbers = [key as u64, u64::from(outcome == Outcome::Admitted), remaining, slot_to_ns];
        self.event(node, "answer", &numbers);
    }

    /// An answer is wrong by itself.
    pub fn bad_answer(&self, node: usize, what: String) {
        self.event(node, &what, &[]);
        self.seen().bad_answers.push(format!("{} at {} ms: {what}", self.nodes[node], elapsed_ns() / 1_000_000));
    }

    /// A trial came to an end.
    pub fn tried(&self, trial: Trial) {
        self.seen().trials.push(trial);
    }

    /// Looks at the state of a node, on its own host.
    pub fn look(&self, node: &Observed) {
        let slot_now_ns = node.slot_now_ns();
        let life = self.life(&node.engine.own());
        let mut cells = self.cells(&node.engine, slot_now_ns);
        cells.sort_unstable();
        let numbers: Vec<u64> = cells
            .iter()
            .flat_map(|cell| [cell.key as u64, cell.slot, cell.life.node as u64, cell.life.number, cell.spent])
            .chain([slot_now_ns])
            .collect();
        self.event(life.node, "state", &numbers);
        self.seen().probes.push(Probe { at_ns: elapsed_ns(), life, slot_now_ns, cells });
    }

    fn cells(&self, engine: &Engine, slot_now_ns: u64) -> Vec<HeldCell> {
        let mut held = Vec::new();
        let mut next = Some(ExportCursor::default());
        while let Some(cursor) = next {
            let piece = engine.export(slot_now_ns, cursor, None);
            next = piece.next;
            for (replica, part) in piece.parts {
                let life = self.life(&replica);
                let cells = part.groups.iter().flat_map(|group| group.cells.iter().map(|cell| (&group.shape, cell)));
                held.extend(cells.filter_map(|(shape, cell)| {
                    let (key, of) = self.keys.get(&cell.key)?;
                    (of == shape).then_some(HeldCell { key: *key, slot: cell.slot, life, spent: cell.cell.spent })
                }));
            }
        }
        held
    }

    fn event(&self, node: usize, what: &str, numbers: &[u64]) {
        self.trace.event(elapsed_ns(), self.nodes[node], what, numbers);
    }
}
