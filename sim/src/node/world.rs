//! The run: a cluster of real nodes on simulated hosts, and what the schedule lets happen to it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use rand::Rng;
use rand::rngs::StdRng;
use tidegate::cert::Authority;
use tidegate::id::{NodeName, Secret};
use tidegate::transport::Identity;
use tokio::sync::watch;

use super::host::live;
use super::machine::{Common, Machine, SHUTDOWN_TIMEOUT};
use super::net::Sky;
use super::tls;
use crate::observe::Record;
use crate::run::{EPOCH, Run, Tier, Traffic};
use crate::schedule::{DiskState, Schedule, Weather, What};
use crate::seed::Seed;
use crate::states::Sometimes;
use crate::trace::Trace;

/// What a trial may take beyond the wait that it is told, milliseconds.
const TRIALS_MS: u64 = 60_000;
/// What a simulated socket or connection holds; turmoil drops what is beyond.
const CAPACITY: usize = 4096;

struct World<'a> {
    sim: turmoil::Sim<'a>,
    schedule: Arc<Schedule>,
    machines: Vec<Arc<Machine>>,
    sky: Arc<Sky>,
    record: Record,
    stop: watch::Sender<bool>,
    /// What crashes leave on disks, and which records rot.
    rng: StdRng,
}

/// Runs a schedule to its end.
///
/// # Errors
/// When the schedule's limits are not valid, an answer cannot be read, or the run does not come to an end.
pub fn run(schedule: Schedule, trace: Trace) -> anyhow::Result<Run> {
    let limits = schedule.checked_limits().context("the schedule's limits")?;
    let secret = Secret(Seed(schedule.seed).rng("secret").random());
    let record = Record::new(&schedule, &limits, trace.clone());
    let (schedule, sky) = (Arc::new(schedule), Arc::new(Sky::default()));
    let (stop, stopping) = watch::channel(false);
    let common = Common {
        schedule: Arc::clone(&schedule),
        sky: Arc::clone(&sky),
        record: record.clone(),
        trace: trace.clone(),
        secret,
        stop: stopping,
    };
    let machines = machines(&common)?;
    let sim = hosts(&schedule, &machines);
    let rng = Seed(schedule.seed).rng("world");
    let mut world = World {
        sim,
        schedule: Arc::clone(&schedule),
        machines: machines.clone(),
        sky,
        record: record.clone(),
        stop,
        rng,
    };
    world.go()?;
    let simulated_ms = world.now_ms();
    drop(world);
    let traffic = machines.iter().flat_map(|machine| machine.traffic()).fold(Traffic::default(), |sum, one| Traffic {
        packets: sum.packets + one.packets,
        bytes: sum.bytes + one.bytes,
    });
    let history = record.into_history(Schedule::clone(&schedule), limits, EPOCH.as_nanos() as u64);
    Ok(Run { tier: Tier::Node, history, traffic, trace_hash: trace.hash(), simulated_ms })
}

/// A machine for each node, with certificates of one authority.
fn machines(common: &Common) -> anyhow::Result<Vec<Arc<Machine>>> {
    let mut rng = Seed(common.schedule.seed).rng("certificates");
    let now_ns = EPOCH.as_nanos() as u64;
    let authority = Authority::generate(&mut rng, now_ns)?;
    let provider = tls::provider(Seed(common.schedule.seed));
    let mut machine = |(index, plan): (usize, &crate::schedule::NodePlan)| {
        let issued = authority.issue(&NodeName::new(&plan.name)?, &[], &mut rng, now_ns)?;
        let pem = [&authority.cert_pem, &issued.cert_pem, &issued.key_pem].map(|pem| pem.as_bytes());
        let identity = Identity::from_pem(pem[0], pem[1], pem[2])?.with_provider(provider.clone());
        Ok(Arc::new(Machine::new(index, common.clone(), identity)))
    };
    common.schedule.nodes.iter().enumerate().map(&mut machine).collect()
}

/// A host for each machine, and the links between them.
fn hosts(schedule: &Schedule, machines: &[Arc<Machine>]) -> turmoil::Sim<'static> {
    let mut sim = turmoil::Builder::new()
        .epoch(UNIX_EPOCH + EPOCH)
        .rng_seed(Seed(schedule.seed).of("turmoil").0)
        .simulation_duration(Duration::MAX)
        .udp_capacity(CAPACITY)
        .tcp_capacity(CAPACITY)
        .build();
    for machine in machines {
        let lives = Arc::clone(machine);
        sim.host(machine.name(), move || live(Arc::clone(&lives)));
    }
    for link in &schedule.links {
        let (a, b) = (machines[link.a].name(), machines[link.b].name());
        // The network has one latency a link; what the longer way takes beyond it the sockets add.
        sim.set_link_latency(a, b, Duration::from_millis(link.one_way_ms.min(link.back_ms)));
    }
    sim
}

impl World<'_> {
    /// Moves time on, lets things happen, and ends when the trials have.
    fn go(&mut self) -> anyhow::Result<()> {
        let schedule = Arc::clone(&self.schedule);
        let mut troubles = schedule.troubles().peekable();
        let mut calm = false;
        let trials = schedule.keys.iter().filter(|key| key.tried_at.is_some()).count();
        // No wait is longer than two windows.
        let longest_ms = schedule
            .checked_limits()
            .ok()
            .and_then(|limits| limits.iter().map(|limit| limit.window_ns / 1_000_000).max());
        let last_ms =
            schedule.settled_ms() + 2 * longest_ms.unwrap_or(0) + TRIALS_MS + SHUTDOWN_TIMEOUT.as_millis() as u64;
        loop {
            let now_ms = self.now_ms();
            while let Some(event) = troubles.next_if(|event| event.at_ms <= now_ms) {
                self.event(&event.what);
            }
            if !calm && now_ms >= schedule.calm_ms {
                calm = true;
                self.calm();
            }
            self.sim.step().map_err(|error| anyhow!("at {now_ms} ms: {error}"))?;
            if now_ms > schedule.settled_ms() && self.record.seen().trials.len() == trials {
                self.stop.send_replace(true);
                if (0..self.machines.len()).all(|node| !self.sim.is_host_running(self.machines[node].name())) {
                    return Ok(());
                }
            }
            if now_ms > last_ms {
                bail!("the run had not come to an end after {last_ms} ms");
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.sim.elapsed().as_millis() as u64
    }

    fn event(&mut self, what: &What) {
        match what {
            What::Cut { from, to } => {
                self.sky.set_cut(*from, *to, true);
                self.sim.partition_oneway(self.machines[*from].name(), self.machines[*to].name());
            }
            What::Heal { from, to } => self.heal(*from, *to),
            What::Weather(weather) => self.sky.set_weather(*weather),
            What::Crash { node } => {
                if self.machines[*node].is_up() {
                    self.sim.crash(self.machines[*node].name());
                    self.machines[*node].crashed(&mut self.rng);
                }
            }
            What::Start { node, disk } => {
                if !self.machines[*node].is_up() {
                    self.start(*node, *disk);
                }
            }
            What::Copy { node } => self.machines[*node].copy_disk(),
            What::Disk { node, fault } => self.machines[*node].set_disk(*fault),
            What::Damage { node, records } => {
                if !self.machines[*node].is_up() {
                    self.machines[*node].damage(*records, &mut self.rng);
                }
            }
            // Hosts know what becomes of their limits.
            What::Limit { .. } => {
                self.record.seen().states.hit_if(self.sky.any_cut(), Sometimes::LimitChangedInCut);
            }
            // Clients ask by themselves, and clocks know their steps.
            What::Ask(_) | What::Step { .. } => {}
            // For the other tier.
            What::Pause { .. } | What::Resume { .. } | What::Stranger { .. } => {}
        }
    }

    fn heal(&self, from: usize, to: usize) {
        self.sky.set_cut(from, to, false);
        self.sim.repair_oneway(self.machines[from].name(), self.machines[to].name());
    }

    fn start(&mut self, node: usize, disk: DiskState) {
        // What waits to try again does not.
        self.sim.crash(self.machines[node].name());
        self.machines[node].insert(disk);
        self.sim.bounce(self.machines[node].name());
    }

    /// Whatever is wrong still is well from now on.
    fn calm(&mut self) {
        self.sky.set_weather(Weather::default());
        for (from, to) in self.sky.cuts() {
            self.heal(from, to);
        }
        for node in 0..self.machines.len() {
            self.machines[node].set_disk(None);
            if !self.machines[node].is_up() {
                self.start(node, DiskState::Kept);
            }
        }
    }
}
