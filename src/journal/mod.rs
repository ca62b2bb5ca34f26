//! The journal: what a node must not forget over a restart.
//!
//! A [`Store`] keeps [`Record`]s (chunks as peers got them) until they expire, and in the same atomic batch how far they
//! reach (`have`). There are two: [`SledStore`] on disk, and [`MemoryStore`], whose [`MemoryDisk`] can crash, fail and be
//! restored, for simulations. The node pushes records into a [`Pending`] queue; a [`Writer`] cuts it, commits it, and
//! sees to expiry, to compaction and to a disk that fails and comes back. What it does shows in a [`Status`].

mod folder;
mod memory;
mod pending;
mod sled_store;
mod status;
mod writer;

pub use memory::{DiskFault, MemoryDisk, MemoryImage, MemoryStore};
pub use pending::{MAX_PENDING_BYTES, Overflow, Pending};
pub use sled_store::SledStore;
pub use status::{Figures, Status};
pub use writer::{Source, Writer, WriterThread};

pub use crate::gossip::Record;
use std::sync::Arc;

use crate::crdt::Registry;
use crate::id::{NodeName, ReplicaId, Secret};
use crate::limits::LimitSet;
use crate::time::SECOND;

/// The version of the data folder's format; another one is refused.
pub const FORMAT_VERSION: u16 = 2;

/// What is written at once: all of it or nothing survives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Chunks.
    pub records: Vec<Record>,
    /// What this and the earlier batches hold; None leaves what is stored.
    pub have: Option<Vec<(ReplicaId, u64)>>,
    /// The slot clock, nanoseconds.
    pub slot_clock_ns: u64,
    /// The generation under which the node writes now: it may have begun a new life since [`Store::begin_life`]. A
    /// lower one than is stored leaves that.
    pub generation: u64,
    /// The limits that this and the earlier batches were counted under; None leaves what is stored.
    pub limits: Option<Arc<LimitSet>>,
    /// The limits made at run time; None leaves what is stored.
    pub definitions: Option<Arc<Registry>>,
}

/// What a store held at the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Chunks, in any order.
    pub records: Vec<Vec<u8>>,
    /// Empty when anything was damaged: then everything is asked for again.
    pub have: Vec<(ReplicaId, u64)>,
    /// 0 when there was none.
    pub slot_clock_ns: u64,
    /// The last generation this node lived; 0 when there was none.
    pub generation: u64,
    /// The limits that the records were counted under, as far as they are known.
    pub limits: LimitSet,
    /// The limits made at run time.
    pub definitions: Registry,
    /// What was skipped because it was damaged.
    pub damaged: u64,
}

/// Why a store does not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum StoreError {
    #[error("{path}: {problem}")]
    Io { path: String, problem: String },
    #[error("{path} belongs to the node {theirs:?}, this node is {ours:?}: give each node a data folder of its own")]
    Foreign { path: String, ours: String, theirs: String },
    #[error("{path} has format version {theirs}, this tidegate reads {ours}")]
    Version { path: String, ours: u16, theirs: u16 },
    #[error("{path} is in use by another process")]
    Locked { path: String },
    #[error("{path} is no sound data folder: {problem}. Move it away; the peers give back what they have heard")]
    Damaged { path: String, problem: String },
}

/// Bases that stand for dropped slots are written with the sweep that comes next, which takes its time: for so long what
/// had expired when the journal was last written is still read, nanoseconds.
const SWEEP_LAG_NS: u64 = 10 * SECOND;

/// The slot-clock time as of which a journal is read: what had not expired by then counts in whole. A while before it was
/// last written, if that is not ahead of the clock.
pub(crate) fn alive_from_ns(now_ns: u64, stored_ns: u64) -> u64 {
    let written_ns = if stored_ns == 0 { now_ns } else { now_ns.min(stored_ns) };
    written_ns.saturating_sub(SWEEP_LAG_NS)
}

/// Tells a sound record from a damaged one: the codec's check of a chunk.
pub type Check = fn(&[u8]) -> bool;

/// A place that survives. One caller at a time; every call may block.
pub trait Store: Send + 'static {
    /// Reads everything that had not expired when it was last written, nor at `now_ns` if that is earlier: of a bucket's
    /// slots that expired meanwhile the debt may not be paid. Checks that the store is this node's. Comes before any other
    /// call. What is damaged is forgotten for good, and so is what was claimed.
    fn recover(&mut self, node: &NodeName, now_ns: u64, sound: Check) -> Result<Recovered, StoreError>;
    /// Stores the generation of the life that begins, durably, before anything is admitted.
    fn begin_life(&mut self, own: &ReplicaId) -> Result<(), StoreError>;
    /// The hash secret of a node without a cluster: `fresh` is stored when there is none yet.
    fn secret(&mut self, fresh: Secret) -> Result<Secret, StoreError>;
    /// Writes a batch; it is durable when this returns. After an error all of it or nothing is there, and a later call
    /// tries anew.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError>;
    /// Forgets records that expired before `now_ns`, a bounded number a call. Returns how many.
    fn expire(&mut self, now_ns: u64) -> Result<u64, StoreError>;
    /// The number of the next record: they are numbered as they are written.
    fn next_number(&self) -> u64;
    /// Forgets the records numbered below `number`. Returns how many.
    fn forget_below(&mut self, number: u64) -> Result<u64, StoreError>;
    /// Bytes of the records held.
    fn held_bytes(&self) -> u64;
}
