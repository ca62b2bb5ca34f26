//! The run: takes what is due from the queue, moves time, and lets it happen.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate::cert::Authority;
use tidegate::id::{NodeName, Secret};
use tidegate::limits::Limit;
use tidegate::time::MS;
use tidegate::transport::Identity;

use super::clients::Waiting;
use super::machine::{Machine, TrueTime};
use super::queue::Queue;
use super::wires::{Dialer, Payload, Wires};
use crate::observe::Record;
use crate::run::{EPOCH, Run, Tier, Traffic};
use crate::schedule::{DiskState, Schedule, Weather, What};
use crate::seed::Seed;
use crate::states::Sometimes;
use crate::trace::Trace;

/// How often each node's state is looked at in a run of a few seconds, nanoseconds.
const LOOK_NS: u64 = 50 * MS;
/// Looks at a node in a run at most: longer runs are looked at less often.
const MOST_LOOKS: u64 = 400;
/// After this all that short limits count has expired, nanoseconds.
pub const EXPIRED_AFTER_NS: u64 = 40_000 * MS;

/// What is due.
#[derive(Debug)]
pub enum Due {
    /// An event of the schedule, by index.
    Event(usize),
    /// Everything is well again.
    Calm,
    /// Of a node's process: (node, start).
    Flush(usize, u64),
    Urged(usize, u64),
    Tick(usize, u64),
    Second(usize, u64),
    Journal(usize, u64),
    /// A process that did not start.
    Restart(usize),
    /// Nodes are looked at.
    Look,
    /// A node dials another, for the n-th time since it began.
    Dial(Attempt),
    /// TLS is done: the dialer says hello to that process.
    Greet(Attempt, u64),
    /// The hello arrives at that process.
    Greeted(Attempt, u64, Vec<u8>),
    /// Something arrives at a side of a connection.
    Arrives {
        wire: u64,
        side: usize,
        payload: Payload,
    },
    /// A node writes what it has.
    Pump(usize, u64),
    /// The trials begin, and go on.
    Trials,
    Trial(usize),
    /// The end.
    End,
}

/// A node's process dialing another node.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub node: usize,
    /// Which of its processes.
    pub start: u64,
    pub to: usize,
    pub began_ns: u64,
    /// How often it was tried since it began.
    pub tries: usize,
}

/// A run.
pub struct World {
    pub schedule: Arc<Schedule>,
    pub now_ns: u64,
    pub queue: Queue<Due>,
    pub machines: Vec<Machine>,
    pub record: Record,
    /// Trials that wait, and how many of them do.
    pub waiting: Vec<Waiting>,
    pub open_trials: usize,
    true_time: TrueTime,
    pub wires: Wires,
    /// By `node * nodes + to`.
    pub dialers: Vec<Dialer>,
    /// What waits for a machine that stands still.
    pub deferred: Vec<Vec<Due>>,
    pub rng: StdRng,
    pub last_conn: u64,
    pub traffic: Traffic,
    look_ns: u64,
}

/// Runs a schedule to its end.
///
/// # Errors
/// When the schedule's limits are not valid.
pub fn run(schedule: Schedule, trace: Trace) -> anyhow::Result<Run> {
    let limits = schedule.checked_limits().context("the schedule's limits")?;
    let secret = Secret(Seed(schedule.seed).rng("secret").random());
    let record = Record::new(&schedule, &limits, trace.clone());
    let schedule = Arc::new(schedule);
    let mut world = World::new(&schedule, &limits, &secret, record.clone());
    world.go();
    let (simulated_ms, traffic, expired) = (world.now_ns / MS, world.traffic, world.expired());
    drop(world);
    let mut history = record.into_history(Schedule::clone(&schedule), limits, EPOCH.as_nanos() as u64);
    history.expired = expired;
    Ok(Run { tier: Tier::Protocol, history, traffic, trace_hash: trace.hash(), simulated_ms })
}

/// The body of a node does not use its certificate: one does for all.
fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let (mut rng, now_ns) = (StdRng::seed_from_u64(1), EPOCH.as_nanos() as u64);
        let authority = Authority::generate(&mut rng, now_ns).expect("a generator makes certificates");
        let name = NodeName::new("any").expect("a good name");
        let issued = authority.issue(&name, &[], &mut rng, now_ns).expect("an authority issues certificates");
        let pem = [&authority.cert_pem, &issued.cert_pem, &issued.key_pem].map(|pem| pem.as_bytes());
        Identity::from_pem(pem[0], pem[1], pem[2]).expect("its own certificates are good")
    })
}

impl World {
    fn new(schedule: &Arc<Schedule>, limits: &[Limit], secret: &Secret, record: Record) -> Self {
        let (nodes, true_time) = (schedule.nodes.len(), TrueTime::default());
        let epoch_ns = EPOCH.as_nanos() as u64;
        let machine = |node| Machine::new(schedule, node, limits, secret, identity(), &true_time, epoch_ns);
        let seed = Seed(schedule.seed);
        Self {
            machines: (0..nodes).map(machine).collect(),
            schedule: Arc::clone(schedule),
            now_ns: 0,
            queue: Queue::new(),
            record,
            waiting: Vec::new(),
            open_trials: 0,
            true_time,
            wires: Wires::new(nodes, seed.rng("wires")),
            dialers: vec![Dialer::new(); nodes * nodes],
            deferred: (0..nodes).map(|_| Vec::new()).collect(),
            rng: seed.rng("world"),
            last_conn: 0,
            traffic: Traffic::default(),
            look_ns: LOOK_NS.max(schedule.settled_ms() * MS / MOST_LOOKS),
        }
    }

    fn go(&mut self) {
        for at in 0..self.schedule.events.len() {
            self.queue.push(self.schedule.events[at].at_ms * MS, Due::Event(at));
        }
        let settled_ns = self.schedule.settled_ms() * MS;
        self.queue.push(self.schedule.calm_ms * MS, Due::Calm);
        for node in 0..self.machines.len() {
            self.start(node, DiskState::Kept);
        }
        self.queue.push(self.look_ns, Due::Look);
        self.queue.push(settled_ns, Due::Trials);
        while let Some((at_ns, due)) = self.queue.pop() {
            self.now_ns = at_ns;
            self.true_time.store(at_ns, Ordering::Relaxed);
            if matches!(due, Due::End) {
                return;
            }
            self.happen(due);
        }
    }

    fn happen(&mut self, due: Due) {
        let Some(due) = self.unless_paused(due) else { return };
        match due {
            Due::Event(at) => {
                let what = self.schedule.events[at].what.clone();
                self.event(&what);
            }
            Due::Calm => self.calm(),
            Due::Flush(node, start) => self.timed_flush(node, start),
            Due::Urged(node, start) => {
                if self.runs(node, start) && self.machines[node].process.as_ref().is_some_and(|p| p.urged_ns.is_some())
                {
                    self.record.hit(Sometimes::EarlyFlush);
                    self.flush(node);
                }
            }
            Due::Tick(node, start) => self.tick(node, start),
            Due::Second(node, start) => self.second(node, start),
            Due::Journal(node, start) => self.journal(node, start),
            Due::Restart(node) => {
                if self.machines[node].process.is_none() {
                    self.start(node, DiskState::Kept);
                }
            }
            Due::Look => self.look(),
            Due::Dial(attempt) => self.dial(attempt),
            Due::Greet(attempt, to_start) => self.greet(attempt, to_start),
            Due::Greeted(attempt, to_start, hello) => self.greeted(attempt, to_start, &hello),
            Due::Arrives { wire, side, payload } => self.arrives(wire, side, payload),
            Due::Pump(node, start) => {
                if self.runs(node, start) {
                    self.pump(node);
                }
            }
            Due::Trials => self.begin_trials(),
            Due::Trial(at) => self.go_on_with_trial(at),
            Due::End => {}
        }
    }

    /// What is due on a machine that stands still is due when it goes on.
    fn unless_paused(&mut self, due: Due) -> Option<Due> {
        let node = match &due {
            Due::Flush(node, _) | Due::Urged(node, _) | Due::Tick(node, _) | Due::Second(node, _) => Some(*node),
            Due::Journal(node, _) | Due::Pump(node, _) => Some(*node),
            Due::Dial(attempt) | Due::Greet(attempt, _) => Some(attempt.node),
            Due::Greeted(attempt, ..) => Some(attempt.to),
            Due::Arrives { wire, side, .. } => self.wires.all.get(wire).map(|wire| wire.ends[*side].node),
            _ => None,
        };
        match node.filter(|node| self.machines[*node].paused_at_ns.is_some()) {
            Some(node) => {
                self.deferred[node].push(due);
                None
            }
            None => Some(due),
        }
    }

    /// Whether the process that was meant runs.
    pub fn runs(&self, node: usize, start: u64) -> bool {
        let machine = &self.machines[node];
        machine.starts == start && machine.awake().is_some()
    }

    fn event(&mut self, what: &What) {
        match what {
            What::Ask(ask) => self.ask(ask),
            What::Cut { from, to } => self.wires.set_cut(*from, *to, true),
            What::Heal { from, to } => self.heal(*from, *to),
            What::Weather(weather) => self.wires.set_weather(*weather, self.next_weather_ns()),
            What::Crash { node } => self.crash(*node),
            What::Start { node, disk } => {
                if self.machines[*node].process.is_none() {
                    self.start(*node, *disk);
                }
            }
            What::Copy { node } => self.machines[*node].copy_disk(),
            What::Disk { node, fault } => self.machines[*node].set_disk(*fault),
            What::Damage { node, records } => {
                if self.machines[*node].process.is_none() {
                    self.machines[*node].damage(*records, &mut self.rng);
                }
            }
            // The clock knows its steps.
            What::Step { .. } => {}
            What::Pause { node } => {
                let machine = &mut self.machines[*node];
                if machine.awake().is_some() {
                    machine.paused_at_ns = Some(self.now_ns);
                }
            }
            What::Resume { node } => self.resume(*node),
            What::Limit { node, limit, spec } => {
                self.record.seen().states.hit_if(self.wires.any_cut(), Sometimes::LimitChangedInCut);
                let limit_now = spec.check().expect("a schedule's limits were checked");
                self.machines[*node].set_limit(*limit, limit_now);
                self.pump(*node);
            }
            What::Stranger { node, who } => self.stranger(*node, *who),
        }
    }

    /// When the weather changes next.
    fn next_weather_ns(&self) -> u64 {
        let later = self.schedule.events.iter().filter(|event| matches!(event.what, What::Weather(_)));
        let next_ms = later.map(|event| event.at_ms).find(|at_ms| at_ms * MS > self.now_ns);
        next_ms.unwrap_or(self.schedule.calm_ms).min(self.schedule.calm_ms) * MS
    }

    /// Whatever is wrong still is well from now on.
    fn calm(&mut self) {
        self.wires.set_weather(Weather::default(), u64::MAX);
        for from in 0..self.machines.len() {
            self.resume(from);
            self.machines[from].set_disk(None);
            for to in self.schedule.others(from) {
                if !self.wires.passes(from, to) {
                    self.heal(from, to);
                }
            }
            if self.machines[from].process.is_none() {
                self.start(from, DiskState::Kept);
            }
        }
    }

    fn resume(&mut self, node: usize) {
        self.machines[node].resume(self.now_ns);
        for due in std::mem::take(&mut self.deferred[node]) {
            self.queue.push(self.now_ns, due);
        }
    }

    fn look(&mut self) {
        if self.now_ns < self.schedule.settled_ms() * MS {
            self.queue.push(self.now_ns + self.look_ns, Due::Look);
            self.look_at_all();
        }
    }

    /// Looks at every node's state.
    pub fn look_at_all(&self) {
        for process in self.machines.iter().filter_map(Machine::awake) {
            self.record.look(&process.inspector, self.now_ns);
        }
    }

    /// What nodes that still run hold at the end, if everything is to have expired.
    fn expired(&self) -> Vec<(usize, tidegate::node::Sizes)> {
        if !self.schedule.until_expired {
            return Vec::new();
        }
        self.record.hit(Sometimes::AllExpired);
        let running = self.machines.iter().enumerate().filter_map(|(at, machine)| Some((at, machine.awake()?)));
        running.map(|(at, process)| (at, process.inspector.sizes())).collect()
    }
}
