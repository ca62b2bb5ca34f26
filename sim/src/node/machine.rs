//! A machine: its clocks, its disk, and the process that runs on it or does not. All of it outlives its process.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Context;
use rand::rngs::StdRng;
use tidegate::id::{NodeName, Secret};
use tidegate::journal::{DiskFault, MemoryDisk, MemoryImage};
use tidegate::limits::{Limit, LimitSet};
use tidegate::node::{Cluster, JournalRunner, Node, Parts, Settings, StartError};
use tidegate::time::MS;
use tidegate::transport::Identity;
use tidegate::{api, engine};
use tokio::sync::watch;

use super::clock::{NodeClock, elapsed_ns, sleep_until_ms};
use super::http::{HTTP_PORT, SimListener};
use super::net::{Sky, TurmoilNetwork};
use crate::clock::SimClock;
use crate::observe::Record;
use crate::run::{EPOCH, Traffic};
use crate::schedule::{DiskState, DiskTrouble, Schedule, What};
use crate::seed::Seed;
use crate::states::Sometimes;
use crate::trace::Trace;

const GOSSIP_PORT: u16 = 7400;
const JOURNAL_FLUSH: Duration = Duration::from_millis(100);
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// A process that does not start is tried again after this, milliseconds.
const RESTART_MS: u64 = 500;
/// What a stop may take.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// What all machines of a run share.
#[derive(Clone)]
pub struct Common {
    /// What is to happen.
    pub schedule: Arc<Schedule>,
    /// What all packets pass through.
    pub sky: Arc<Sky>,
    /// Where what happens is written down.
    pub record: Record,
    /// For packets.
    pub trace: Trace,
    /// The cluster's secret.
    pub secret: Secret,
    /// Turns true when the run is over.
    pub stop: watch::Receiver<bool>,
}

/// A machine.
pub struct Machine {
    /// Index of its node.
    pub index: usize,
    /// What it shares with the others.
    pub common: Common,
    identity: Identity,
    disk: MemoryDisk,
    state: Mutex<State>,
}

struct State {
    /// How often a process was started.
    starts: u64,
    /// Whether a process runs, or is about to.
    up: bool,
    /// What it was started on last.
    inserted: DiskState,
    copy: MemoryImage,
    /// Of all its processes.
    networks: Vec<Arc<TurmoilNetwork>>,
}

impl Machine {
    /// A machine whose first process is about to start.
    pub fn new(index: usize, common: Common, identity: Identity) -> Self {
        let state = State {
            starts: 0,
            up: true,
            inserted: DiskState::Kept,
            copy: MemoryImage::default(),
            networks: Vec::new(),
        };
        let (disk, state) = (MemoryDisk::new(), Mutex::new(state));
        Self { index, common, identity, disk, state }
    }

    /// The node's name, and the host's.
    pub fn name(&self) -> &str {
        &self.common.schedule.nodes[self.index].name
    }

    /// Whether a process runs, or is about to.
    pub fn is_up(&self) -> bool {
        self.state().up
    }

    /// What all its processes have sent so far.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.state().networks.iter().map(|network| network.traffic()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a simulation is one thread, and ends with the first panic")
    }

    /// The process has died: what the disk had not made durable may be gone.
    pub fn crashed(&self, rng: &mut StdRng) {
        self.state().up = false;
        self.disk.crash(rng);
    }

    /// Puts a disk in: a process is about to start.
    pub fn insert(&self, disk: DiskState) {
        let mut state = self.state();
        (state.up, state.inserted) = (true, disk);
        match disk {
            DiskState::Kept => {}
            DiskState::Empty => self.disk.restore(MemoryImage::default()),
            DiskState::Copy => self.disk.restore(state.copy.clone()),
        }
    }

    /// Puts a copy of the disk aside.
    pub fn copy_disk(&self) {
        self.state().copy = self.disk.image();
    }

    /// Something is wrong with the disk, or nothing. One that hangs is for the other tier.
    pub fn set_disk(&self, trouble: Option<DiskTrouble>) {
        self.disk.set_fault(match trouble {
            Some(DiskTrouble::Full) => Some(DiskFault::Full),
            Some(DiskTrouble::Failing) => Some(DiskFault::Failing),
            Some(DiskTrouble::Lying) => Some(DiskFault::Lying),
            Some(DiskTrouble::Slow) | None => None,
        });
    }

    /// Some records rot.
    pub fn damage(&self, records: usize, rng: &mut StdRng) {
        self.disk.damage(records, rng);
    }

    /// Starts a process on the disk as it is, however often that takes.
    pub async fn start(&self) -> anyhow::Result<Node> {
        loop {
            let now_ms = elapsed_ns() / MS;
            match self.try_start(now_ms).await? {
                Ok(node) => {
                    self.started(&node);
                    return Ok(node);
                }
                Err(error @ StartError::Store(_)) => {
                    tracing::debug!(node = self.name(), %error, "does not start");
                    self.state().up = false;
                    sleep_until_ms(now_ms + RESTART_MS).await;
                }
                Err(error) => return Err(error).with_context(|| format!("starting {}", self.name())),
            }
        }
    }

    async fn try_start(&self, now_ms: u64) -> anyhow::Result<Result<Node, StartError>> {
        let Common { schedule, sky, trace, .. } = &self.common;
        let seed = {
            let mut state = self.state();
            state.starts += 1;
            // A process must not repeat the draws of the one before.
            Seed(schedule.seed).of(&format!("node/{}/{}", self.index, state.starts))
        };
        let store = match self.disk.open() {
            Ok(store) => store,
            Err(error) => return Ok(Err(error.into())),
        };
        let longer = |other: usize| {
            let (there_ms, back_ms) = (schedule.one_way_ms(self.index, other), schedule.one_way_ms(other, self.index));
            (there_ms > back_ms).then(|| (schedule.nodes[other].name.as_str(), there_ms - back_ms))
        };
        let longer: Vec<(&str, u64)> = schedule.others(self.index).filter_map(longer).collect();
        let network = TurmoilNetwork::new(self.name(), seed, Arc::clone(sky), &longer, trace.clone());
        let network = Arc::new(network);
        self.state().networks.push(Arc::clone(&network));
        let parts = Parts {
            clock: Arc::new(NodeClock(SimClock::of(schedule, self.index, EPOCH.as_nanos() as u64))),
            network,
            store: Box::new(store),
            rng: seed.rng("node"),
            journal: JournalRunner::Inline,
        };
        let http = SimListener::bind(HTTP_PORT).await?;
        Ok(tidegate::node::start(self.settings(now_ms)?, parts, http).await)
    }

    fn started(&self, node: &Node) {
        let (first, inserted) = {
            let mut state = self.state();
            state.up = true;
            (state.starts == 1, std::mem::replace(&mut state.inserted, DiskState::Kept))
        };
        let (record, inspector) = (&self.common.record, node.inspector());
        record.begins(&node.own(), elapsed_ns());
        let mut seen = record.seen();
        seen.states.hit_if(inspector.sizes().cells > 0, Sometimes::RecoveredRecords);
        seen.states.hit_if(inspector.damaged() > 0, Sometimes::RecoveredDamaged);
        seen.states.hit_if(!first && inserted == DiskState::Empty, Sometimes::StartedEmpty);
    }

    fn settings(&self, now_ms: u64) -> anyhow::Result<Settings> {
        let schedule = &self.common.schedule;
        let seeds = schedule.others(self.index).map(|other| format!("{}:{GOSSIP_PORT}", schedule.nodes[other].name));
        Ok(Settings {
            name: NodeName::new(self.name())?,
            region: self.name().to_owned(),
            engine: engine::Settings {
                max_keys: schedule.setup.max_keys,
                max_cells: schedule.setup.max_cells,
                ..engine::Settings::default()
            },
            http: api::Settings { max_body: MAX_BODY_BYTES, denied_status: 429, token: None },
            cluster: Some(Cluster {
                listen: ([0, 0, 0, 0], GOSSIP_PORT).into(),
                seeds: seeds.collect(),
                interval: Duration::from_millis(schedule.setup.interval_ms),
                sync_timeout: Duration::from_secs(5),
                ring_bytes: schedule.setup.ring_bytes,
                secret: self.common.secret.clone(),
                identity: self.identity.clone(),
            }),
            limits: self.limits(now_ms)?,
            journal_flush: JOURNAL_FLUSH,
            shutdown_timeout: SHUTDOWN_TIMEOUT,
        })
    }

    /// The limits as the node's configuration has them then.
    pub fn limits(&self, now_ms: u64) -> anyhow::Result<LimitSet> {
        let schedule = &self.common.schedule;
        let mut limits: Vec<Limit> = schedule.checked_limits()?;
        for event in schedule.events.iter().filter(|event| event.at_ms <= now_ms) {
            if let What::Limit { node, limit, spec } = &event.what
                && *node == self.index
            {
                limits[*limit] = spec.check()?;
            }
        }
        Ok(LimitSet::new(limits)?)
    }
}
