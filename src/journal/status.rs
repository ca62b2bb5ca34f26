//! How the journal is doing: written by the [`super::Writer`] and the [`super::Pending`] queue, read by health and
//! metrics.

use parking_lot::Mutex;

/// Figures since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Why the node cannot rely on its journal just now; None: all is well.
    pub degraded: Option<String>,
    /// Batches written.
    pub commits: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// How long the last batch took, nanoseconds.
    pub last_commit_ns: u64,
    /// Times the store failed.
    pub failures: u64,
    /// Records that expired and were removed.
    pub expired: u64,
    /// Times the live state was written anew, for compaction or after a failure.
    pub rewrites: u64,
    /// Bytes of the records held.
    pub held_bytes: u64,
}

/// Figures that several threads share.
#[derive(Debug, Default)]
pub struct Status(Mutex<Figures>);

impl Status {
    /// The figures as they stand.
    pub fn figures(&self) -> Figures {
        self.0.lock().clone()
    }

    /// Why the journal is degraded; None: all is well.
    pub fn degraded(&self) -> Option<String> {
        self.0.lock().degraded.clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.0.lock());
    }
}
