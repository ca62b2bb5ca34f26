//! A node without its tasks, sockets and threads: everything that it decides and remembers, and nothing that happens by
//! itself. [`super::start`] gives it tasks, QUIC and HTTP; whoever holds a body calls what those would call, when it likes.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::sync::watch;

use super::definitions::Definitions;
use super::shared::{Built, Shared};
use super::{ALONE_INTERVAL, RING_BYTES, Settings, StartError, recover};
use crate::engine::{Engine, SWEEP_PIECES};
use crate::gossip::{self, Gossip, Now, PeerStatus};
use crate::id::{ReplicaId, Secret};
use crate::journal::{Figures, Recovered, Source, Store, Writer, alive_from_ns};
use crate::limits::LimitSet;
use crate::planted::{self, PlantedBug};
use crate::time::{Clock, Discipline, MS, SlotClock};
use crate::transport::Hub;

/// What a body is made from: the machine's clocks, its disk and its randomness.
pub struct BodyParts<'a> {
    /// The machine's clocks.
    pub clock: Arc<dyn Clock>,
    /// The disk.
    pub store: Box<dyn Store>,
    /// Nonces, jitter, and the secret of a node without a cluster.
    pub rng: &'a mut StdRng,
}

/// A node that does nothing by itself.
pub struct Body {
    pub(super) shared: Arc<Shared>,
    /// Turns true when it is to stop; dropped with it.
    pub(super) stop: watch::Sender<bool>,
}

/// Looks into a node, running or not. Clones look into the same one.
#[derive(Clone)]
pub struct Inspector(Arc<Shared>);

/// How much a node holds, against the bounds of each: for checks that everything stays within them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Keys held.
    pub keys: u64,
    /// Keys that this node itself spent on.
    pub own_keys: u64,
    /// Cells, bases and marks held.
    pub cells: u64,
    /// Bytes of records that wait for the journal.
    pub pending_bytes: u64,
    /// The protocol's own.
    pub gossip: gossip::Sizes,
}

impl Body {
    /// Recovers what the disk holds, takes a new id and stores it. The writer is the journal's: its rounds are the
    /// caller's to make.
    ///
    /// # Errors
    /// When the disk is not this node's or does not work.
    pub fn start(settings: &mut Settings, mut parts: BodyParts<'_>) -> Result<(Self, Writer), StartError> {
        let recovered = parts.store.recover(&settings.name, parts.clock.system_ns(), recover::sound)?;
        let secret = match &settings.cluster {
            Some(cluster) => cluster.secret.clone(),
            None => {
                let mut fresh = [0; 32];
                parts.rng.fill_bytes(&mut fresh);
                parts.store.secret(Secret(fresh))?
            }
        };
        let unix_ms = parts.clock.system_ns() / MS;
        let mut own = ReplicaId::next_life(settings.name.clone(), recovered.generation, unix_ms, parts.rng.next_u32());
        if planted::has(PlantedBug::GenerationReused) {
            (own.generation, own.nonce) = (recovered.generation.max(1), 0);
        }
        parts.store.begin_life(&own)?;
        let (stop, stopping) = watch::channel(false);
        let shared = Arc::new(build(settings, &parts.clock, parts.rng, own, &secret, recovered, stopping));
        let source = Arc::clone(&shared) as Arc<dyn Source>;
        let writer = Writer::new(parts.store, source, Arc::clone(&shared.journal));
        Ok((Self { shared, stop }, writer))
    }

    /// Where frames go to and come from.
    pub fn hub(&self) -> &dyn Hub {
        &*self.shared
    }

    /// Sends and stores everything changed since the last flush: every interval, and when a check was urgent.
    pub fn flush(&self) {
        self.shared.flush();
    }

    /// The protocol's own timeouts: every 100 ms.
    pub fn tick(&self) {
        self.shared.tick();
    }

    /// Compares the clocks and drops what has expired: every second.
    pub fn second(&self) -> Discipline {
        let discipline = self.shared.follow_clock();
        let now = self.shared.now();
        (0..SWEEP_PIECES).for_each(|piece| self.shared.sweep_piece(&now, piece));
        self.shared.swept(&now);
        discipline
    }

    /// Replaces the limits of the file.
    pub fn install(&self, limits: LimitSet) {
        self.shared.install(limits);
    }

    /// Looks into it.
    pub fn inspector(&self) -> Inspector {
        Inspector(Arc::clone(&self.shared))
    }
}

impl Inspector {
    /// The state.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// The slot clock.
    pub fn slot_clock(&self) -> &Arc<SlotClock> {
        &self.0.slot_clock
    }

    /// The three clocks.
    pub fn now(&self) -> Now {
        self.0.now()
    }

    /// What is known of the peers.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.0.core.lock().gossip.peers(&self.0.now())
    }

    /// For every replica of which that is known, the slot-clock time up to which this node holds all that it spent.
    pub fn complete_to(&self) -> Vec<(ReplicaId, u64)> {
        self.0.core.lock().gossip.complete_to()
    }

    /// Why it is not ready; None when it is.
    pub fn why_not_ready(&self) -> Option<String> {
        self.0.why_not_ready()
    }

    /// Records of the journal that were damaged or could not be taken in whole at the start.
    pub fn damaged(&self) -> u64 {
        self.0.damaged
    }

    /// What the journal's writer did.
    pub fn journal(&self) -> Figures {
        self.0.journal.figures()
    }

    /// How much it holds.
    pub fn sizes(&self) -> Sizes {
        let stats = self.0.engine.stats();
        let core = self.0.core.lock();
        let (pending_bytes, gossip) = (core.pending.bytes() as u64, core.gossip.sizes());
        Sizes { keys: stats.keys, own_keys: stats.own_keys, cells: stats.cells, pending_bytes, gossip }
    }
}

/// What the tasks share.
fn build(
    settings: &mut Settings,
    clock: &Arc<dyn Clock>,
    rng: &mut StdRng,
    own: ReplicaId,
    secret: &Secret,
    recovered: Recovered,
    stopping: watch::Receiver<bool>,
) -> Shared {
    let max_skew_ns = settings.engine.retention.max_skew_ns;
    let (mono_ns, system_ns) = (clock.monotonic_ns(), clock.system_ns());
    let slot_clock = SlotClock::start(mono_ns, system_ns, recovered.slot_clock_ns, max_skew_ns);
    let now_ns = slot_clock.now(mono_ns);
    let engine = Engine::new(settings.engine.clone(), own.clone(), secret);
    // First the limits that the records were counted under: what a bucket owes is carried over to what it is now.
    engine.install(now_ns, recovered.limits);
    // As of when they were written: slots that expired since then leave their whole debt in a base, not their `fin` alone.
    let mut alive_ns = alive_from_ns(now_ns, recovered.slot_clock_ns);
    if planted::has(PlantedBug::RecoveredAsOfNow) {
        alive_ns = now_ns;
    }
    let replayed = recover::replay(&engine, now_ns, alive_ns, &recovered.records);
    let definitions = Definitions::new(std::mem::take(&mut settings.limits), &recovered.definitions);
    let limits = definitions.in_force();
    engine.install(now_ns, limits.clone());
    engine.carry_rest(now_ns);
    let damaged = recovered.damaged + replayed.damaged;
    // What was left out may be in a chunk that `have` covers: then everything is asked for again.
    let have = if damaged + replayed.left_out == 0 { recovered.have } else { Vec::new() };
    if damaged > 0 {
        tracing::warn!(damaged, "skipped damaged records of the journal; asking the peers for everything");
    }
    let cluster = settings.cluster.as_ref();
    let mut gossip = Gossip::new(
        gossip::Settings {
            cluster: secret.cluster_id(),
            own,
            region: settings.region.clone(),
            expected_nodes: settings.engine.expected_nodes,
            seeds: cluster.map_or(0, |cluster| cluster.seeds.len() as u32),
            ring_bytes: cluster.map_or(RING_BYTES, |cluster| cluster.ring_bytes),
        },
        have,
        recovered.definitions,
    );
    gossip.set_limits(&limits, &definitions.file);
    Shared::new(Built {
        region: settings.region.clone(),
        max_keys: settings.engine.max_keys,
        max_cells: settings.engine.max_cells,
        engine,
        clock: Arc::clone(clock),
        slot_clock,
        gossip,
        definitions,
        rng: StdRng::from_rng(rng),
        interval: cluster.map_or(ALONE_INTERVAL, |cluster| cluster.interval),
        sync_timeout: cluster.map(|cluster| cluster.sync_timeout),
        damaged,
        stored_clock_ns: recovered.slot_clock_ns,
        stopping,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::engine::{Ask, Op};
    use crate::id::NodeName;
    use crate::journal::MemoryDisk;
    use crate::limits::LimitSpec;
    use crate::time::SECOND;
    use crate::{api, engine};

    /// Both clocks of a machine that are right.
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn system_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn settings() -> Settings {
        let spec = LimitSpec {
            name: "l".into(),
            algorithm: Some("token_bucket".into()),
            limit: Some(10),
            window: Some("1s".into()),
            ..LimitSpec::default()
        };
        Settings {
            name: NodeName::new("a").unwrap(),
            region: "a".into(),
            engine: engine::Settings::default(),
            http: api::Settings { max_body: 0, denied_status: 429, token: None },
            cluster: None,
            limits: LimitSet::new([spec.check().unwrap()]).unwrap(),
            journal_flush: Duration::from_millis(100),
            shutdown_timeout: Duration::from_secs(1),
        }
    }

    fn start(clock: &Arc<Hand>, disk: &MemoryDisk) -> (Body, Writer) {
        let mut rng = StdRng::seed_from_u64(1);
        let store = Box::new(disk.open().unwrap());
        let parts = BodyParts { clock: Arc::clone(clock) as Arc<dyn Clock>, store, rng: &mut rng };
        Body::start(&mut settings(), parts).unwrap()
    }

    fn used(body: &Body, op: Op, cost: u32) -> u64 {
        let ask = [Ask { limit: "l", key: "k", cost }];
        body.inspector().engine().decide(body.inspector().now().slot_ns, op, &ask).unwrap().results[0].used
    }

    #[test]
    fn what_a_bucket_owes_outlives_a_crash_that_outlasts_its_slots() {
        let (clock, disk) = (Arc::new(Hand(AtomicU64::new(1_700_000_000 * SECOND))), MemoryDisk::new());
        let pass = |ns: u64| clock.0.fetch_add(ns, Ordering::Relaxed);
        let (body, mut writer) = start(&clock, &disk);
        for _ in 0..30 {
            used(&body, Op::Debit, 10);
            pass(SECOND / 10);
        }
        body.flush();
        writer.step();
        assert_eq!(used(&body, Op::Peek, 0), 270);
        drop((body, writer));
        disk.crash(&mut StdRng::seed_from_u64(1));
        // Slots are kept for eight seconds.
        pass(9 * SECOND);
        let (body, _writer) = start(&clock, &disk);
        assert_eq!(used(&body, Op::Peek, 0), 180);
    }
}
