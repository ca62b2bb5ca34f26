//! What leaves and enters the engine: changed state of keys, grouped by shape. Plain values; `codec` turns them into
//! bytes.

use crate::crdt::{Base, Cell, Mark};
use crate::id::{KeyHash, ReplicaId};
use crate::limits::Shape;

/// One replica's cell of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyCell {
    /// Which key, of which limit.
    pub key: KeyHash,
    /// The slot.
    pub slot: u64,
    /// The absolute value.
    pub cell: Cell,
}

/// A key's reset mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyMark {
    /// Which key, of which limit.
    pub key: KeyHash,
    /// The mark.
    pub mark: Mark,
    /// Until when it must be kept, slot-clock nanoseconds. Merges by max.
    pub until_ns: u64,
}

/// A bucket's base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyBase {
    /// Which key, of which limit.
    pub key: KeyHash,
    /// The slot at whose start it holds.
    pub slot: u64,
    /// T and D, and the mark they were computed under.
    pub base: Base,
}

/// State of keys of one shape. The cells are all of one replica, which whoever holds the group knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// What gives the numbers their meaning: carried in full, so that a node which does not know the limit (yet) still
    /// holds, passes on and expires the cells.
    pub shape: Shape,
    /// Cells of one replica.
    pub cells: Vec<KeyCell>,
    /// Marks.
    pub marks: Vec<KeyMark>,
    /// Bases.
    pub bases: Vec<KeyBase>,
}

impl Group {
    /// A group of nothing.
    pub fn new(shape: Shape) -> Self {
        Self { shape, cells: Vec::new(), marks: Vec::new(), bases: Vec::new() }
    }

    /// How many cells, marks and bases.
    pub fn len(&self) -> usize {
        self.cells.len() + self.marks.len() + self.bases.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Groups that expire together: what fits one chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// When the last of it has expired, rounded up (`max(10 s, kept/8)`) so that few different times arise.
    pub expires_ns: u64,
    /// At most [`super::MAX_PART_ITEMS`] items in all.
    pub groups: Vec<Group>,
}

/// Everything this node changed since the last drain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drained {
    /// Every own spend up to this slot-clock time is in this drain or an earlier one, and no later spend is before it.
    pub complete_to_ns: u64,
    /// Empty when nothing changed.
    pub parts: Vec<Part>,
}

/// What a merge came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Merge {
    /// Items that made something larger or new.
    pub changed: usize,
    /// Items that were known already or that a mark forgives.
    pub known: usize,
    /// Items whose slot had expired on arrival: refused (a bucket's late cell leaves its `fin` and `debited` in the base).
    pub expired: usize,
    /// Items refused because the table of cells or of replicas is full. Their replica must not be claimed.
    pub refused: usize,
    /// Someone holds more of this node's own current id than itself: its memory was cloned, it must take a new id.
    pub own_above: bool,
}

/// A slot further ahead than `2 * max_skew`: nothing of the groups was taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a slot starts {ahead_ms} ms ahead of this node's clock, more than twice max_skew")]
pub struct TooFarAhead {
    /// How far, milliseconds.
    pub ahead_ms: u64,
}

/// Where an export stands. Entries never move, so it stays sound while the state changes: what it misses is newer than
/// its beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ExportCursor {
    /// The shard.
    pub shard: u32,
    /// The next entry in it.
    pub entry: u32,
}

/// A piece of the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Cells by replica, each list of groups at most [`super::MAX_PART_ITEMS`] items; marks and bases stand with this
    /// node's own id.
    pub parts: Vec<(ReplicaId, Part)>,
    /// Where to go on; None at the end.
    pub next: Option<ExportCursor>,
}
