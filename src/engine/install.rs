//! Limits come into force, all at once: what a limit, or a key of it, had before is left to its successor.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};

use super::Engine;
use super::bindings::{Bindings, Bound};
use super::names::{MAX_NAMES, Names};
use crate::id::KeyHash;
use crate::limits::{Limit, LimitName, LimitSet, MAX_OVERRIDES};

/// Keys that had an allowance of their own and are known for it. Beyond, what such a key owes under its former shape is
/// forgotten when the limits change again.
const MAX_FORMER: usize = MAX_OVERRIDES;

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
        let keys: usize = limits.iter().map(|limit| limit.overrides.len()).sum();
        if !names.has_room_for_shapes(limits.len() + keys) {
            self.forget_unused(&mut names);
        }
        let named: HashSet<_> = limits.iter().map(|limit| &limit.name).collect();
        names.keep_limits(|name| named.contains(name));
        drop(named);
        let mut by_name = HashMap::with_capacity(limits.len());
        let mut by_key = HashMap::new();
        for limit in limits.iter() {
            let before = old.find(limit.name.as_str());
            if let Some(bound) = self.bind(&mut names, limit, before, now_ns).or(before.cloned()) {
                self.bind_keys(&mut names, &bound, (&old, before), now_ns, &mut by_key);
                by_name.insert(limit.name.as_str().into(), bound);
            }
        }
        self.bind_former(&mut names, &old, &mut by_name, &mut by_key, now_ns);
        drop(names);
        self.replace(Bindings::new(old.generation + 1, Arc::new(limits), by_name, by_key));
    }

    /// The limits in force.
    pub fn limits(&self) -> Arc<LimitSet> {
        Arc::clone(&self.bindings.load().set)
    }

    /// Limits that have as many keys as their own `max_keys` allows.
    pub fn full_limits(&self) -> Vec<LimitName> {
        let bindings = self.bindings.load();
        let full = bindings.limits().filter(|bound| bound.own_keys.load(Ordering::Relaxed) >= bound.max_keys);
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
        self.replace(self.bindings.load().map(|bound| bound.with_infos(&names)));
    }

    /// Carries all keys over that the last change of limits left behind, as [`Engine::sweep`] does too.
    pub fn carry_rest(&self, now_ns: u64) {
        if !self.bindings.load().pending {
            return;
        }
        let _alone = self.installing.lock();
        let old = self.bindings.load_full();
        if self.carry_all(&old, now_ns) {
            self.replace(old.map(Bound::carried));
        }
    }

    /// From its return on nothing is decided by older limits. To be called while `installing` is locked.
    fn replace(&self, bindings: Bindings) {
        let generation = bindings.generation;
        self.bindings.store(Arc::new(bindings));
        for shard in &self.shards {
            shard.lock().generation = generation;
        }
    }

    /// Binds the keys of a limit that have their own allowance. A key that had none was bound as its limit was.
    fn bind_keys(
        &self,
        names: &mut Names,
        limit: &Arc<Bound>,
        (old, before): (&Bindings, Option<&Arc<Bound>>),
        now_ns: u64,
        by_key: &mut HashMap<KeyHash, Arc<Bound>>,
    ) {
        for (key, own) in limit.limit.overrides.iter() {
            let key = limit.hasher.hash(key);
            let before = old.own(key).or(before);
            if let Some(bound) = self.bind(names, own, before, now_ns).or(before.cloned()) {
                by_key.insert(key, bound);
            }
        }
    }

    /// Keys that had their own allowance and have none any more are bound as their limit is, and by themselves as long
    /// as something may be left of what they had.
    fn bind_former(
        &self,
        names: &mut Names,
        old: &Bindings,
        by_name: &mut HashMap<Box<str>, Arc<Bound>>,
        by_key: &mut HashMap<KeyHash, Arc<Bound>>,
        now_ns: u64,
    ) {
        let most = by_key.len() + MAX_FORMER;
        for (key, before) in old.keys() {
            if by_key.contains_key(&key) || by_key.len() == most {
                continue;
            }
            let Some(limit) = by_name.get_mut(before.limit.name.as_str()) else { continue };
            let Some(bound) = self.bind(names, &limit.limit, Some(before), now_ns) else { continue };
            if !bound.is_settled(now_ns) {
                Arc::make_mut(limit).has_own = true;
                by_key.insert(key, bound);
            }
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
            has_own: !limit.overrides.is_empty(),
            hasher: self.secret.key_hasher(limit.name.as_str()),
            limit: Arc::clone(limit),
        }))
    }
}
