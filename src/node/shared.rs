//! What the tasks of a node share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngCore;
use rand::rngs::StdRng;
use tokio::sync::{Notify, watch};

use super::definitions::Definitions;
use super::source::record;
use crate::engine::Engine;
use crate::gossip::{ConnId, Gossip, Now};
use crate::id::{NodeName, ReplicaId};
use crate::journal::{Pending, Status};
use crate::limits::LimitSet;
use crate::planted::{self, PlantedBug};
use crate::time::{Clock, Discipline, MS, SECOND, SlotClock};

/// A node whose stored slot clock is further ahead than `max_skew` waits this long at most for someone to confirm a
/// clock before it is ready, nanoseconds.
const CLOCK_DOUBT_NS: u64 = 60 * SECOND;

/// After so many beats of a peer one round trip at least was measured without a loss.
const SURE_AFTER_BEATS: u32 = 8;

/// What a node is made of before its tasks start.
pub(super) struct Built {
    pub region: String,
    pub max_keys: u64,
    pub max_cells: u64,
    pub engine: Engine,
    pub clock: Arc<dyn Clock>,
    pub slot_clock: SlotClock,
    pub gossip: Gossip,
    pub definitions: Definitions,
    pub rng: StdRng,
    pub interval: Duration,
    pub sync_timeout: Option<Duration>,
    pub damaged: u64,
    pub stored_clock_ns: u64,
    pub stopping: watch::Receiver<bool>,
}

/// The protocol and what it has for the journal: under one lock, so that `have` and records are cut together.
pub(super) struct Core {
    pub gossip: Gossip,
    pub definitions: Definitions,
    pub pending: Pending,
    /// The limits under which everything flushed so far was counted or to which it was carried over.
    pub settled_limits: Option<Arc<LimitSet>>,
}

/// A link to a peer.
pub(super) struct LinkInfo {
    pub peer: NodeName,
    /// The least that was measured; 0 before any was.
    pub rtt_ns: u64,
    pub beats: u32,
}

/// What the tasks of a node share.
pub(super) struct Shared {
    pub region: String,
    pub max_keys: u64,
    pub max_cells: u64,
    pub engine: Arc<Engine>,
    pub clock: Arc<dyn Clock>,
    pub slot_clock: Arc<SlotClock>,
    pub core: Mutex<Core>,
    pub links: Mutex<BTreeMap<ConnId, LinkInfo>>,
    /// Seeds at which no node has answered since the start: who they are is not known.
    pub silent_seeds: Mutex<BTreeSet<String>>,
    /// The last peer that turned this node away for another process of its name, and when.
    pub outlived: Mutex<Option<(NodeName, u64)>>,
    pub changes: watch::Sender<u64>,
    pub urge: Arc<Notify>,
    pub journal: Arc<Status>,
    pub interval: Duration,
    pub stopping: watch::Receiver<bool>,
    pub config_problem: Mutex<Option<String>>,
    pub rejected: AtomicU64,
    /// 0 without a certificate.
    pub certificate_expires_s: AtomicI64,
    pub damaged: u64,
    /// Up to when everything expired is swept, slot-clock nanoseconds.
    pub swept_ns: AtomicU64,
    ready_at_latest_ns: Option<u64>,
    doubt: Mutex<Option<Doubt>>,
    rng: Mutex<StdRng>,
}

/// The stored slot clock was far ahead of the system's: which of them is right?
#[derive(Clone, Copy)]
struct Doubt {
    stored_ns: u64,
    until_mono_ns: u64,
}

impl LinkInfo {
    /// What the slot clock goes by. Packets lost while a connection is made have its first round trips seem long by as
    /// much as the loss took, and half of that would read as a clock ahead of this one. Without it a stamp is a lower
    /// bound.
    pub fn sure_rtt_ns(&self) -> u64 {
        if self.beats < SURE_AFTER_BEATS { 0 } else { self.rtt_ns }
    }
}

impl Shared {
    pub fn new(built: Built) -> Self {
        let mono_ns = built.clock.monotonic_ns();
        let ahead_ns = built.stored_clock_ns.saturating_sub(built.clock.system_ns());
        let doubtful = ahead_ns > built.slot_clock.max_skew_ns();
        let doubt = Doubt { stored_ns: built.stored_clock_ns, until_mono_ns: mono_ns + CLOCK_DOUBT_NS };
        let journal = Arc::new(Status::default());
        let pending = Pending::new(Arc::clone(&journal));
        let shared = Self {
            region: built.region,
            max_keys: built.max_keys,
            max_cells: built.max_cells,
            engine: Arc::new(built.engine),
            clock: built.clock,
            slot_clock: Arc::new(built.slot_clock),
            core: Mutex::new(Core {
                gossip: built.gossip,
                definitions: built.definitions,
                pending,
                settled_limits: None,
            }),
            links: Mutex::default(),
            silent_seeds: Mutex::default(),
            outlived: Mutex::default(),
            changes: watch::Sender::new(0),
            urge: Arc::default(),
            journal,
            interval: built.interval,
            stopping: built.stopping,
            config_problem: Mutex::default(),
            rejected: AtomicU64::new(0),
            certificate_expires_s: AtomicI64::new(0),
            damaged: built.damaged,
            swept_ns: AtomicU64::new(0),
            ready_at_latest_ns: built.sync_timeout.map(|timeout| mono_ns + timeout.as_nanos() as u64),
            doubt: Mutex::new(doubtful.then_some(doubt)),
            rng: Mutex::new(built.rng),
        };
        shared.follow_members(&shared.core.lock().gossip);
        shared
    }

    /// The three clocks.
    pub fn now(&self) -> Now {
        let mono_ns = self.clock.monotonic_ns();
        let (slot_ns, wall_ns) = (self.slot_clock.now(mono_ns), self.slot_clock.wall(mono_ns));
        let wall_ns = if planted::has(PlantedBug::SlotClockStamps) { slot_ns } else { wall_ns };
        Now { slot_ns, wall_ns, mono_ns }
    }

    /// Lets the connection writers look again.
    pub fn wake(&self) {
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Sends and stores everything changed since the last flush.
    pub fn flush(&self) {
        {
            let mut core = self.core.lock();
            // Read first: what was carried over to these limits goes out with this flush at the latest.
            let settled = self.engine.settled_limits();
            let records = core.gossip.flush(&self.now(), &self.engine);
            core.pending.push(records);
            core.settled_limits = settled.or(core.settled_limits.take());
        }
        self.wake();
    }

    /// The protocol's own timeouts.
    pub fn tick(&self) {
        {
            let mut core = self.core.lock();
            core.gossip.tick(&self.now());
            self.follow_members(&core.gossip);
            let peers: Vec<NodeName> = self.links.lock().values().map(|link| link.peer.clone()).collect();
            for peer in peers {
                core.gossip.set_unreachable(&peer, self.slot_clock.beyond_skew(&peer));
            }
        }
        self.wake();
    }

    /// Tells the engine how many nodes there are.
    pub fn follow_members(&self, gossip: &Gossip) {
        self.engine.set_members(gossip.members());
        self.engine.set_expected_nodes(gossip.expected_nodes());
    }

    /// Compares the clocks.
    pub fn follow_clock(&self) -> Discipline {
        let (mono_ns, system_ns) = (self.clock.monotonic_ns(), self.clock.system_ns());
        let discipline = self.slot_clock.discipline(mono_ns, system_ns);
        match discipline {
            Discipline::Following => {}
            Discipline::Stepped(by_ns) => tracing::warn!(by_ms = by_ns / MS as i64, "stepped to the system clock"),
            Discipline::NewLife => {
                tracing::warn!("the system clock went far back: starting a new life");
                self.new_life(true);
            }
        }
        discipline
    }

    /// Drops what has expired in one of the [`crate::engine::SWEEP_PIECES`].
    pub fn sweep_piece(&self, now: &Now, piece: usize) {
        let own = self.engine.own();
        let bases = self.engine.sweep_piece(now.slot_ns, piece);
        let records = bases.into_iter().map(|part| record(own.clone(), part, now)).collect();
        self.core.lock().pending.push(records);
    }

    /// All pieces were swept, as of `now`.
    pub fn swept(&self, now: &Now) {
        self.swept_ns.store(now.slot_ns, Ordering::Release);
    }

    /// Takes a new id: the old one may be used by someone else, or its cells lie in a future that will not come.
    pub fn new_life(&self, drop_ahead: bool) {
        let mut core = self.core.lock();
        let now = self.now();
        let old = self.engine.own();
        let nonce = self.rng.lock().next_u32();
        let own = ReplicaId::next_life(old.node, old.generation, self.clock.system_ns() / MS, nonce);
        tracing::warn!(%own, "writing under a new id");
        // The generation is stored with the next batch; until then the nonce alone makes the id unique.
        let last = core.gossip.new_life(own, drop_ahead, &now, &self.engine);
        core.pending.push(last);
    }

    /// Why the node is not ready.
    pub fn why_not_ready(&self) -> Option<String> {
        if *self.stopping.borrow() {
            return Some("stopping".to_owned());
        }
        let mono_ns = self.clock.monotonic_ns();
        if self.in_doubt(mono_ns) {
            return Some(
                "the stored slot clock is far ahead of the system clock; waiting for a peer to confirm one".into(),
            );
        }
        let latest_ns = self.ready_at_latest_ns?;
        let waits = mono_ns < latest_ns && !self.core.lock().gossip.synced();
        waits.then(|| "no seed has answered yet, or one is still sending its state".to_owned())
    }

    fn in_doubt(&self, mono_ns: u64) -> bool {
        let mut doubt = self.doubt.lock();
        let Some(Doubt { stored_ns, until_mono_ns }) = *doubt else { return false };
        let skew_ns = self.slot_clock.max_skew_ns();
        let caught_up = self.clock.system_ns().saturating_add(skew_ns) >= stored_ns;
        let heard = |link: &LinkInfo| {
            self.slot_clock.offset_of(&link.peer).is_some_and(|offset| offset.unsigned_abs() <= skew_ns)
        };
        let confirmed = caught_up || self.links.lock().values().any(heard);
        if confirmed || mono_ns >= until_mono_ns {
            *doubt = None;
        }
        doubt.is_some()
    }
}
