//! The pass over all keys that drops what has expired.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::entry::Held;
use super::names::{LimitIx, Names};
use super::pack::Packer;
use super::shard::{SHARDS, Shard};
use super::{Engine, Part};
use crate::planted::{self, PlantedBug};

/// Entries looked at under one lock.
const ENTRIES_A_LOCK: u32 = 256;

/// Into so many pieces a sweep can be cut.
pub const SWEEP_PIECES: usize = SHARDS;

impl Engine {
    /// Drops what has expired, a bounded number of entries a lock. To be called about once a second. Returns bases that
    /// came to stand for dropped slots, for the journal.
    pub fn sweep(&self, now_ns: u64) -> Vec<Part> {
        (0..SWEEP_PIECES).flat_map(|piece| self.sweep_piece(now_ns, piece)).collect()
    }

    /// One of the [`SWEEP_PIECES`] of a sweep, for a caller that must not be held up by millions of keys.
    pub fn sweep_piece(&self, now_ns: u64, piece: usize) -> Vec<Part> {
        if planted::has(PlantedBug::NeverSwept) {
            return Vec::new();
        }
        self.carry_rest(now_ns);
        let mut packer = Packer::default();
        self.pass(&self.shards[piece], |names, shard, id| {
            let Some(info) = names.info(shard.slab[id].shape) else { return };
            if let Some(limit) = shard.expire(id, info, now_ns) {
                self.release(names, limit);
            }
            shard.save_bases(id, names, &mut packer);
        });
        packer.finish().into_iter().map(|(_, part)| part).collect()
    }

    /// Calls `f` with every entry of a shard, a bounded number of them under one lock.
    pub(super) fn pass(&self, shard: &Mutex<Shard>, mut f: impl FnMut(&Names, &mut Shard, u32)) {
        let (mut from, mut end) = (0, u32::MAX);
        while from < end {
            let names = self.names.read();
            let mut shard = shard.lock();
            end = shard.slab.end();
            let to = end.min(from.saturating_add(ENTRIES_A_LOCK));
            for id in from..to {
                if shard.slab.find(id).is_some() {
                    f(&names, &mut shard, id);
                }
            }
            self.tell_cells(&mut shard);
            from = to;
        }
    }

    /// One key less stands under a limit.
    pub(super) fn release(&self, names: &Names, limit: LimitIx) {
        if let Some(own_keys) = names.own_keys(limit) {
            own_keys.fetch_sub(1, Ordering::Relaxed);
            self.own_keys.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shard {
    fn save_bases(&mut self, id: u32, names: &Names, packer: &mut Packer) {
        let own = self.own;
        let Some(entry) = self.slab.find(id) else { return };
        let (key, Some(info)) = (entry.key, names.info(entry.shape)) else { return };
        if let Held::Many(many) = &mut entry.held
            && std::mem::take(&mut many.base_unsaved)
        {
            many.pack_bases(own, key, info, packer);
        }
    }
}
