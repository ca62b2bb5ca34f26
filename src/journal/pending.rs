//! The queue of records between the protocol and the writer. The node keeps it under the same lock as the protocol's
//! `have`, so that both are cut at one instant.

use std::sync::Arc;

use super::{Record, Status};
use crate::planted::{self, PlantedBug};

/// The most bytes of records that wait for the disk. Beyond it the queue gives up: everything live is written anew once
/// the disk keeps up again.
pub const MAX_PENDING_BYTES: usize = 64 * 1024 * 1024;
/// What a record takes beside its bytes: it bounds the queue's memory also when records are tiny.
const RECORD_OVERHEAD_BYTES: usize = size_of::<Record>();

/// More arrived than the disk took: what waited was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the journal's disk is too slow: more than {} MiB waited for it and were dropped", MAX_PENDING_BYTES >> 20)]
pub struct Overflow;

/// Records that wait to be written.
#[derive(Debug)]
pub struct Pending {
    records: Vec<Record>,
    bytes: usize,
    mode: Mode,
    status: Arc<Status>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Keeping,
    /// The disk fails: queue nothing.
    Paused,
    /// As paused, and the writer has yet to hear of it.
    Overflowed,
}

impl Pending {
    /// An empty queue that keeps what is pushed. An overflow shows in `status` at once, also while the writer hangs.
    pub fn new(status: Arc<Status>) -> Self {
        Self { records: Vec::new(), bytes: 0, mode: Mode::Keeping, status }
    }

    /// Records to be kept on disk. Dropped while the disk fails: the writer will then ask for all that lives.
    pub fn push(&mut self, records: Vec<Record>) {
        if self.mode != Mode::Keeping {
            return;
        }
        self.bytes += records.iter().map(|record| record.bytes.len() + RECORD_OVERHEAD_BYTES).sum::<usize>();
        self.records.extend(records);
        if self.bytes > MAX_PENDING_BYTES {
            self.drop_all(Mode::Overflowed);
            self.status.update(|figures| figures.degraded = Some(Overflow.to_string()));
        }
    }

    /// Everything that waits. `have` and the slot clock are to be read before the lock on this queue is let go.
    pub fn take(&mut self) -> Result<Vec<Record>, Overflow> {
        if self.mode == Mode::Overflowed {
            return Err(Overflow);
        }
        self.bytes = 0;
        if planted::has(PlantedBug::HaveAhead) {
            let later = self.records.split_off(self.records.len() / 2);
            return Ok(std::mem::replace(&mut self.records, later));
        }
        Ok(std::mem::take(&mut self.records))
    }

    /// Drops what waits and what comes.
    pub fn pause(&mut self) {
        self.drop_all(Mode::Paused);
    }

    /// Keeps what comes from now on.
    pub fn resume(&mut self) {
        self.mode = Mode::Keeping;
    }

    /// Bytes that wait, each record's own overhead included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn drop_all(&mut self, mode: Mode) {
        self.records = Vec::new();
        self.bytes = 0;
        self.mode = mode;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(count: usize, len: usize) -> Vec<Record> {
        vec![Record { expires_ns: 1, bytes: vec![0; len] }; count]
    }

    #[test]
    fn overflows_once_drops_all_and_keeps_again_when_told() {
        let status = Arc::new(Status::default());
        let mut pending = Pending::new(status.clone());
        pending.push(records(2, 10));
        assert_eq!(pending.take().map(|taken| taken.len()), Ok(2));
        assert_eq!(pending.bytes(), 0);
        for _ in 0..64 {
            pending.push(records(64, 16 * 1024));
        }
        assert_eq!(pending.bytes(), 0, "64 MiB and the overhead are more than fits");
        assert!(status.degraded().is_some_and(|reason| reason.contains("64 MiB")));
        pending.push(records(1, 1));
        assert_eq!(pending.take(), Err(Overflow));
        pending.pause();
        pending.push(records(1, 1));
        assert_eq!(pending.take(), Ok(Vec::new()));
        pending.resume();
        pending.push(records(1, 1));
        assert_eq!(pending.take(), Ok(records(1, 1)));
    }
}
