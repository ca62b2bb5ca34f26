//! The engine: all state of a node, sharded; decides requests, collects what changed, takes in what others counted,
//! and forgets what is over. No I/O and no clock: every call is told the time.

mod ask;
mod bindings;
mod carry;
mod decide;
mod delta;
mod drain;
mod entry;
mod expire;
mod install;
mod lives;
mod merge;
mod names;
mod pack;
mod read;
mod shard;
mod slab;
pub mod spec;
mod spend;
mod sweep;
mod usage;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};

pub use ask::{Answer, Ask, AskError, KeyCells, Op, Outcome, Reason, ReplicaUsage, Usage};
pub use delta::{Drained, Export, ExportCursor, Group, KeyBase, KeyCell, KeyMark, Merge, Part, TooFarAhead};
pub use sweep::SWEEP_PIECES;

use crate::id::{ReplicaId, Secret};
use crate::limits::{OnFull, Retention};

use self::bindings::Bindings;
use self::names::Names;
use self::shard::{SHARDS, Shard};

/// The longest key, bytes.
pub const MAX_KEY_BYTES: usize = 1024;
/// The most (limit, key, cost) in one request.
pub const MAX_ASKS: usize = 64;
/// The most items in one [`Part`]: with any form of cell and the largest values it stays below 16 KiB on the wire.
pub const MAX_PART_ITEMS: usize = 112;

/// How an engine is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keys that this node itself spends on, all limits together.
    pub max_keys: u64,
    /// What happens beyond it.
    pub on_full: OnFull,
    /// Cells held in all, peers' included.
    pub max_cells: u64,
    /// How long slots are kept.
    pub retention: Retention,
    /// M: the nodes that may decide at once; sizes the overdraft room of buckets.
    pub expected_nodes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let (max_keys, expected_nodes) = (1_000_000, 8);
        let max_cells = u64::from(expected_nodes) * max_keys;
        Self { max_keys, on_full: OnFull::Allow, max_cells, retention: Retention::default(), expected_nodes }
    }
}

/// Figures for health and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Keys held, peers' included.
    pub keys: u64,
    /// Keys this node itself has spent on.
    pub own_keys: u64,
    /// Cells held; bases and marks count as one each.
    pub cells: u64,
    /// Decisions that a full table of keys made: admitted without counting.
    pub full_allowed: u64,
    /// Decisions that a full table of keys made: denied.
    pub full_denied: u64,
    /// Items of peers refused at `max_cells`.
    pub refused_cells: u64,
    /// Items of peers that had expired on arrival.
    pub expired_on_arrival: u64,
}

/// All state of a node.
///
/// Locks are taken in this order: `installing`, `names`, the shards in ascending order, `own`.
pub struct Engine {
    settings: Settings,
    secret: Secret,
    shards: Box<[Padded]>,
    names: RwLock<Names>,
    bindings: ArcSwap<Bindings>,
    /// Limits, expected nodes and the own id change one at a time.
    installing: Mutex<()>,
    own: Mutex<ReplicaId>,
    members: AtomicU32,
    own_keys: AtomicU64,
    /// Cells held, as far as the shards have told; it lags behind by what was decided since the last drain.
    cells: AtomicI64,
    counters: Counters,
}

/// A shard on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

#[derive(Debug, Default)]
struct Counters {
    full_allowed: AtomicU64,
    full_denied: AtomicU64,
    refused_cells: AtomicU64,
    expired_on_arrival: AtomicU64,
}

impl Engine {
    /// An engine of no keys and no limits, writing its own cells as `own`.
    pub fn new(settings: Settings, own: ReplicaId, secret: &Secret) -> Self {
        let names = Names::new(&own, settings.retention, settings.expected_nodes);
        let shards = (0..SHARDS).map(|_| Padded(Mutex::new(Shard::new(names.own())))).collect();
        Self {
            settings,
            secret: secret.clone(),
            shards,
            names: RwLock::new(names),
            bindings: ArcSwap::from_pointee(Bindings::none()),
            installing: Mutex::new(()),
            own: Mutex::new(own),
            members: AtomicU32::new(1),
            own_keys: AtomicU64::new(0),
            cells: AtomicI64::new(0),
            counters: Counters::default(),
        }
    }

    /// N: the members known, this node included: how soon a hot key asks for an early flush.
    pub fn set_members(&self, members: u32) {
        self.members.store(members, Ordering::Relaxed);
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        let (mut keys, mut cells) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            keys += u64::from(shard.slab.len());
            cells += shard.cells;
        }
        Stats {
            keys,
            own_keys: self.own_keys.load(Ordering::Relaxed),
            cells,
            full_allowed: self.counters.full_allowed.load(Ordering::Relaxed),
            full_denied: self.counters.full_denied.load(Ordering::Relaxed),
            refused_cells: self.counters.refused_cells.load(Ordering::Relaxed),
            expired_on_arrival: self.counters.expired_on_arrival.load(Ordering::Relaxed),
        }
    }
}

impl std::ops::Deref for Padded {
    type Target = Mutex<Shard>;
    fn deref(&self) -> &Mutex<Shard> {
        &self.0
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("settings", &self.settings).field("stats", &self.stats()).finish()
    }
}
