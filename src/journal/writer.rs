//! The writer: the one caller of a store once the node runs. It cuts what is pending, commits it, expires what is over,
//! compacts what has grown, and lives through a disk that fails and comes back. A thread of its own in production
//! ([`Writer::spawn`]); in a simulation the node calls [`Writer::step`] itself.
//!
//! A failed disk and a grown journal are met by one thing, a *rewrite*: the live state, as [`Source::export`] gives it,
//! is written as new records, and then all records numbered before its beginning are forgotten. What changes meanwhile
//! comes as records of its own, so that nothing is missed; merging is idempotent, so that a crash in the middle leaves
//! only what is merged twice.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Batch, Overflow, Record, Status, Store, StoreError};
use crate::crdt::Registry;
use crate::engine::ExportCursor;
use crate::gossip::Now;
use crate::id::ReplicaId;
use crate::limits::LimitSet;
use crate::time::SECOND;

/// How often expired records are removed.
const EXPIRE_INTERVAL_NS: u64 = SECOND;
/// The first wait after a failure; it doubles up to the longest.
const FIRST_RETRY_NS: u64 = SECOND;
/// The longest wait between two tries of a failed disk.
const LONGEST_RETRY_NS: u64 = 8 * SECOND;
/// Bytes of live state written in one step of a rewrite.
const REWRITE_BYTES: usize = 4 * 1024 * 1024;
/// Pieces of live state asked for in one step of a rewrite: they may be empty.
const REWRITE_PIECES: usize = 4096;
/// A journal below this is not worth compacting, bytes.
const COMPACT_ABOVE_BYTES: u64 = 64 * 1024 * 1024;
/// It is compacted when it has grown to this many times what the last rewrite wrote.
const COMPACT_GROWTH: u64 = 4;

/// Where the records come from: the node.
pub trait Source: Send + Sync + 'static {
    /// The clocks, now.
    fn now(&self) -> Now;
    /// All that expired before this slot-clock time was swept: where more than its slots is to be remembered, that is
    /// pending or was cut.
    fn swept_ns(&self) -> u64;
    /// What is pending, with `have` and the slot clock of the same instant. An idle node gives no records and the `have`
    /// that it gave before.
    fn cut(&self) -> Result<Batch, Overflow>;
    /// The disk fails: drop what is pending and what comes.
    fn pause(&self);
    /// Queue again. What changed before this call returned is asked for with [`Source::export`].
    fn resume(&self);
    /// A piece of the live state of all replicas, and where to go on; None at the end.
    fn export(&self, from: ExportCursor) -> (Vec<Record>, Option<ExportCursor>);
}

/// Writes what a [`Source`] has to a [`Store`].
pub struct Writer {
    store: Box<dyn Store>,
    source: Arc<dyn Source>,
    status: Arc<Status>,
    state: State,
    retry_ns: u64,
    expire_at_mono_ns: u64,
    /// As this writer last stored it: an idle node writes nothing.
    stored_have: Option<Vec<(ReplicaId, u64)>>,
    stored_limits: Option<Arc<LimitSet>>,
    stored_definitions: Option<Arc<Registry>>,
    /// What the last rewrite wrote: about what is live.
    live_bytes: u64,
}

enum State {
    Healthy,
    /// The store failed; the source is paused.
    Waiting {
        until_mono_ns: u64,
    },
    Rewriting(Rewrite),
}

/// Live state being written anew.
struct Rewrite {
    /// Why.
    cause: Cause,
    /// None: all of it is written.
    next: Option<ExportCursor>,
    /// Records below this number say nothing that the rewritten ones and those after them do not say.
    supersedes: u64,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Records were lost: what is stored must not claim more than before until all of it is written.
    Failure,
    Growth,
}

impl Writer {
    /// A writer to a store that was recovered.
    pub fn new(store: Box<dyn Store>, source: Arc<dyn Source>, status: Arc<Status>) -> Self {
        let held_bytes = store.held_bytes();
        status.update(|figures| figures.held_bytes = held_bytes);
        Self {
            store,
            source,
            status,
            state: State::Healthy,
            retry_ns: FIRST_RETRY_NS,
            expire_at_mono_ns: 0,
            stored_have: None,
            stored_limits: None,
            stored_definitions: None,
            live_bytes: 0,
        }
    }

    /// One round: to be called every `journal.flush`.
    pub fn step(&mut self) {
        if let Err(error) = self.try_step() {
            self.fail(error.to_string());
        }
    }

    /// The last round: what is pending is committed if the disk takes it.
    pub fn finish(&mut self) {
        if matches!(self.state, State::Waiting { .. }) {
            return;
        }
        if let Err(error) = self.write_pending() {
            self.fail(error.to_string());
        }
    }

    /// Runs in a thread of its own, a round every `interval`, until it is stopped.
    pub fn spawn(self, interval: Duration) -> std::io::Result<WriterThread> {
        let (stop, stopped) = sync_channel(0);
        let (finished, done) = oneshot::channel();
        thread::Builder::new().name("journal".into()).spawn(move || {
            self.run(interval, &stopped);
            // The store is closed by now; nobody waiting any more is fine.
            let _ = finished.send(());
        })?;
        Ok(WriterThread { stop, done })
    }

    fn run(mut self, interval: Duration, stopped: &Receiver<()>) {
        while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            self.step();
        }
        self.finish();
    }

    fn try_step(&mut self) -> Result<(), StoreError> {
        if let State::Waiting { until_mono_ns } = self.state {
            if self.source.now().mono_ns < until_mono_ns {
                return Ok(());
            }
            self.resume();
        }
        // Before the cut: the bases that stand for what is expired below must be written by then.
        let swept_ns = self.source.swept_ns();
        if !self.write_pending()? {
            return Ok(());
        }
        if matches!(self.state, State::Rewriting(_)) {
            return self.rewrite_some();
        }
        self.expire(swept_ns)?;
        if self.store.held_bytes() > COMPACT_ABOVE_BYTES.max(COMPACT_GROWTH.saturating_mul(self.live_bytes)) {
            self.begin_rewrite(Cause::Growth);
        }
        Ok(())
    }

    /// Commits what is pending. False: there had been too much of it, and a rewrite began.
    fn write_pending(&mut self) -> Result<bool, StoreError> {
        let mut batch = match self.source.cut() {
            Ok(batch) => batch,
            Err(overflow) => {
                // The disk may be sound by now: no waiting.
                self.status.update(|figures| figures.degraded = Some(overflow.to_string()));
                self.resume();
                return Ok(false);
            }
        };
        if matches!(&self.state, State::Rewriting(rewrite) if rewrite.cause == Cause::Failure) {
            (batch.have, batch.limits) = (None, None);
        }
        // Sets are many and big; one that is in force stays the same allocation.
        batch.limits = batch.limits.filter(|new| !is_same(new, self.stored_limits.as_ref()));
        batch.definitions = batch.definitions.filter(|new| !is_same(new, self.stored_definitions.as_ref()));
        let reaches_further = batch.have.is_some() && batch.have != self.stored_have;
        let other = batch.limits.is_some() || batch.definitions.is_some();
        if !batch.records.is_empty() || reaches_further || other {
            self.commit(&batch)?;
            self.stored_limits = batch.limits.or(self.stored_limits.take());
            self.stored_definitions = batch.definitions.or(self.stored_definitions.take());
            self.stored_have = batch.have.or(self.stored_have.take());
        }
        Ok(true)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let began_ns = self.source.now().mono_ns;
        self.store.commit(batch)?;
        let took_ns = self.source.now().mono_ns.saturating_sub(began_ns);
        let held_bytes = self.store.held_bytes();
        self.status.update(|figures| {
            figures.commits += 1;
            figures.records += batch.records.len() as u64;
            figures.bytes += bytes_of(&batch.records);
            figures.last_commit_ns = took_ns;
            figures.held_bytes = held_bytes;
        });
        Ok(())
    }

    fn expire(&mut self, swept_ns: u64) -> Result<(), StoreError> {
        let mono_ns = self.source.now().mono_ns;
        if mono_ns < self.expire_at_mono_ns {
            return Ok(());
        }
        self.expire_at_mono_ns = mono_ns.saturating_add(EXPIRE_INTERVAL_NS);
        let expired = self.store.expire(swept_ns)?;
        let held_bytes = self.store.held_bytes();
        self.status.update(|figures| {
            figures.expired += expired;
            figures.held_bytes = held_bytes;
        });
        Ok(())
    }

    /// Queues again after records were lost: all that lives is to be written before `have` may be stored again.
    fn resume(&mut self) {
        self.source.resume();
        // What the disk held before it failed may be gone.
        (self.stored_have, self.stored_limits, self.stored_definitions) = (None, None, None);
        self.begin_rewrite(Cause::Failure);
    }

    fn begin_rewrite(&mut self, cause: Cause) {
        let supersedes = self.store.next_number();
        self.state = State::Rewriting(Rewrite { cause, next: Some(ExportCursor::default()), supersedes, bytes: 0 });
    }

    fn rewrite_some(&mut self) -> Result<(), StoreError> {
        let State::Rewriting(rewrite) = &mut self.state else { return Ok(()) };
        let mut records = Vec::new();
        for _ in 0..REWRITE_PIECES {
            let Some(from) = rewrite.next else { break };
            let (piece, next) = self.source.export(from);
            rewrite.bytes += bytes_of(&piece);
            rewrite.next = next;
            records.extend(piece);
            if bytes_of(&records) >= REWRITE_BYTES as u64 {
                break;
            }
        }
        let (done, supersedes, bytes) = (rewrite.next.is_none(), rewrite.supersedes, rewrite.bytes);
        if !records.is_empty() {
            self.commit_live(records)?;
        }
        if done { self.end_rewrite(supersedes, bytes) } else { Ok(()) }
    }

    fn commit_live(&mut self, live: Vec<Record>) -> Result<(), StoreError> {
        let now = self.source.now();
        let batch = Batch { records: live, have: None, slot_clock_ns: now.slot_ns, generation: 0, ..Batch::default() };
        self.commit(&batch)
    }

    fn end_rewrite(&mut self, supersedes: u64, bytes: u64) -> Result<(), StoreError> {
        // From the next cut on `have` is stored again: the live state and all that changed since are.
        self.state = State::Healthy;
        if !self.write_pending()? {
            return Ok(());
        }
        self.store.forget_below(supersedes)?;
        self.live_bytes = bytes;
        self.retry_ns = FIRST_RETRY_NS;
        let held_bytes = self.store.held_bytes();
        self.status.update(|figures| {
            figures.rewrites += 1;
            figures.degraded = None;
            figures.held_bytes = held_bytes;
        });
        Ok(())
    }

    fn fail(&mut self, reason: String) {
        self.source.pause();
        self.status.update(|figures| {
            figures.failures += 1;
            figures.degraded = Some(reason);
        });
        let until_mono_ns = self.source.now().mono_ns.saturating_add(self.retry_ns);
        self.state = State::Waiting { until_mono_ns };
        self.retry_ns = (self.retry_ns * 2).min(LONGEST_RETRY_NS);
    }
}

/// A running [`Writer`]. Dropped, it stops by itself after a last round.
#[derive(Debug)]
pub struct WriterThread {
    stop: SyncSender<()>,
    done: oneshot::Receiver<()>,
}

impl WriterThread {
    /// Lets it write what is pending and close the store. Bound the wait: a disk that hangs never returns.
    pub async fn stop(self) {
        drop(self.stop);
        // An error means that the thread ended without saying so, which is an end as well.
        let _ = self.done.await;
    }
}

fn is_same<T>(new: &Arc<T>, stored: Option<&Arc<T>>) -> bool {
    stored.is_some_and(|stored| Arc::ptr_eq(new, stored))
}

fn bytes_of(records: &[Record]) -> u64 {
    records.iter().map(|record| record.bytes.len() as u64).sum()
}

#[cfg(test)]
mod tests;
