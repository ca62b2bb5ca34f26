//! The limits in force, each bound to the shape of its state and to all that a decision needs, and what of them a
//! request names or matches.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hashbrown::HashMap;

use super::names::{LimitIx, Names, ShapeInfo, ShapeIx};
use super::{Ask, AskError, MAX_ASKS, MAX_KEY_BYTES};
use crate::id::{KeyHash, KeyHasher};
use crate::limits::{Descriptors, Limit, LimitSet, MIN_MARK_KEPT_NS, OnFull};

/// Shapes that are remembered of one limit.
const MAX_LEFT: usize = 16;

/// All limits in force. Replaced as a whole.
#[derive(Debug)]
pub(super) struct Bindings {
    /// Counts replacements: no shard decides by an older one after a newer one.
    pub generation: u64,
    pub set: Arc<LimitSet>,
    /// Whether any limit has a change of shape pending.
    pub pending: bool,
    by_name: HashMap<Box<str>, Arc<Bound>>,
    /// Keys that have, or had, their own allowance. Whom a key belongs to its hash tells too.
    by_key: HashMap<KeyHash, Arc<Bound>>,
    /// Limits that requests come to by what they say of themselves, by name.
    matching: Vec<Arc<Bound>>,
}

/// A limit in force.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub limit: Arc<Limit>,
    pub capacity: u64,
    /// How long a request may be made to wait.
    pub queue_ns: u64,
    pub ix: LimitIx,
    pub own_keys: Arc<AtomicU64>,
    pub max_keys: u64,
    pub on_full: OnFull,
    pub info: Arc<ShapeInfo>,
    /// The last change of a bucket's shape, as long as keys may be left that were not carried over.
    pub pending: Option<Change>,
    /// Shapes this limit had before, of which cells may still be held; the last one left comes last.
    pub left: Vec<Left>,
    /// Whether keys of this limit are bound by themselves.
    pub has_own: bool,
    pub hasher: KeyHasher,
}

/// One part of a request, found: what it asks of which key.
#[derive(Clone)]
pub(super) struct Part<'a> {
    pub bound: &'a Arc<Bound>,
    pub key: KeyHash,
    /// The key, where it is not as the request names it.
    pub counted_as: Option<String>,
    pub cost: u32,
}

/// A bucket's shape gave way to another.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub from: Arc<ShapeInfo>,
    pub to: Arc<ShapeInfo>,
    pub at_ns: u64,
    /// When this node last left `to`, where it had that shape before: cells of then may still be held.
    pub left_ns: Option<u64>,
}

/// A shape that a limit had until `at_ns`.
#[derive(Clone, Debug)]
pub(super) struct Left {
    info: Arc<ShapeInfo>,
    at_ns: u64,
}

impl Bindings {
    pub fn none() -> Self {
        Self::new(0, Arc::default(), HashMap::new(), HashMap::new())
    }

    pub fn new(
        generation: u64,
        set: Arc<LimitSet>,
        by_name: HashMap<Box<str>, Arc<Bound>>,
        by_key: HashMap<KeyHash, Arc<Bound>>,
    ) -> Self {
        let pending = by_name.values().chain(by_key.values()).any(|bound| bound.pending.is_some());
        let mut matching: Vec<_> =
            by_name.values().filter(|bound| bound.limit.keying.template.is_some()).cloned().collect();
        matching.sort_by(|a, b| a.limit.name.cmp(&b.limit.name));
        Self { generation, set, pending, by_name, by_key, matching }
    }

    /// The same limits, each changed by `f`.
    pub fn map(&self, f: impl Fn(&Bound) -> Bound) -> Self {
        let by_name = self.by_name.iter().map(|(name, bound)| (name.clone(), Arc::new(f(bound)))).collect();
        let by_key = self.by_key.iter().map(|(key, bound)| (*key, Arc::new(f(bound)))).collect();
        Self::new(self.generation + 1, Arc::clone(&self.set), by_name, by_key)
    }

    pub fn find(&self, limit: &str) -> Option<&Arc<Bound>> {
        self.by_name.get(limit)
    }

    /// The limits, as they hold for keys that have no allowance of their own.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<Bound>> {
        self.by_name.values()
    }

    /// The keys that are bound by themselves.
    pub fn keys(&self) -> impl Iterator<Item = (KeyHash, &Arc<Bound>)> {
        self.by_key.iter().map(|(key, bound)| (*key, bound))
    }

    /// What a key is bound to by itself.
    pub fn own(&self, key: KeyHash) -> Option<&Arc<Bound>> {
        self.by_key.get(&key)
    }

    /// Of limits and keys.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Bound>> {
        self.by_name.values().chain(self.by_key.values())
    }

    /// What the part `index` of a request names.
    pub fn resolve(&self, index: usize, ask: &Ask<'_>) -> Result<Part<'_>, AskError> {
        let Some(bound) = self.find(ask.limit) else {
            return Err(AskError::UnknownLimit { index, limit: ask.limit.to_owned() });
        };
        ask.well_formed(index)?;
        let folded = bound.limit.keying.fold(ask.key).map_err(|problem| AskError::NoAddress { index, problem })?;
        let key = bound.hasher.hash(&folded);
        let counted_as = match folded {
            Cow::Owned(folded) if folded != ask.key => Some(folded),
            _ => None,
        };
        Ok(Part { bound: self.of(bound, key), key, counted_as, cost: ask.cost })
    }

    /// All that a request is to be counted under that says only what it is, by the name of the limit.
    pub fn match_all(&self, request: &Descriptors<'_>, cost: u32) -> Result<Vec<Part<'_>>, AskError> {
        let mut parts = Vec::new();
        for bound in &self.matching {
            let Some(counted_as) = bound.limit.keying.key_of(request)? else { continue };
            if counted_as.len() > MAX_KEY_BYTES {
                let limit = bound.limit.name.to_string();
                return Err(AskError::LongKey { limit, len: counted_as.len() });
            }
            if parts.len() == MAX_ASKS {
                return Err(AskError::TooManyMatch);
            }
            let key = bound.hasher.hash(&counted_as);
            parts.push(Part { bound: self.of(bound, key), key, counted_as: Some(counted_as), cost });
        }
        Ok(parts)
    }

    /// What holds for a key of a limit.
    fn of<'a>(&'a self, limit: &'a Arc<Bound>, key: KeyHash) -> &'a Arc<Bound> {
        if limit.has_own { self.own(key).unwrap_or(limit) } else { limit }
    }
}

impl Bound {
    /// What a successor of the shape `to` has to know of this limit. Nothing of it is pending any more.
    pub fn hand_over(&self, to: &Arc<ShapeInfo>, now_ns: u64) -> (Option<Change>, Vec<Left>) {
        if self.info.ix == to.ix {
            return (None, self.left.clone());
        }
        if self.info.bucket().is_none() || to.bucket().is_none() {
            return (None, Vec::new());
        }
        let mut left: Vec<_> = self.left.iter().filter(|left| left.held_ns() > now_ns).cloned().collect();
        let left_ns = left.iter().rev().find(|left| left.info.ix == to.ix).map(|left| left.at_ns);
        left.push(Left { info: Arc::clone(&self.info), at_ns: now_ns });
        if left.len() > MAX_LEFT {
            left.remove(0);
        }
        let (from, to) = (Arc::clone(&self.info), Arc::clone(to));
        (Some(Change { from, to, at_ns: now_ns, left_ns }), left)
    }

    /// The shapes that must not be forgotten.
    pub fn shapes(&self) -> impl Iterator<Item = ShapeIx> {
        let change = self.pending.iter().flat_map(|change| [change.from.ix, change.to.ix]);
        self.left.iter().map(|left| left.info.ix).chain(change).chain([self.info.ix])
    }

    /// Whether nothing of an earlier shape has to be known any more.
    pub fn is_settled(&self, now_ns: u64) -> bool {
        self.pending.is_none() && self.left.iter().all(|left| left.held_ns() <= now_ns)
    }

    /// The same, nothing left to carry over.
    pub fn carried(&self) -> Self {
        Self { pending: None, ..self.clone() }
    }

    /// The same, with the shapes as the table now has them.
    pub fn with_infos(&self, names: &Names) -> Self {
        let now = |info: &Arc<ShapeInfo>| Arc::clone(names.info(info.ix).unwrap_or(info));
        let pending = self.pending.as_ref().map(|c| Change { from: now(&c.from), to: now(&c.to), ..c.clone() });
        let left = self.left.iter().map(|left| Left { info: now(&left.info), ..left.clone() }).collect();
        Self { pending, left, info: now(&self.info), ..self.clone() }
    }
}

impl Left {
    /// Until when cells of it may be held.
    fn held_ns(&self) -> u64 {
        self.at_ns.saturating_add(self.info.kept_ns.max(MIN_MARK_KEPT_NS))
    }
}
