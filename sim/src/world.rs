//! Builds a cluster of real nodes on simulated hosts, lets the scenario happen to it, and returns what was seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use rand::Rng;
use tidegate::cert::Authority;
use tidegate::id::{NodeName, Secret};
use tidegate::journal::MemoryDisk;
use tidegate::limits::{Limit, LimitSet, Retention};
use tidegate::node::{Cluster, JournalRunner, Node, Parts, Settings};
use tidegate::transport::Identity;
use tidegate::{api, engine};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::{SimClock, elapsed_ns};
use crate::history::History;
use crate::http::SimListener;
use crate::load::{Asker, HTTP_PORT};
use crate::net::{Traffic, TurmoilNetwork};
use crate::observe::{Observed, Record};
use crate::scenario::{GOSSIP_INTERVAL_MS, Scenario, What};
use crate::seed::Seed;
use crate::trace::Trace;

/// True time when a run begins: any instant will do, but always the same.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);
const GOSSIP_PORT: u16 = 7400;
const JOURNAL_FLUSH: Duration = Duration::from_millis(100);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How often each node's state is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a trial may take: the longest waits told are two windows of 3 s.
const TRIALS_MS: u64 = 15_000;
/// What a simulated socket or connection holds; turmoil drops what is beyond.
const UDP_CAPACITY: usize = 4096;

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    /// For the checks.
    pub history: History,
    /// Between the nodes, of all of them.
    pub traffic: Traffic,
    /// The trace hash.
    pub trace_hash: String,
    /// How much was simulated, milliseconds.
    pub simulated_ms: u64,
}

/// One machine: what survives its crashes.
struct Machine {
    index: usize,
    scenario: Arc<Scenario>,
    limits: Vec<Limit>,
    secret: Secret,
    identity: Identity,
    disk: MemoryDisk,
    starts: AtomicU64,
    networks: std::sync::Mutex<Vec<Arc<TurmoilNetwork>>>,
    trace: Trace,
    record: Record,
    stop: watch::Receiver<bool>,
}

/// Runs a scenario to its end.
///
/// # Errors
/// When a node does not start, an answer cannot be read, or the run does not come to an end: a failed run, like a broken
/// property.
pub fn run(scenario: Scenario, trace: Trace) -> anyhow::Result<Run> {
    let scenario = Arc::new(scenario);
    let root = Seed(scenario.seed);
    let secret = Secret(root.rng("secret").random());
    let limits = scenario.keys.iter().map(|key| key.limit.check()).collect::<Result<Vec<Limit>, _>>()?;
    let record = Record::new(&scenario, &limits, &secret, trace.clone());
    let (stop, stopping) = watch::channel(false);
    let machines = machines(&scenario, &limits, &secret, &record, &trace, &stopping)?;

    let mut sim = turmoil::Builder::new()
        .epoch(UNIX_EPOCH + EPOCH)
        .rng_seed(root.of("turmoil").0)
        .simulation_duration(Duration::MAX)
        .udp_capacity(UDP_CAPACITY)
        .build();
    for machine in &machines {
        let machine = Arc::clone(machine);
        sim.host(scenario.nodes[machine.index].name, move || live(Arc::clone(&machine)));
    }
    for link in &scenario.links {
        let (a, b) = (scenario.nodes[link.a].name, scenario.nodes[link.b].name);
        sim.set_link_latency(a, b, Duration::from_millis(link.one_way_ms));
    }
    drive(&mut sim, &scenario, &machines, &record, &stop)?;

    let simulated_ms = sim.elapsed().as_millis() as u64;
    drop(sim);
    let traffic = machines.iter().flat_map(|machine| machine.traffic()).fold(Traffic::default(), |sum, one| Traffic {
        packets: sum.packets + one.packets,
        bytes: sum.bytes + one.bytes,
    });
    let seen = std::mem::take(&mut *record.seen());
    let history = History {
        scenario: Scenario::clone(&scenario),
        epoch_ns: EPOCH.as_nanos() as u64,
        limits,
        retention: Retention::default(),
        requests: seen.requests,
        probes: seen.probes,
        trials: seen.trials,
        bad_answers: seen.bad_answers,
    };
    Ok(Run { history, traffic, trace_hash: trace.hash(), simulated_ms })
}

fn machines(
    scenario: &Arc<Scenario>,
    limits: &[Limit],
    secret: &Secret,
    record: &Record,
    trace: &Trace,
    stop: &watch::Receiver<bool>,
) -> anyhow::Result<Vec<Arc<Machine>>> {
    let mut rng = Seed(scenario.seed).rng("certificates");
    let now_ns = EPOCH.as_nanos() as u64;
    let authority = Authority::generate(&mut rng, now_ns)?;
    let machine = |(index, plan): (usize, &crate::scenario::NodePlan)| {
        let issued = authority.issue(&NodeName::new(plan.name)?, &[], &mut rng, now_ns)?;
        let identity =
            Identity::from_pem(authority.cert_pem.as_bytes(), issued.cert_pem.as_bytes(), issued.key_pem.as_bytes())?;
        Ok(Arc::new(Machine {
            index,
            scenario: Arc::clone(scenario),
            limits: limits.to_vec(),
            secret: secret.clone(),
            identity,
            disk: MemoryDisk::new(),
            starts: AtomicU64::new(0),
            networks: std::sync::Mutex::default(),
            trace: trace.clone(),
            record: record.clone(),
            stop: stop.clone(),
        }))
    };
    scenario.nodes.iter().enumerate().map(machine).collect()
}

/// Moves time on, lets the faults happen, and ends when the trials have.
fn drive(
    sim: &mut turmoil::Sim<'_>,
    scenario: &Scenario,
    machines: &[Arc<Machine>],
    record: &Record,
    stop: &watch::Sender<bool>,
) -> anyhow::Result<()> {
    let name = |node: usize| scenario.nodes[node].name;
    let mut crashes = Seed(scenario.seed).rng("crashes");
    let mut faults = scenario.faults.iter().peekable();
    let last_ms = scenario.calm_from_ms() + scenario.settle_ms + TRIALS_MS + SHUTDOWN_TIMEOUT.as_millis() as u64;
    loop {
        let now_ms = sim.elapsed().as_millis() as u64;
        while let Some(fault) = faults.next_if(|fault| fault.at_ms <= now_ms) {
            match fault.what {
                What::Cut(node) => others(scenario, node).for_each(|other| sim.partition(name(node), name(other))),
                What::Heal(node) => others(scenario, node).for_each(|other| sim.repair(name(node), name(other))),
                What::Crash(node) => {
                    sim.crash(name(node));
                    machines[node].disk.crash(&mut crashes);
                }
                What::Start(node) => sim.bounce(name(node)),
            }
        }
        sim.step().map_err(|error| anyhow!("at {now_ms} ms: {error}"))?;
        if record.seen().trials.len() == scenario.keys.len() {
            stop.send_replace(true);
        }
        if faults.peek().is_none() && (0..machines.len()).all(|node| !sim.is_host_running(name(node))) {
            return Ok(());
        }
        if now_ms > last_ms {
            bail!("the run had not come to an end after {last_ms} ms");
        }
    }
}

fn others(scenario: &Scenario, node: usize) -> impl Iterator<Item = usize> {
    (0..scenario.nodes.len()).filter(move |other| *other != node)
}

/// What a host runs, from each start to its crash or the end: the node, its clients, and whoever looks at it.
async fn live(machine: Arc<Machine>) -> turmoil::Result {
    let node = machine.start().await?;
    let observed = Observed { engine: Arc::clone(node.engine()), slot_clock: Arc::clone(node.slot_clock()) };
    let mut tasks = JoinSet::new();
    tasks.spawn(look(Arc::clone(&machine), observed.clone()));
    tasks.spawn(clients(Arc::clone(&machine), observed));
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let mut stop = machine.stop.clone();
    stop.wait_for(|stop| *stop).await?;
    node.stop().await;
    Ok(())
}

/// Looks at the node's state until the load is over and all is settled. The trials begin after the last look.
async fn look(machine: Arc<Machine>, observed: Observed) -> anyhow::Result<()> {
    let mut next = tokio::time::interval(LOOK_EVERY);
    while elapsed_ns() <= (machine.settled_ms() + LOOK_EVERY.as_millis() as u64) * 1_000_000 {
        next.tick().await;
        machine.record.look(&observed);
    }
    Ok(())
}

/// Runs the clients of this machine's region: first the load, then, once all is settled, the trials.
async fn clients(machine: Arc<Machine>, observed: Observed) -> anyhow::Result<()> {
    let scenario = &machine.scenario;
    let from_ms = scenario.load_from_ms.saturating_sub(elapsed_ns() / 1_000_000);
    tokio::time::sleep(Duration::from_millis(from_ms)).await;
    let mut load = JoinSet::new();
    for (key, plan) in scenario.keys.iter().enumerate() {
        let Some(gap_ms) = plan.gap_ms[machine.index] else { continue };
        let rng = machine.seed().rng(&format!("load/{key}"));
        let asker = machine.asker(key, &observed).await?;
        load.spawn(asker.load(rng, gap_ms, scenario.load_until_ms));
    }
    while let Some(ended) = load.join_next().await {
        ended??;
    }
    let settled_ms = machine.settled_ms().saturating_sub(elapsed_ns() / 1_000_000);
    tokio::time::sleep(Duration::from_millis(settled_ms) + 2 * LOOK_EVERY).await;
    let mut trials = JoinSet::new();
    for (key, _) in scenario.keys.iter().enumerate().filter(|(_, plan)| plan.tried_at == machine.index) {
        let asker = machine.asker(key, &observed).await?;
        trials.spawn(asker.try_promises());
    }
    while let Some(ended) = trials.join_next().await {
        ended??;
    }
    Ok(())
}

impl Machine {
    fn name(&self) -> &'static str {
        self.scenario.nodes[self.index].name
    }

    /// The seed of this life: a bounced host must not repeat the draws of its former one.
    fn seed(&self) -> Seed {
        Seed(self.scenario.seed).of(&format!("{}/{}", self.name(), self.starts.load(Ordering::Relaxed)))
    }

    fn settled_ms(&self) -> u64 {
        self.scenario.calm_from_ms() + self.scenario.settle_ms
    }

    fn traffic(&self) -> Vec<Traffic> {
        let networks = self.networks.lock().expect("a simulation is one thread, and ends with the first panic");
        networks.iter().map(|network| network.traffic()).collect()
    }

    async fn asker(&self, key: usize, observed: &Observed) -> anyhow::Result<Asker> {
        let plan = self.scenario.keys[key].clone();
        Asker::connect((self.index, self.name()), (key, plan), self.record.clone(), observed.clone()).await
    }

    async fn start(&self) -> anyhow::Result<Node> {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let plan = &self.scenario.nodes[self.index];
        let clock = SimClock {
            epoch_ns: EPOCH.as_nanos() as u64,
            offset_ns: plan.clock_offset_us * 1_000,
            drift_ppm: plan.clock_drift_ppm,
            steps: Vec::new(),
        };
        let network = TurmoilNetwork::new(self.name(), self.seed(), self.scenario.weather, self.trace.clone());
        let network = Arc::new(network);
        self.networks
            .lock()
            .expect("a simulation is one thread, and ends with the first panic")
            .push(Arc::clone(&network));
        let parts = Parts {
            clock: Arc::new(clock),
            network,
            store: Box::new(self.disk.open()?),
            rng: self.seed().rng("node"),
            journal: JournalRunner::Inline,
        };
        let http = SimListener::bind(HTTP_PORT).await?;
        tidegate::node::start(self.settings()?, parts, http).await.with_context(|| format!("starting {}", self.name()))
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let seeds = others(&self.scenario, self.index);
        Ok(Settings {
            name: NodeName::new(self.name())?,
            region: self.name().to_owned(),
            engine: engine::Settings::default(),
            http: api::Settings { max_body: 1024 * 1024, denied_status: 429, token: None },
            cluster: Some(Cluster {
                listen: ([0, 0, 0, 0], GOSSIP_PORT).into(),
                seeds: seeds.map(|other| format!("{}:{GOSSIP_PORT}", self.scenario.nodes[other].name)).collect(),
                interval: Duration::from_millis(GOSSIP_INTERVAL_MS),
                sync_timeout: Duration::from_secs(5),
                ring_bytes: tidegate::node::RING_BYTES,
                secret: self.secret.clone(),
                identity: self.identity.clone(),
            }),
            limits: LimitSet::new(self.limits.iter().cloned())?,
            journal_flush: JOURNAL_FLUSH,
            shutdown_timeout: SHUTDOWN_TIMEOUT,
        })
    }
}
