//! A machine: its clocks, its disk, and the process that runs on it or does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use tidegate::engine;
use tidegate::id::{NodeName, Secret};
use tidegate::journal::{DiskFault, MemoryDisk, MemoryImage, Writer};
use tidegate::limits::{Limit, LimitSet};
use tidegate::node::{Body, BodyParts, Cluster, Inspector, Settings, StartError};
use tidegate::time::Clock;
use tidegate::transport::Identity;
use tidegate::{api, node};

use crate::clock::SimClock;
use crate::schedule::{DiskState, DiskTrouble, Schedule};

/// How often the journal is written.
pub const JOURNAL_NS: u64 = 100_000_000;

/// True time, as all machines of a run share it: nanoseconds since its start.
pub type TrueTime = Arc<AtomicU64>;

/// The clocks of one machine.
pub struct HandClock {
    now_ns: TrueTime,
    system: SimClock,
    /// For how long it stood still so far: its monotonic clock did too.
    paused_ns: AtomicU64,
}

impl Clock for HandClock {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed) - self.paused_ns.load(Ordering::Relaxed)
    }

    fn system_ns(&self) -> u64 {
        self.system.system_at(self.now_ns.load(Ordering::Relaxed))
    }
}

/// A machine.
pub struct Machine {
    /// The node's name.
    pub name: NodeName,
    /// How often a process was started: tells whether what was meant for one is meant for the one that runs.
    pub starts: u64,
    /// None while it is down.
    pub process: Option<Process>,
    /// Since when it stands still.
    pub paused_at_ns: Option<u64>,
    /// The journal hangs.
    pub disk_slow: bool,
    clock: Arc<HandClock>,
    disk: MemoryDisk,
    copy: MemoryImage,
    limits: Vec<Limit>,
    settings: Settings,
}

/// A running process.
pub struct Process {
    /// The node.
    pub body: Body,
    /// Looks into it.
    pub inspector: Inspector,
    /// Its journal.
    pub writer: Writer,
    /// When it flushed last.
    pub flushed_ns: u64,
    /// When it flushes next, unless it is urged.
    pub flush_ns: u64,
    /// When an early flush is due.
    pub urged_ns: Option<u64>,
}

impl Machine {
    /// A machine on which nothing was started yet.
    pub fn new(
        schedule: &Schedule,
        node: usize,
        limits: &[Limit],
        secret: &Secret,
        identity: &Identity,
        now_ns: &TrueTime,
        epoch_ns: u64,
    ) -> Self {
        let name = NodeName::new(&schedule.nodes[node].name).expect("regions are good names");
        let seeds = schedule.others(node).map(|other| schedule.nodes[other].name.clone()).collect();
        let settings = Settings {
            name: name.clone(),
            region: name.to_string(),
            engine: engine::Settings {
                max_keys: schedule.setup.max_keys,
                max_cells: schedule.setup.max_cells,
                ..engine::Settings::default()
            },
            http: api::Settings { max_body: 0, denied_status: 429, token: None },
            cluster: Some(Cluster {
                listen: ([0, 0, 0, 0], 0).into(),
                seeds,
                interval: Duration::from_millis(schedule.setup.interval_ms),
                sync_timeout: Duration::from_secs(5),
                ring_bytes: schedule.setup.ring_bytes,
                secret: secret.clone(),
                identity: identity.clone(),
            }),
            limits: LimitSet::default(),
            journal_flush: Duration::from_nanos(JOURNAL_NS),
            shutdown_timeout: Duration::from_secs(1),
        };
        let clock = HandClock {
            now_ns: Arc::clone(now_ns),
            system: SimClock::of(schedule, node, epoch_ns),
            paused_ns: AtomicU64::new(0),
        };
        Self {
            name,
            starts: 0,
            process: None,
            paused_at_ns: None,
            disk_slow: false,
            clock: Arc::new(clock),
            disk: MemoryDisk::new(),
            copy: MemoryImage::default(),
            limits: limits.to_vec(),
            settings,
        }
    }

    /// Starts a process on the disk as it is.
    pub fn start(&mut self, now_ns: u64, mut rng: StdRng) -> Result<(), StartError> {
        self.starts += 1;
        let mut settings = self.settings.clone();
        settings.limits = self.limit_set();
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let parts = BodyParts { clock, store: Box::new(self.disk.open()?), rng: &mut rng };
        let (body, writer) = Body::start(&mut settings, parts)?;
        let inspector = body.inspector();
        self.process = Some(Process { body, inspector, writer, flushed_ns: now_ns, flush_ns: now_ns, urged_ns: None });
        Ok(())
    }

    /// The process dies, and what its disk had not made durable may be gone.
    pub fn crash(&mut self, rng: &mut StdRng) {
        self.process = None;
        self.paused_at_ns = None;
        self.disk.crash(rng);
    }

    /// Puts a disk in, before a start.
    pub fn insert(&mut self, disk: DiskState) {
        match disk {
            DiskState::Kept => {}
            DiskState::Empty => self.disk.restore(MemoryImage::default()),
            DiskState::Copy => self.disk.restore(self.copy.clone()),
        }
    }

    /// Puts a copy of the disk aside.
    pub fn copy_disk(&mut self) {
        self.copy = self.disk.image();
    }

    /// Something is wrong with the disk, or nothing.
    pub fn set_disk(&mut self, trouble: Option<DiskTrouble>) {
        self.disk_slow = trouble == Some(DiskTrouble::Slow);
        self.disk.set_fault(match trouble {
            Some(DiskTrouble::Full) => Some(DiskFault::Full),
            Some(DiskTrouble::Failing) => Some(DiskFault::Failing),
            Some(DiskTrouble::Lying) => Some(DiskFault::Lying),
            Some(DiskTrouble::Slow) | None => None,
        });
    }

    /// Some records rot.
    pub fn damage(&mut self, records: usize, rng: &mut StdRng) {
        self.disk.damage(records, rng);
    }

    /// The configuration changes one limit.
    pub fn set_limit(&mut self, index: usize, limit: Limit) {
        self.limits[index] = limit;
        if let Some(process) = &self.process {
            process.body.install(self.limit_set());
        }
    }

    fn limit_set(&self) -> LimitSet {
        LimitSet::new(self.limits.iter().cloned()).expect("a schedule's limits have different names")
    }

    /// It goes on: its monotonic clock did not run meanwhile.
    pub fn resume(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.paused_at_ns.take() {
            self.clock.paused_ns.fetch_add(now_ns - since_ns, Ordering::Relaxed);
        }
    }

    /// The process, if it runs and does not stand still.
    pub fn awake(&self) -> Option<&Process> {
        self.process.as_ref().filter(|_| self.paused_at_ns.is_none())
    }
}

/// How often a process looks at its timeouts, nanoseconds.
pub const TICK_NS: u64 = node::TICK.as_nanos() as u64;
/// How often it compares clocks, nanoseconds.
pub const SECOND_NS: u64 = node::SECOND_HAND.as_nanos() as u64;
/// How far apart flushes are at least, nanoseconds.
pub const FLUSH_APART_NS: u64 = node::FLUSH_APART.as_nanos() as u64;
