//! What is known of one key, by replica.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bindings::Part;
use super::entry::Entry;
use super::names::{Names, ShapeInfo};
use super::read::{At, Figures};
use super::shard::shard_of;
use super::{Ask, AskError, Engine, KeyCells, ReplicaUsage, Usage};
use crate::algorithms::Level;
use crate::crdt::{ReplicaIx, SlotCell};
use crate::limits::Shape;

impl Engine {
    /// What is known of a key.
    pub fn usage(&self, now_ns: u64, limit: &str, key: &str) -> Result<Usage, AskError> {
        let names = self.names.read();
        loop {
            let bindings = self.bindings.load();
            let Part { bound, key, counted_as, .. } = bindings.resolve(0, &Ask { limit, key, cost: 0 })?;
            let mut shard = self.shards[shard_of(key)].lock();
            if !shard.accepts(bindings.generation) {
                continue;
            }
            let now_ns = now_ns.max(shard.last_ns);
            self.carry(&mut shard, bound, key, now_ns, true);
            let at = At { now_ns, max_skew_ns: self.settings.retention.max_skew_ns };
            let id = shard.find(bound.info.ix, key);
            let figures = Figures::of(&shard.level(id, &bound.info, &at), bound.capacity);
            let replicas = id.map(|id| shard.slab[id].by_replica(&bound.info, &at)).unwrap_or_default();
            drop(shard);
            return Ok(Usage {
                limit: Arc::clone(&bound.limit),
                counted_as,
                used: figures.used,
                remaining: figures.remaining,
                replicas: named(&names, replicas),
            });
        }
    }
}

impl Engine {
    /// All cells held of a key, the expired ones that no sweep has dropped yet too.
    pub fn cells_of(&self, limit: &str, key: &str) -> Result<KeyCells, AskError> {
        let names = self.names.read();
        let bindings = self.bindings.load();
        let Part { bound, key, .. } = bindings.resolve(0, &Ask { limit, key, cost: 0 })?;
        let shard = self.shards[shard_of(key)].lock();
        let cells =
            shard.find(bound.info.ix, key).map(|id| shard.slab[id].read(&bound.info, |cells, _| cells.to_vec()));
        drop(shard);
        let cells = cells.unwrap_or_default();
        let mut numbers: Vec<ReplicaIx> = cells.iter().map(|cell| cell.replica).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let known = |ix: ReplicaIx| names.replica(ix).map(|id| (ix, id.clone()));
        Ok(KeyCells { shape: bound.info.shape, cells, replicas: numbers.into_iter().filter_map(known).collect() })
    }
}

impl Entry {
    /// What each replica's cells add to the slots that count.
    fn by_replica(&self, info: &ShapeInfo, at: &At) -> BTreeMap<ReplicaIx, u64> {
        let last = self.last_counted(info, at);
        let mut cells_of: BTreeMap<ReplicaIx, Vec<SlotCell>> = BTreeMap::new();
        self.read(info, |cells, _| {
            for cell in cells.iter().take_while(|cell| cell.slot <= last) {
                cells_of.entry(cell.replica).or_default().push(*cell);
            }
        });
        let used = |cells: Vec<SlotCell>| match &info.shape {
            Shape::Window(window) => window.level(at.now_ns, &cells).used(),
            Shape::Bucket(_) => cells.iter().fold(0u64, |sum, held| sum.saturating_add(held.cell.spent)),
        };
        cells_of.into_iter().map(|(replica, cells)| (replica, used(cells))).collect()
    }
}

/// This node's own first, the others by id.
fn named(names: &Names, replicas: BTreeMap<ReplicaIx, u64>) -> Vec<ReplicaUsage> {
    let usage = |(ix, used): (ReplicaIx, u64)| {
        names.replica(ix).map(|id| (ix != names.own(), ReplicaUsage { replica: id.clone(), used }))
    };
    let mut all: Vec<_> = replicas.into_iter().filter_map(usage).collect();
    all.sort_by(|(a_foreign, a), (b_foreign, b)| (a_foreign, &a.replica).cmp(&(b_foreign, &b.replica)));
    all.into_iter().map(|(_, usage)| usage).collect()
}
