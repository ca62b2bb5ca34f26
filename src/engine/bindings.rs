//! The limits in force, each bound to the shape of its state and to all that a decision needs, and how a limit that is
//! replaced leaves its buckets to its successor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{HashMap, HashSet};

use super::names::{LimitIx, MAX_NAMES, Names, ShapeInfo, ShapeIx};
use super::{AskError, Engine, MAX_KEY_BYTES};
use crate::id::{KeyHash, KeyHasher};
use crate::limits::{Limit, LimitName, LimitSet, MIN_MARK_KEPT_NS, OnFull};

/// Shapes that are remembered of one limit.
const MAX_LEFT: usize = 16;

/// All limits in force. Replaced as a whole.
#[derive(Debug)]
pub(super) struct Bindings {
    /// Counts replacements: no shard decides by an older one after a newer one.
    pub generation: u64,
    pub set: Arc<LimitSet>,
    /// Whether any limit has a change of shape pending.
    pending: bool,
    by_name: HashMap<Box<str>, Arc<Bound>>,
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
    left: Vec<Left>,
    hasher: KeyHasher,
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
struct Left {
    info: Arc<ShapeInfo>,
    at_ns: u64,
}

impl Bindings {
    pub fn none() -> Self {
        Self::new(0, Arc::default(), HashMap::new())
    }

    fn new(generation: u64, set: Arc<LimitSet>, by_name: HashMap<Box<str>, Arc<Bound>>) -> Self {
        let pending = by_name.values().any(|bound| bound.pending.is_some());
        Self { generation, set, pending, by_name }
    }

    pub fn find(&self, limit: &str) -> Option<&Arc<Bound>> {
        self.by_name.get(limit)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Bound>> {
        self.by_name.values()
    }

    /// The limit and the hash of the key that the part `index` of a request names.
    pub fn resolve(&self, index: usize, limit: &str, key: &str) -> Result<(&Arc<Bound>, KeyHash), AskError> {
        let Some(bound) = self.find(limit) else {
            return Err(AskError::UnknownLimit { index, limit: limit.to_owned() });
        };
        match key.len() {
            1..=MAX_KEY_BYTES => Ok((bound, bound.hasher.hash(key))),
            len => Err(AskError::BadKey { index, len }),
        }
    }
}

impl Bound {
    /// What a successor of the shape `to` has to know of this limit. Nothing of it is pending any more.
    fn hand_over(&self, to: &Arc<ShapeInfo>, now_ns: u64) -> (Option<Change>, Vec<Left>) {
        if self.info.ix == to.ix {
            return (None, self.left.clone());
        }
        if self.info.bucket().is_none() || to.bucket().is_none() {
            return (None, Vec::new());
        }
        let held_ns = |left: &Left| left.at_ns.saturating_add(left.info.kept_ns.max(MIN_MARK_KEPT_NS));
        let mut left: Vec<_> = self.left.iter().filter(|left| held_ns(left) > now_ns).cloned().collect();
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

    /// The same, nothing left to carry over.
    fn carried(&self) -> Self {
        Self { pending: None, ..self.clone() }
    }

    /// The same, with the shapes as the table now has them.
    fn with_infos(&self, names: &Names) -> Self {
        let now = |info: &Arc<ShapeInfo>| Arc::clone(names.info(info.ix).unwrap_or(info));
        let pending = self.pending.as_ref().map(|c| Change { from: now(&c.from), to: now(&c.to), ..c.clone() });
        let left = self.left.iter().map(|left| Left { info: now(&left.info), ..left.clone() }).collect();
        Self { pending, left, info: now(&self.info), ..self.clone() }
    }
}

impl Engine {
    /// Replaces all limits. What was used stays, as far as the shapes allow; a bucket's debt is carried over, key by
    /// key, by [`Engine::sweep`] or by the first request for it. A limit whose shape finds no room in the table of
    /// shapes stays as it was.
    pub fn install(&self, now_ns: u64, limits: LimitSet) {
        let _alone = self.installing.lock();
        let old = self.bindings.load_full();
        // One change at a time: a shape that comes up twice in a chain could not be told apart.
        self.carry_all(&old, now_ns);
        let mut names = self.names.write();
        if !names.has_room_for_shapes(limits.len()) {
            self.forget_unused(&mut names);
        }
        let named: HashSet<_> = limits.iter().map(|limit| &limit.name).collect();
        names.keep_limits(|name| named.contains(name));
        drop(named);
        let mut by_name = HashMap::with_capacity(limits.len());
        for limit in limits.iter() {
            let before = old.find(limit.name.as_str());
            if let Some(bound) = self.bind(&mut names, limit, before, now_ns).or(before.cloned()) {
                by_name.insert(limit.name.as_str().into(), bound);
            }
        }
        drop(names);
        self.replace(Bindings::new(old.generation + 1, Arc::new(limits), by_name));
    }

    /// The limits in force.
    pub fn limits(&self) -> Arc<LimitSet> {
        Arc::clone(&self.bindings.load().set)
    }

    /// Limits that have as many keys as their own `max_keys` allows.
    pub fn full_limits(&self) -> Vec<LimitName> {
        let bindings = self.bindings.load();
        let full = bindings.iter().filter(|bound| bound.own_keys.load(Ordering::Relaxed) >= bound.max_keys);
        let mut names: Vec<_> = full.map(|bound| bound.limit.name.clone()).collect();
        names.sort();
        names
    }

    /// The limits in force, unless keys are still to be carried over to one of them.
    pub fn settled_limits(&self) -> Option<Arc<LimitSet>> {
        let bindings = self.bindings.load();
        (!bindings.pending).then(|| Arc::clone(&bindings.set))
    }

    /// M, when a peer expects more nodes than this one.
    pub fn set_expected_nodes(&self, nodes: u32) {
        let _alone = self.installing.lock();
        let mut names = self.names.write();
        if names.nodes() == nodes {
            return;
        }
        names.set_nodes(nodes);
        self.rebind(|bound| bound.with_infos(&names));
    }

    /// Carries all keys over that the last change of limits left behind, as [`Engine::sweep`] does too.
    pub fn carry_rest(&self, now_ns: u64) {
        if !self.bindings.load().pending {
            return;
        }
        let _alone = self.installing.lock();
        if self.carry_all(&self.bindings.load_full(), now_ns) {
            self.rebind(Bound::carried);
        }
    }

    /// To be called while `installing` is locked.
    fn rebind(&self, f: impl Fn(&Bound) -> Bound) {
        let old = self.bindings.load_full();
        let by_name = old.by_name.iter().map(|(name, bound)| (name.clone(), Arc::new(f(bound)))).collect();
        self.replace(Bindings::new(old.generation + 1, Arc::clone(&old.set), by_name));
    }

    /// From its return on nothing is decided by older limits.
    fn replace(&self, bindings: Bindings) {
        let generation = bindings.generation;
        self.bindings.store(Arc::new(bindings));
        for shard in &self.shards {
            shard.lock().generation = generation;
        }
    }

    fn bind(
        &self,
        names: &mut Names,
        limit: &Arc<Limit>,
        before: Option<&Arc<Bound>>,
        now_ns: u64,
    ) -> Option<Arc<Bound>> {
        let info = names.number_shape(&limit.shape(), MAX_NAMES)?;
        let (ix, own_keys) = names.number_limit(&limit.name)?;
        let (pending, left) = before.map(|before| before.hand_over(&info, now_ns)).unwrap_or_default();
        Some(Arc::new(Bound {
            capacity: limit.capacity(),
            queue_ns: limit.algorithm.queue_ns(),
            ix,
            own_keys,
            max_keys: limit.max_keys.unwrap_or(u64::MAX),
            on_full: limit.on_full.unwrap_or(self.settings.on_full),
            info,
            pending,
            left,
            hasher: self.secret.key_hasher(limit.name.as_str()),
            limit: Arc::clone(limit),
        }))
    }
}
