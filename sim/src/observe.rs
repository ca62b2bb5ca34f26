//! Writes down what happens in a run, in either tier: requests, looks at nodes' states, and which life of a node is which.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tidegate::crdt::ReplicaIx;
use tidegate::engine::Engine;
use tidegate::id::ReplicaId;
use tidegate::limits::{Limit, Retention, Shape};
use tidegate::node::Inspector;

use crate::history::{HeldCell, History, Life, LifeStart, Outcome, PeerStanding, Probe, Request, Standing, Trial};
use crate::reach::Reach;
use crate::schedule::Schedule;
use crate::states::{Sometimes, States};
use crate::trace::Trace;

/// Collects what happens on all nodes of a run. Clones share it.
#[derive(Clone)]
pub struct Record {
    trace: Trace,
    /// Limit, key, and the shape that its cells have at first.
    keys: Arc<[(String, String, Shape)]>,
    nodes: Arc<[String]>,
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
    /// How nodes stood at the end.
    pub settled: Vec<Standing>,
    /// Answers that are wrong by themselves.
    pub wrong: Vec<String>,
    /// States that were met.
    pub states: States,
    /// The lives of each node, in the order in which they were met.
    lives: Vec<(ReplicaId, LifeStart)>,
}

impl Record {
    /// Nothing yet.
    pub fn new(schedule: &Schedule, limits: &[Limit], trace: Trace) -> Self {
        let keys = schedule.keys.iter().map(|plan| {
            let limit = &limits[plan.limit];
            (limit.name.to_string(), plan.key.clone(), limit.shape())
        });
        let nodes = schedule.nodes.iter().map(|node| node.name.clone()).collect();
        Self { trace, keys: keys.collect(), nodes, seen: Arc::default() }
    }

    /// What was collected so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("a simulation is one thread, and ends with the first panic")
    }

    /// The run is over: all that is known of it.
    pub fn into_history(self, schedule: Schedule, limits: Vec<Limit>, epoch_ns: u64) -> History {
        let seen = std::mem::take(&mut *self.seen());
        History {
            reach: Reach::new(&schedule),
            schedule,
            epoch_ns,
            limits,
            retention: Retention::default(),
            lives: seen.lives.into_iter().map(|life| life.1).collect(),
            requests: seen.requests,
            probes: seen.probes,
            trials: seen.trials,
            settled: seen.settled,
            expired: Vec::new(),
            wrong: seen.wrong,
            states: seen.states,
            rare: OnceLock::new(),
        }
    }

    /// A process begins, under this id.
    pub fn begins(&self, replica: &ReplicaId, at_ns: u64) -> Life {
        self.enter(replica, at_ns, at_ns)
    }

    /// Which life of which node writes under an id. One that was not met before was taken by a running process.
    pub fn life(&self, replica: &ReplicaId, at_ns: u64) -> Life {
        let known = self.seen().lives.iter().find(|known| known.0 == *replica).map(|known| known.1.life);
        known.unwrap_or_else(|| {
            let process_ns = {
                let seen = self.seen();
                let before = seen.lives.iter().rfind(|known| known.0.node == replica.node);
                before.map_or(at_ns, |before| before.1.process_ns)
            };
            self.enter(replica, at_ns, process_ns)
        })
    }

    fn enter(&self, replica: &ReplicaId, at_ns: u64, process_ns: u64) -> Life {
        let node = self.nodes.iter().position(|name| *name == replica.node.as_str());
        let node = node.expect("cells are written by nodes of the schedule");
        let mut seen = self.seen();
        let number = seen.lives.iter().filter(|known| known.1.life.node == node).count() as u64;
        let life = Life { node, number };
        seen.lives.push((replica.clone(), LifeStart { life, at_ns, process_ns }));
        life
    }

    /// A state was met.
    pub fn hit(&self, state: Sometimes) {
        self.seen().states.hit(state);
    }

    /// A request is sent. Returns its number.
    pub fn sent(&self, request: Request) -> usize {
        let numbers = [request.key as u64, request.cost, request.op as u64, request.life.number, request.slot_from_ns];
        self.event(request.sent_ns, request.life.node, "ask", &numbers);
        let mut seen = self.seen();
        seen.requests.push(request);
        seen.requests.len() - 1
    }

    /// Its answer came.
    pub fn answered(&self, request: usize, outcome: Outcome, at_ns: u64, slot_to_ns: u64, remaining: u64) {
        let (node, key) = {
            let mut seen = self.seen();
            let request = &mut seen.requests[request];
            (request.answered_ns, request.slot_to_ns, request.outcome) = (at_ns, slot_to_ns, outcome);
            (request.life.node, request.key)
        };
        self.event(at_ns, node, "answer", &[key as u64, outcome as u64, remaining, slot_to_ns]);
    }

    /// Something is wrong by itself: an answer, or a stranger that was let in.
    pub fn wrong(&self, at_ns: u64, node: usize, what: &str) {
        self.event(at_ns, node, what, &[]);
        self.seen().wrong.push(format!("{} at {} ms: {what}", self.nodes[node], at_ns / 1_000_000));
    }

    /// A trial came to an end.
    pub fn tried(&self, trial: Trial) {
        self.seen().trials.push(trial);
    }

    /// Looks at the state of a node.
    pub fn look(&self, node: &Inspector, at_ns: u64) {
        let slot_now_ns = node.now().slot_ns;
        let life = self.life(&node.engine().own(), at_ns);
        let mut cells = self.cells(node.engine(), at_ns);
        cells.sort_unstable();
        let numbers: Vec<u64> = cells
            .iter()
            .flat_map(|cell| [cell.key as u64, cell.slot, cell.life.node as u64, cell.life.number, cell.spent])
            .chain([slot_now_ns])
            .collect();
        self.event(at_ns, life.node, "state", &numbers);
        let complete_to = node.complete_to().into_iter();
        let complete_to = complete_to.map(|(replica, upto_ns)| (self.life(&replica, at_ns), upto_ns)).collect();
        let sizes = node.sizes();
        self.seen().probes.push(Probe { at_ns, life, slot_now_ns, cells, complete_to, sizes });
    }

    /// Counts the states that a node tells of itself.
    pub fn tell(&self, node: &Inspector) {
        let (peers, journal, stats) = (node.peers(), node.journal(), node.engine().stats());
        let mut seen = self.seen();
        seen.states.hit_if(peers.iter().any(|peer| peer.unreachable), Sometimes::BeyondSkew);
        seen.states.hit_if(peers.iter().any(|peer| peer.refused_ahead > 0), Sometimes::TooFarAhead);
        seen.states.hit_if(journal.degraded.is_some(), Sometimes::JournalDegraded);
        seen.states.hit_if(journal.rewrites > 0, Sometimes::JournalRewritten);
        seen.states.hit_if(stats.refused_cells > 0, Sometimes::CellsRefused);
        seen.states.hit_if(stats.expired_on_arrival > 0, Sometimes::ExpiredOnArrival);
    }

    /// How a node stands, now that all is to be settled.
    pub fn settled(&self, node: usize, inspector: &Inspector) {
        let peers = inspector.peers().into_iter().filter_map(|peer| {
            let node = self.nodes.iter().position(|name| *name == peer.replica.node.as_str())?;
            let (connected, unreachable, backlog) = (peer.connected, peer.unreachable, peer.backlog);
            Some(PeerStanding { node, connected, unreachable, backlog, limits_differ: peer.limits_differ })
        });
        let (not_ready, degraded) = (inspector.why_not_ready(), inspector.journal().degraded);
        self.seen().settled.push(Standing { node, not_ready, degraded, peers: peers.collect() });
    }

    fn cells(&self, engine: &Engine, at_ns: u64) -> Vec<HeldCell> {
        let mut held = Vec::new();
        for (key, (limit, text, shape)) in self.keys.iter().enumerate() {
            let of = engine.cells_of(limit, text).expect("the keys of a schedule are good");
            if of.shape != *shape {
                continue;
            }
            let lives: Vec<(ReplicaIx, Life)> =
                of.replicas.iter().map(|(ix, id)| (*ix, self.life(id, at_ns))).collect();
            let life = |ix: ReplicaIx| lives.iter().find(|known| known.0 == ix).map(|known| known.1);
            held.extend(of.cells.iter().filter_map(|cell| {
                Some(HeldCell { key, slot: cell.slot, life: life(cell.replica)?, spent: cell.cell.spent })
            }));
        }
        held
    }

    /// Something happened on a node.
    pub fn event(&self, at_ns: u64, node: usize, what: &str, numbers: &[u64]) {
        self.trace.event(at_ns, &self.nodes[node], what, numbers);
    }
}
