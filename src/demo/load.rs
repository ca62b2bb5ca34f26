//! The demo's load: an open loop, evenly spaced in time. A node that is slow gets no fewer requests for it.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Duration, Instant};

use super::files::{KEY, LIMIT};
use super::observe::unix_ns;
use super::windows::{Ended, Windows};
use crate::client::Client;

/// Requests of one region under way at once; what is due beyond it is entered as failed.
const MAX_IN_FLIGHT: usize = 128;

/// Load on all regions, until stopped.
#[derive(Debug)]
pub(super) struct Load {
    stop: watch::Sender<bool>,
    regions: JoinSet<()>,
}

impl Load {
    /// Starts to offer one request every `pace_ns` to every region.
    pub(super) fn start(clients: &[Client], pace_ns: u64, books: &Arc<Mutex<Windows>>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut regions = JoinSet::new();
        let now = Instant::now();
        for (region, client) in clients.iter().enumerate() {
            // The regions take turns instead of all asking at the same instant.
            let phase = Duration::from_nanos(pace_ns * region as u64 / clients.len() as u64);
            let source = Source { region, client: client.clone(), books: books.clone() };
            regions.spawn(source.offer(now + phase, Duration::from_nanos(pace_ns), stopped.clone()));
        }
        Self { stop, regions }
    }

    /// Offers no more, and waits until all that is under way has been answered and entered.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.regions.join_next().await {
            unless_panicked(ended);
        }
    }
}

/// Offers to one region.
#[derive(Clone)]
struct Source {
    region: usize,
    client: Client,
    books: Arc<Mutex<Windows>>,
}

impl Source {
    async fn offer(self, start: Instant, pace: Duration, mut stopped: watch::Receiver<bool>) {
        let body = Arc::new(json!({ "limit": LIMIT, "key": KEY }));
        let mut requests = JoinSet::new();
        let mut due = start;
        loop {
            tokio::select! {
                biased;
                _ = stopped.changed() => break,
                Some(ended) = requests.join_next(), if !requests.is_empty() => unless_panicked(ended),
                () = tokio::time::sleep_until(due) => {
                    due += pace;
                    if requests.len() < MAX_IN_FLIGHT {
                        requests.spawn(self.clone().ask(body.clone()));
                    } else {
                        self.books.lock().record(self.region, unix_ns(), Ended::Failed);
                    }
                }
            }
        }
        while let Some(ended) = requests.join_next().await {
            unless_panicked(ended);
        }
    }

    async fn ask(self, body: Arc<Value>) {
        let sent_ns = unix_ns();
        let ended = match self.client.post_json("/v1/check", &body).await.map(|answer| answer.status.as_u16()) {
            Ok(200) => Ended::Admitted,
            Ok(429) => Ended::Denied,
            _ => Ended::Failed,
        };
        // The node decided somewhere between question and answer; the two may lie in different windows.
        let decided_ns = sent_ns.midpoint(unix_ns());
        self.books.lock().record(self.region, decided_ns, ended);
    }
}

/// A panic in a task goes on in whoever waits for it.
fn unless_panicked(ended: Result<(), JoinError>) {
    if let Some(panic) = ended.err().filter(JoinError::is_panic) {
        std::panic::resume_unwind(panic.into_panic());
    }
}
