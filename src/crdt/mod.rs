//! The replicated structure: `key -> slot -> replica -> cell`, reset marks, and bases; and how each merges. Beside
//! it a [`Registry`]: names of which the last write wins.
//!
//! Nothing here knows an algorithm, a clock or a limit. Merging is commutative, associative and idempotent on
//! reachable states (`laws` holds the property tests).

mod base;
mod cell;
mod mark;
mod registry;
mod slots;

#[cfg(test)]
mod laws;

pub use base::Base;
pub use cell::Cell;
pub use mark::Mark;
pub use registry::{MAX_DELETED, MAX_REGISTRY_BYTES, MAX_STAMP_NS, Registry, RegistryFull, Stamp, Written};
pub use slots::{Merged, ReplicaIx, SlotCell, Slots, by_slot, net_spent};
