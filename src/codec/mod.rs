//! Every byte that goes to the wire or the disk: versions, checksums, lengths. The only place that names bincode.
//!
//! A chunk is one format for both: what peers received is what the journal keeps.

mod bytes;
mod chunk;
mod frame;
mod stored;

#[cfg(test)]
mod golden;
#[cfg(test)]
pub(crate) mod tests;

pub use frame::MAGIC;
pub use stored::{StoredDefinitions, StoredError, StoredHave, StoredLimits, StoredMeta};

use crate::crdt::Written;
use crate::engine::Group;
use crate::id::{ClusterId, ReplicaId};

/// The largest chunk, bytes: checked before anything is allocated for one.
pub const MAX_CHUNK_BYTES: usize = 16 * 1024;
/// The largest frame on the wire, bytes.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// The most replicas in a hello, a `Have` or the claims of a state: the 4,096 dead ones a cluster lists at most, and as
/// many living.
pub const MAX_HAVE: usize = 8192;
/// The largest seq: numbers above it are refused, so that counting on from one cannot overflow.
pub const MAX_SEQ: u64 = i64::MAX as u64;
/// The longest region, bytes.
pub const MAX_REGION_BYTES: usize = 63;
/// The largest definition of a limit that is told to peers, bytes.
pub const MAX_DEFINITION_BYTES: usize = 256 * 1024;
/// The most definitions in one frame.
pub const MAX_DEFINITIONS: usize = 4096;
/// The longest name of a node, bytes.
const MAX_NAME_BYTES: usize = 63;
/// The longest name of a limit, bytes.
const MAX_LIMIT_NAME_BYTES: usize = 64;
/// The version of the wire protocol; both sides of a connection must have the same.
pub const PROTOCOL_VERSION: u16 = 2;
/// The first byte of a chunk.
pub const CHUNK_VERSION: u8 = 2;

/// Changed state of one replica. It never changes once made: the same bytes go to peers, relays and the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Whose cells.
    pub replica: ReplicaId,
    /// 1, 2, 3 ... in order of flushes; 0 for a piece of state, which has no place in the order.
    pub seq: u64,
    /// The sender's wall clock when it was made, nanoseconds.
    pub stamp_ns: u64,
    /// Every spend of the replica up to this slot-clock time is in seqs up to this one. Only the last chunk of a flush
    /// moves it; 0 in the others and in state.
    pub complete_to_ns: u64,
    /// When all of it has expired, slot-clock nanoseconds.
    pub expires_ns: u64,
    /// The state.
    pub groups: Vec<Group>,
}

/// What opens a connection, in both directions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Which life of which node.
    pub replica: ReplicaId,
    /// Where the node says it is.
    pub region: String,
    /// The sender's wall clock, nanoseconds.
    pub stamp_ns: u64,
    /// M: the nodes it expects.
    pub expected_nodes: u32,
    /// For every replica it knows of: it holds every live cell of seqs 1..=n.
    pub have: Vec<(ReplicaId, u64)>,
}

/// What follows the hellos.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A chunk, as its bytes.
    Chunk(Vec<u8>),
    /// Sent every interval: the sender's wall clock, the last seq of its current life and the slot-clock time up to
    /// which that is complete, and the highest seq of the receiver's current life that the sender holds without gap.
    Beat {
        /// The sender's wall clock, nanoseconds.
        stamp_ns: u64,
        /// The last seq of the sender's current life.
        seq: u64,
        /// Every spend of that life up to this slot-clock time is in seqs up to `seq`.
        complete_to_ns: u64,
        /// What the sender holds of the receiver's current life.
        ack: u64,
    },
    /// What the sender holds, for every replica whose number moved since it last said so.
    Have(Vec<(ReplicaId, u64)>),
    /// State begins: the sender's own `have` for these replicas, read before the first cell.
    StateBegin {
        /// Numbers the states of a connection.
        sync: u64,
        /// What the receiver holds once it has all of it.
        claims: Vec<(ReplicaId, u64)>,
    },
    /// A piece of state: a chunk of seq 0, as its bytes.
    State {
        /// Which state.
        sync: u64,
        /// The chunk.
        chunk: Vec<u8>,
    },
    /// All of it was sent: now the claims hold.
    StateEnd {
        /// Which state.
        sync: u64,
    },
    /// Everything that the receiver's hello lacked was sent.
    CaughtUp,
    /// The sender's limits.
    Limits(Vec<LimitDigest>),
    /// What was written last of limits that were defined or deleted at run time, by name.
    Definitions(Vec<(String, Written)>),
    /// Are you still there?
    Ping(u64),
    /// Yes.
    Pong(u64),
}

/// What a node says of a limit of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitDigest {
    /// Its name.
    pub name: String,
    /// Equal where the definitions are.
    pub hash: u64,
    /// Whether the node's file defines it.
    pub of_file: bool,
}

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Of another version.
    #[error("{what} version {theirs}, this tidegate reads {ours}")]
    Version {
        /// Of what.
        what: &'static str,
        /// The version that is read here.
        ours: u16,
        /// The version found.
        theirs: u16,
    },
    /// The checksum is not that of the bytes.
    #[error("the checksum is wrong: the bytes were damaged")]
    Checksum,
    /// The bytes end where something should follow.
    #[error("the bytes end before {0} does")]
    Truncated(&'static str),
    /// Something follows the end.
    #[error("{0} bytes follow the end")]
    Trailing(usize),
    /// Longer than it may be.
    #[error("{what}: {len} is more than the {most} that are allowed")]
    TooLong {
        /// What.
        what: &'static str,
        /// How long.
        len: u64,
        /// How long it may be.
        most: u64,
    },
    /// A value that cannot be.
    #[error("{what}: {problem}")]
    Invalid {
        /// What.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The same content has other bytes: an integer longer than need be, or a form that is not the shortest.
    #[error("not written in the one way there is to write it")]
    NotCanonical,
}
