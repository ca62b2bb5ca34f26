//! The tasks of a node: flushing, ticking, the second hand, and the journal.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

use super::shared::Shared;
use super::{JournalRunner, StartError};
use crate::engine::SWEEP_PIECES;
use crate::journal::{Writer, WriterThread};

/// Early flushes are at least this far apart.
pub const FLUSH_APART: Duration = Duration::from_millis(5);
/// How often the protocol's timeouts are looked at.
pub const TICK: Duration = Duration::from_millis(100);
/// How often clocks are compared and expired state is dropped.
pub const SECOND_HAND: Duration = Duration::from_secs(1);

/// Starts everything but the journal, the transport and the HTTP server.
pub(super) fn spawn(shared: &Arc<Shared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(flush(Arc::clone(shared)));
    tasks.spawn(tick(Arc::clone(shared)));
    tasks.spawn(second_hand(Arc::clone(shared)));
    tasks
}

/// Every interval, and at once when a check was urgent.
async fn flush(shared: Arc<Shared>) {
    let mut next = interval(shared.interval);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        tokio::select! {
            biased;
            _ = next.tick() => {}
            () = shared.urge.notified() => {
                sleep_until(last + FLUSH_APART).await;
                next.reset();
            }
        }
        shared.flush();
        last = Instant::now();
    }
}

async fn tick(shared: Arc<Shared>) {
    let mut next = interval(TICK);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        next.tick().await;
        shared.tick();
    }
}

async fn second_hand(shared: Arc<Shared>) {
    let mut next = interval(SECOND_HAND);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        next.tick().await;
        shared.follow_clock();
        // A piece at a time: with millions of keys it would else hold up a thread of the runtime.
        let now = shared.now();
        for piece in 0..SWEEP_PIECES {
            shared.sweep_piece(&now, piece);
            yield_now().await;
        }
        shared.swept(&now);
    }
}

/// The running journal.
pub(super) enum JournalTask {
    /// In a thread of its own.
    Thread(WriterThread),
    /// In a task; sending on the channel asks for the last round.
    Inline(oneshot::Sender<()>, JoinHandle<()>),
}

impl JournalTask {
    /// Starts writing, a round every `interval`.
    pub fn start(writer: Writer, runner: JournalRunner, interval: Duration) -> Result<Self, StartError> {
        match runner {
            JournalRunner::Thread => writer.spawn(interval).map(Self::Thread).map_err(StartError::Thread),
            JournalRunner::Inline => {
                let (stop, stopped) = oneshot::channel();
                Ok(Self::Inline(stop, tokio::spawn(write_inline(writer, interval, stopped))))
            }
        }
    }

    /// A last round, at most until `deadline`.
    pub async fn stop(self, deadline: Instant) {
        let stopped = match self {
            Self::Thread(thread) => timeout_at(deadline, thread.stop()).await,
            Self::Inline(stop, task) => {
                drop(stop);
                timeout_at(deadline, async { task.await.expect("the journal's task does not panic") }).await
            }
        };
        if stopped.is_err() {
            tracing::warn!("the journal was still writing at the end of shutdown_timeout");
        }
    }
}

async fn write_inline(mut writer: Writer, period: Duration, mut stopped: oneshot::Receiver<()>) {
    let mut next = interval(period);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            _ = next.tick() => writer.step(),
        }
    }
    writer.finish();
}
