//! What the journal's writer asks of the node.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::Shared;
use crate::codec::Chunk;
use crate::engine::{ExportCursor, Part};
use crate::gossip::{Now, Record};
use crate::id::ReplicaId;
use crate::journal::{Batch, Overflow, Source};

impl Source for Shared {
    fn now(&self) -> Now {
        Self::now(self)
    }

    fn swept_ns(&self) -> u64 {
        self.swept_ns.load(Ordering::Acquire)
    }

    fn cut(&self) -> Result<Batch, Overflow> {
        let mut core = self.core.lock();
        let records = core.pending.take()?;
        // Under the same lock as the records: what `have` covers is in this batch or an earlier one.
        let have = Some(core.gossip.have());
        let limits = core.settled_limits.clone();
        let definitions = Some(Arc::clone(core.gossip.definitions()));
        let generation = self.engine.own().generation;
        Ok(Batch { records, have, slot_clock_ns: self.now().slot_ns, generation, limits, definitions })
    }

    fn pause(&self) {
        self.core.lock().pending.pause();
    }

    fn resume(&self) {
        self.core.lock().pending.resume();
    }

    fn export(&self, from: ExportCursor) -> (Vec<Record>, Option<ExportCursor>) {
        let now = self.now();
        let export = self.engine.export(now.slot_ns, from, None);
        let records = export.parts.into_iter().map(|(replica, part)| record(replica, part, &now)).collect();
        (records, export.next)
    }
}

/// A piece of state as a record: a chunk outside the order of flushes.
pub(super) fn record(replica: ReplicaId, part: Part, now: &Now) -> Record {
    let Part { expires_ns, groups } = part;
    let chunk = Chunk { replica, seq: 0, stamp_ns: now.wall_ns, complete_to_ns: 0, expires_ns, groups };
    Record { expires_ns, bytes: chunk.encode() }
}
