//! The replication protocol, without I/O: who has heard what of whom, what to send next, what to believe. Time and
//! frames are passed in, frames are fetched with [`Gossip::poll`]. The node calls it, under one lock, for its transport.
//!
//! What holds it together, and is nowhere broken: values may always be merged, in any order and as often as one likes;
//! `have[replica] = n` says that every live cell of seqs 1..=n is held, and moves by seq n+1 or by a claim alone.
//!
//! - `have`: what this node holds, by replica. `ring`: recent chunks, to be sent again.
//! - `lives`: which connection speaks for a node, and what happens to a second one.
//! - `send`: what is written next on a connection. `sync`: state instead of chunks, both ends of it.
//! - `receive`: what an arriving frame comes to. `status`: what is told of the peers.
//! - `definitions`: limits made at run time, which every peer tells every other.
//!
//! Membership beyond the seeds, relaying and the comparison of digests will join here: membership beside `lives`, the
//! other two as further frames in `send` and `receive`.

mod conn;
mod definitions;
mod have;
mod lives;
mod receive;
mod ring;
mod send;
mod status;
mod sync;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::conn::{Conn, Standing};
use self::have::HaveTable;
use self::ring::Ring;
use self::status::{Limits, Peer};
use crate::codec::{Chunk, Hello};
use crate::crdt::Registry;
use crate::engine::{Drained, Engine};
use crate::id::{ClusterId, NodeName, ReplicaId};
use crate::limits::LimitSet;
use crate::planted::{self, PlantedBug};
use crate::time::{MS, SECOND};

/// Peers that are remembered, connected or not.
pub const MAX_PEERS: usize = 1024;
/// Connections at once: one a peer, one more of each while it is not decided which of two stays, and those that close.
pub const MAX_CONNS: usize = 2 * MAX_PEERS;
/// States that are sent at once, over all connections.
pub const MAX_SYNCS: usize = 4;
/// How long an old connection may take to answer before a new one of the same node takes its place.
pub const PROBE_NS: u64 = 800 * MS;
/// How often a peer is told what this node holds, when that changed.
pub const HAVE_EVERY_NS: u64 = SECOND;
/// How long a second process of a peer's name is reported after it tried.
pub const DUPLICATE_REPORTED_NS: u64 = 60 * SECOND;
const PRUNE_EVERY_NS: u64 = SECOND;

/// A connection, numbered by the transport, never reused within a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// The three clocks, read once a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The slot clock.
    pub slot_ns: u64,
    /// This node's wall clock: what messages bear.
    pub wall_ns: u64,
    /// The monotonic clock: for timeouts.
    pub mono_ns: u64,
}

/// How the protocol is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which cluster.
    pub cluster: ClusterId,
    /// This life of this node.
    pub own: ReplicaId,
    /// Where it is.
    pub region: String,
    /// M as configured.
    pub expected_nodes: u32,
    /// Seeds configured: N is at least this many and the node itself.
    pub seeds: u32,
    /// Recent chunks kept for peers, bytes, all replicas together.
    pub ring_bytes: usize,
}

/// A chunk to be kept on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it may be forgotten, slot-clock nanoseconds.
    pub expires_ns: u64,
    /// A chunk as `codec` has it.
    pub bytes: Vec<u8>,
}

/// What a received frame came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// To be kept on disk, before any `have` that is read later.
    pub records: Vec<Record>,
    /// A wall-clock stamp of this peer, for the slot clock.
    pub stamp_ns: Option<u64>,
    /// Somebody may have something to send now.
    pub wake: bool,
    /// Limits of which a newer definition came to be known, or that they were deleted.
    pub defined: Vec<String>,
    /// This node must take a new id at once ([`Gossip::new_life`]).
    pub own_above: bool,
}

/// Why a connection was not accepted or is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refusal {
    #[error("protocol version {theirs}, this node speaks {ours}")]
    Version { ours: u16, theirs: u16 },
    #[error("another cluster: the secrets differ")]
    Cluster,
    #[error("its certificate does not bear its name {0}")]
    Certificate(NodeName),
    #[error("it calls itself {0}, which is this node's own name")]
    OwnName(NodeName),
    #[error("another process called {0} is alive and answers")]
    Duplicate(NodeName),
    #[error("there is a connection to {0} already")]
    AlreadyConnected(NodeName),
    #[error("replaced by a newer connection")]
    Replaced,
    #[error("this node goes on under a new id, which the connection does not know")]
    NewLife,
    #[error("{most} {what} are as many as this node takes")]
    Full { what: &'static str, most: usize },
    #[error("malformed: {0}")]
    Malformed(String),
}

/// What to do next for a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Write this frame, then ask again.
    Frame(Vec<u8>),
    /// Nothing until woken.
    Idle,
    /// Close it.
    Close(Refusal),
}

/// What is known of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its current life.
    pub replica: ReplicaId,
    /// Where it is.
    pub region: String,
    /// Whether a connection is up.
    pub connected: bool,
    /// Its clock is too far away: see [`Gossip::set_unreachable`].
    pub unreachable: bool,
    /// How old the newest complete knowledge of it is, nanoseconds of slot clock; u64::MAX while there is none.
    pub lag_ns: u64,
    /// Own chunks that it has not acknowledged.
    pub backlog: u64,
    /// Limits whose definitions differ from this node's, or that only one of the two has.
    pub limits_differ: Vec<String>,
    /// A second process of its name tried to connect within the last [`DUPLICATE_REPORTED_NS`], while this one answered.
    pub duplicate: bool,
    /// How many chunks it sent that were too far in the future, and were refused.
    pub refused_ahead: u64,
}

/// How much the protocol holds, each against a bound of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// At most [`Settings::ring_bytes`].
    pub ring_bytes: usize,
    /// At most [`MAX_CONNS`].
    pub conns: usize,
    /// At most [`MAX_PEERS`].
    pub peers: usize,
    /// Replicas of which something is held: at most [`crate::codec::MAX_HAVE`].
    pub replicas: usize,
}

/// The protocol's state.
#[derive(Debug)]
pub struct Gossip {
    settings: Settings,
    /// The current life: under which chunks are numbered.
    own: ReplicaId,
    /// By replica, this node's own among them, whose seq is the last one given.
    have: HaveTable,
    ring: Ring,
    conns: BTreeMap<ConnId, Conn>,
    peers: BTreeMap<NodeName, Peer>,
    limits: Limits,
    definitions: Arc<Registry>,
    definitions_refused: u64,
    last_token: u64,
    pruned_at_mono_ns: u64,
    synced: bool,
}

impl Gossip {
    /// `have` and `definitions` are what the journal recovered.
    pub fn new(settings: Settings, have: Vec<(ReplicaId, u64)>, definitions: Registry) -> Self {
        let mut have = HaveTable::recovered(have);
        have.enter_own(&settings.own);
        Self {
            own: settings.own.clone(),
            have,
            ring: Ring::new(settings.ring_bytes),
            conns: BTreeMap::new(),
            peers: BTreeMap::new(),
            limits: Limits::default(),
            definitions: Arc::new(definitions),
            definitions_refused: 0,
            last_token: 0,
            pruned_at_mono_ns: 0,
            synced: false,
            settings,
        }
    }

    /// The hello frame, encoded.
    pub fn hello(&self, now: &Now) -> Vec<u8> {
        let hello = Hello {
            cluster: self.settings.cluster,
            replica: self.own.clone(),
            region: self.settings.region.clone(),
            stamp_ns: now.wall_ns,
            expected_nodes: self.settings.expected_nodes,
            have: self.have.list(),
        };
        hello.encode()
    }

    /// Drains the engine into chunks, to be sent to every peer and kept on disk. To be called every interval and when a
    /// check was urgent. Every peer is due a beat afterwards: wake the writers.
    pub fn flush(&mut self, now: &Now, engine: &Engine) -> Vec<Record> {
        let records = self.number(engine.drain(now.slot_ns), now);
        for conn in self.conns.values_mut() {
            conn.out.beats_due = conn.out.beats_due.saturating_add(1);
        }
        records
    }

    /// Makes chunks of the current life.
    fn number(&mut self, drained: Drained, now: &Now) -> Vec<Record> {
        let mut records = Vec::with_capacity(drained.parts.len());
        let last = drained.parts.len().wrapping_sub(1);
        for (at, part) in drained.parts.into_iter().enumerate() {
            let seq = self.have.seq(&self.own) + 1;
            let (stamp_ns, expires_ns) = (now.wall_ns, part.expires_ns);
            // Only when all of a flush was sent is everything up to its time.
            let complete = at == last || planted::has(PlantedBug::CompleteByFirst);
            let complete_to_ns = if complete { drained.complete_to_ns } else { 0 };
            let replica = self.own.clone();
            let bytes = Chunk { replica, seq, stamp_ns, complete_to_ns, expires_ns, groups: part.groups }.encode();
            self.ring.insert(&self.own, seq, &bytes);
            self.have.advance(&self.own, seq, expires_ns);
            records.push(Record { expires_ns, bytes });
        }
        self.have.complete(&self.own, self.have.seq(&self.own), drained.complete_to_ns);
        records
    }

    /// Timeouts. To be called about every 100 ms; wake the writers afterwards.
    pub fn tick(&mut self, now: &Now) {
        self.settle_newcomers(now);
        for conn in self.conns.values_mut().filter(|conn| conn.standing == Standing::Active) {
            conn.notice_stall(&self.own, &mut self.last_token, now);
        }
        self.look_whether_synced();
        if now.mono_ns.saturating_sub(self.pruned_at_mono_ns) >= PRUNE_EVERY_NS {
            self.pruned_at_mono_ns = now.mono_ns;
            let (own, conns) = (&self.own, &self.conns);
            self.have.prune(now.slot_ns, |replica| replica == own || conns.values().any(|conn| conn.peer == *replica));
        }
    }

    /// What this node holds: for every replica, all live cells of seqs 1..=n.
    pub fn have(&self) -> Vec<(ReplicaId, u64)> {
        self.have.list()
    }

    /// For every replica of which that is known, the slot-clock time up to which all that it spent is held here.
    pub fn complete_to(&self) -> Vec<(ReplicaId, u64)> {
        self.have.complete_to()
    }

    /// How much the protocol holds.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            ring_bytes: self.ring.bytes(),
            conns: self.conns.len(),
            peers: self.peers.len(),
            replicas: self.have.len(),
        }
    }

    /// The limits in force here changed; `file`: those that this node's file defines.
    pub fn set_limits(&mut self, limits: &LimitSet, file: &LimitSet) {
        self.limits.set(limits, file);
        for peer in self.peers.values_mut() {
            peer.compare_limits(&self.limits);
        }
    }

    /// This node writes under another id from now on ([`Engine::new_life`]). The last changes of the old life go out
    /// under the old id. Connections are closed, since the peers know them to be the old life's. `drop_ahead`: the clock
    /// went back. What was refused or dropped as expired by the former time may be alive by this one, so nothing is
    /// claimed any more, and all is asked for again.
    pub fn new_life(&mut self, own: ReplicaId, drop_ahead: bool, now: &Now, engine: &Engine) -> Vec<Record> {
        let records = self.number(engine.new_life(now.slot_ns, own.clone(), drop_ahead), now);
        if drop_ahead && !planted::has(PlantedBug::ClaimsOfTheFuture) {
            self.have = HaveTable::default();
        }
        self.have.enter_own(&own);
        self.own = own;
        for conn in self.conns.values_mut() {
            conn.close(Refusal::NewLife);
        }
        records
    }
}
