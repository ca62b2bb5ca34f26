//! Ids: the one this node writes under, and forgetting those that nothing bears any more.

use hashbrown::HashSet;

use super::entry::{Entry, Held};
use super::names::{MAX_NAMES, Names, ShapeInfo, ShapeIx, Standing};
use super::pack::Packer;
use super::{Drained, Engine};
use crate::crdt::{Mark, ReplicaIx};
use crate::id::ReplicaId;

impl Engine {
    /// The id this node writes under.
    pub fn own(&self) -> ReplicaId {
        self.own.lock().clone()
    }

    /// From now on writes under another id. Returns what the old life changed since the last drain, to go out under the
    /// old id: nothing is spent in between. With `drop_ahead` the time may be earlier than before, and what this node
    /// wrote in slots that begin after `now_ns` is dropped.
    pub fn new_life(&self, now_ns: u64, own: ReplicaId, drop_ahead: bool) -> Drained {
        let _alone = self.installing.lock();
        let mut names = self.names.write();
        let before = names.own();
        if names.number_replica(&own, MAX_NAMES).is_none() {
            self.forget_unused(&mut names);
        }
        let ix = names.number_replica(&own, MAX_NAMES).expect("peers leave room for this node's own lives");
        names.set_own(ix);
        *self.own.lock() = own;
        let mut packer = Packer::default();
        for shard in &self.shards {
            let mut shard = shard.lock();
            if drop_ahead {
                shard.last_ns = shard.last_ns.min(now_ns);
            }
            for id in 0..shard.slab.end() {
                let Some(entry) = shard.slab.find(id) else { continue };
                if let Some(limit) = entry.standing.counted() {
                    entry.standing = Standing::FOREIGN;
                    self.release(&names, limit);
                }
                let Some(info) = names.info(entry.shape).filter(|_| drop_ahead) else { continue };
                shard.change(id, |entry| entry.drop_ahead(before, info, now_ns));
            }
            shard.drain(&names, &mut packer);
            shard.own = ix;
            self.tell_cells(&mut shard);
        }
        packer.drained(now_ns)
    }

    /// Forgets shapes and replicas that no limit and no key uses.
    pub(super) fn forget_unused(&self, names: &mut Names) {
        let (mut shapes, mut replicas) = (HashSet::new(), HashSet::new());
        for bound in self.bindings.load().all() {
            shapes.extend(bound.shapes());
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            for id in 0..shard.slab.end() {
                if let Some(entry) = shard.slab.find(id) {
                    shapes.insert(entry.shape);
                    entry.replicas(&mut replicas);
                }
            }
        }
        names.keep(|shape: ShapeIx| shapes.contains(&shape), |replica| replicas.contains(&replica));
    }
}

impl Entry {
    /// Drops what lies in a future that will not come: nobody else writes so far ahead.
    fn drop_ahead(&mut self, own: ReplicaIx, info: &ShapeInfo, now_ns: u64) {
        let first = info.slot(now_ns).saturating_add(1);
        let any = self.read(info, |cells, bases| {
            let cells = cells.iter().any(|cell| cell.replica == own && cell.slot >= first);
            cells || bases.iter().any(|base| base.0 >= first)
        });
        if any || self.mark().slot >= first {
            let many = self.many(info, own);
            many.slots.drop_from(first, own);
            (many.cache, many.sum) = (None, None);
            if many.slots.mark() == Mark::default() {
                many.until_ns = 0;
            }
            self.shrink(info);
        }
    }

    fn replicas(&self, into: &mut HashSet<ReplicaIx>) {
        match &self.held {
            Held::Nothing => {}
            Held::One { replica, .. } => {
                into.insert(*replica);
            }
            Held::Many(many) => into.extend(many.slots.cells().iter().map(|cell| cell.replica)),
        }
    }
}
