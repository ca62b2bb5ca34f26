//! A map of which the last writer of each name wins, deletions included.
//!
//! A write bears a [`Stamp`] of a hybrid clock: the writer's wall clock, but later than every stamp it has seen (after
//! Kulkarni et al., "Logical Physical Clocks", 2014). So a write that knew of another one wins over it, however wrong the
//! clocks are; of two that did not know of each other the one with the later clock wins, by the name of the writer where
//! both are equal. What a value is, nothing here knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::NodeName;

/// The latest stamp, nanoseconds: the year 2262. A peer that sends a later one is refused.
pub const MAX_STAMP_NS: u64 = 1 << 63;
/// The most names of which only the deletion is kept. Of more the oldest are forgotten: what a node still holds that was
/// cut off since before then comes back.
pub const MAX_DELETED: usize = 10_000;
/// The most bytes of all names and values, each name with what it needs beside them.
pub const MAX_REGISTRY_BYTES: usize = 16 * 1024 * 1024;
/// What a name needs in memory beside itself and its value.
const ENTRY_BYTES: usize = 128;

/// When, and by whom.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stamp {
    /// Nanoseconds.
    pub at_ns: u64,
    /// The node.
    pub by: NodeName,
}

/// What was written last of a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Written {
    /// When and by whom.
    pub stamp: Stamp,
    /// None: it was deleted. Two values under one stamp are the work of a cloned node: then the greater one wins.
    pub value: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
struct Entry {
    written: Written,
    /// Counts what came to be known here, in this order.
    version: u64,
}

/// Names and what was written last of each.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: BTreeMap<Arc<str>, Entry>,
    version: u64,
    bytes: usize,
    deleted: usize,
}

/// It has as many names and values as it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all names and values together have at most {MAX_REGISTRY_BYTES} bytes")]
pub struct RegistryFull;

impl Registry {
    /// A stamp that wins over all that is known here.
    pub fn next_stamp(&self, wall_ns: u64, by: NodeName) -> Stamp {
        let seen_ns = self.entries.values().map(|entry| entry.written.stamp.at_ns).max().unwrap_or(0);
        Stamp { at_ns: wall_ns.max(seen_ns + 1).min(MAX_STAMP_NS), by }
    }

    /// Takes what somebody wrote. Whether it is news.
    ///
    /// # Errors
    /// When there is no room for it; nothing changes then.
    pub fn merge(&mut self, name: &str, written: &Written) -> Result<bool, RegistryFull> {
        let known = self.entries.get(name);
        if known.is_some_and(|entry| entry.written >= *written) {
            return Ok(false);
        }
        let held = known.map_or(0, |entry| size(name, &entry.written));
        let bytes = self.bytes - held + size(name, written);
        if bytes > MAX_REGISTRY_BYTES && bytes > self.bytes {
            return Err(RegistryFull);
        }
        let was_deleted = known.is_some_and(|entry| entry.written.value.is_none());
        self.bytes = bytes;
        self.deleted = self.deleted + usize::from(written.value.is_none()) - usize::from(was_deleted);
        self.version += 1;
        self.entries.insert(name.into(), Entry { written: written.clone(), version: self.version });
        if self.deleted > MAX_DELETED {
            self.forget_oldest_deletion();
        }
        Ok(self.entries.contains_key(name))
    }

    fn forget_oldest_deletion(&mut self) {
        let deleted = self.entries.iter().filter(|(_, entry)| entry.written.value.is_none());
        let oldest = deleted.min_by_key(|(_, entry)| &entry.written.stamp).map(|(name, _)| Arc::clone(name));
        if let Some(gone) = oldest.and_then(|name| self.entries.remove_entry(&name)) {
            self.bytes -= size(&gone.0, &gone.1.written);
            self.deleted -= 1;
        }
    }

    /// What was written last of a name.
    pub fn get(&self, name: &str) -> Option<&Written> {
        self.entries.get(name).map(|entry| &entry.written)
    }

    /// All names, in order, those that were deleted too.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Written)> {
        self.entries.iter().map(|(name, entry)| (&**name, &entry.written))
    }

    /// What came to be known after `version`, in that order.
    pub fn since(&self, version: u64) -> Vec<(u64, &str, &Written)> {
        if version >= self.version {
            return Vec::new();
        }
        let newer = self.entries.iter().filter(|(_, entry)| entry.version > version);
        let mut newer: Vec<_> = newer.map(|(name, entry)| (entry.version, &**name, &entry.written)).collect();
        newer.sort_unstable_by_key(|(version, ..)| *version);
        newer
    }

    /// Counts what came to be known here.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// The same names with the same writes: the order in which they came is no part of it.
impl PartialEq for Registry {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Registry {}

fn size(name: &str, written: &Written) -> usize {
    ENTRY_BYTES + name.len() + written.value.as_ref().map_or(0, |value| value.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn written(at_ns: u64, by: &str, value: Option<&str>) -> Written {
        Written { stamp: Stamp { at_ns, by: node(by) }, value: value.map(Into::into) }
    }

    fn news() -> impl Strategy<Value = Vec<(String, Written)>> {
        let value = prop::option::of(prop::sample::select(vec!["x", "y"]));
        let one = ("[a-c]", 0..4u64, "[a-c]", value);
        prop::collection::vec(one.prop_map(|(name, at_ns, by, value)| (name, written(at_ns, &by, value))), 0..20)
    }

    fn of(news: &[(String, Written)]) -> Registry {
        let mut registry = Registry::default();
        news.iter().for_each(|(name, written)| _ = registry.merge(name, written).unwrap());
        registry
    }

    proptest! {
        #[test]
        fn any_order_with_repetition_gives_the_same(
            (first, again) in news().prop_flat_map(|news| {
                let twice: Vec<_> = news.iter().chain(news.iter().step_by(2)).cloned().collect();
                (Just(news), Just(twice).prop_shuffle())
            })
        ) {
            let (first, again) = (of(&first), of(&again));
            prop_assert_eq!(&first, &again);
            // Whoever is told what came since, in pieces, knows the same.
            let mut told = Registry::default();
            for (_, name, written) in again.since(0) {
                told.merge(name, written).unwrap();
            }
            prop_assert_eq!(&told, &first);
            prop_assert_eq!(again.since(again.version()), vec![]);
        }

        #[test]
        fn a_write_wins_over_all_that_its_writer_knew(news in news(), wall_ns in 0..6u64) {
            let mut registry = of(&news);
            let new = Written { stamp: registry.next_stamp(wall_ns, node("a")), value: None };
            prop_assert!(new.stamp.at_ns >= wall_ns);
            prop_assert!(registry.merge("a", &new).unwrap());
            prop_assert_eq!(registry.get("a"), Some(&new));
        }
    }

    #[test]
    fn the_oldest_deletions_are_forgotten_and_the_room_is_bounded() {
        let mut registry = Registry::default();
        for number in 0..MAX_DELETED as u64 + 5 {
            assert_eq!(registry.merge(&number.to_string(), &written(number, "a", None)), Ok(true));
        }
        assert_eq!((registry.iter().count(), registry.get("4")), (MAX_DELETED, None));
        assert!(registry.get("5").is_some());
        let large = "x".repeat(1024 * 1024);
        let mut refused = 0;
        for number in 0..20u64 {
            let merged = registry.merge(&format!("large-{number}"), &written(number, "a", Some(&large)));
            refused += usize::from(merged.is_err());
        }
        assert!(registry.bytes <= MAX_REGISTRY_BYTES && (5..10).contains(&refused), "{refused}");
        // There is always room for a deletion of what is there.
        assert_eq!(registry.merge("large-0", &written(99, "a", None)), Ok(true));
        let bytes = registry.iter().map(|(name, written)| size(name, written)).sum::<usize>();
        assert_eq!(registry.bytes, bytes);
    }
}
