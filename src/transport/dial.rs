//! Keeps a connection to a seed, for as long as the node runs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quinn::ConnectionId;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::close::End;
use super::link::Link;
use super::quic::first_id;
use crate::id::{NodeName, TLS_NAME};

/// The first wait after a failed try; it doubles from try to try.
pub const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// The longest wait between two tries.
pub const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// A connection that lasted this long makes the waits start anew.
pub const STEADY_AFTER: Duration = Duration::from_secs(5);
/// A seed that turned out to be this node itself is tried again after this time: its name may mean another one then.
pub const SELF_RECHECK: Duration = Duration::from_secs(60);
/// Addresses of one seed that are tried.
pub const MAX_ADDRESSES: usize = 16;

/// Connects to `seed`, and again whenever the connection ends, until the transport stops.
pub(super) async fn keep(shared: Arc<Shared>, seed: String, rng: StdRng) {
    let mut stopping = shared.stopping.subscribe();
    let mut dialer = Dialer { shared, seed, backoff: Backoff::new(rng), answered: None, resolves: true };
    loop {
        let link = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            link = dialer.connect() => link,
        };
        let since = Instant::now();
        link.run().await;
        if since.elapsed() >= STEADY_AFTER {
            dialer.backoff.restart();
        }
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = dialer.backoff.wait() => {}
        }
    }
}

struct Dialer {
    shared: Arc<Shared>,
    seed: String,
    backoff: Backoff,
    /// Who answered at this seed last.
    answered: Option<NodeName>,
    /// Whether the seed's name had addresses at the last try, so that a lasting failure is logged once.
    resolves: bool,
}

/// What a round through a seed's addresses came to.
enum Tried {
    Connected(Box<Link>),
    Myself,
    Failed,
}

impl Dialer {
    /// Tries until there is a connection.
    async fn connect(&mut self) -> Link {
        loop {
            self.until_wanted().await;
            let tried = self.try_addresses().await;
            let silent = matches!(tried, Tried::Failed) && self.answered.is_none();
            self.shared.hub.tried(&self.seed, silent);
            match tried {
                Tried::Connected(link) => {
                    self.answered = Some(link.name().clone());
                    return *link;
                }
                Tried::Myself => sleep(SELF_RECHECK).await,
                Tried::Failed => self.backoff.wait().await,
            }
        }
    }

    /// Returns when this node is not connected to the seed's node, as far as it knows who that is.
    async fn until_wanted(&self) {
        let mut ended = self.shared.ended.subscribe();
        while self.answered.as_ref().is_some_and(|name| self.shared.hub.connected(name)) {
            if ended.changed().await.is_err() {
                return;
            }
        }
    }

    /// One round. The name is resolved anew each time: nodes move.
    async fn try_addresses(&mut self) -> Tried {
        let addresses = match self.shared.network.resolve(self.seed.clone()).await {
            Ok(addresses) if !addresses.is_empty() => addresses,
            Ok(_) => return self.unresolved("it has no address"),
            Err(e) => return self.unresolved(&e.to_string()),
        };
        self.resolves = true;
        for addr in addresses.into_iter().take(MAX_ADDRESSES) {
            let (id, tried) = self.try_address(addr).await;
            let came_back = self.shared.dials.end(id);
            let end = match tried {
                Ok(link) => return Tried::Connected(Box::new(link)),
                Err(_) if came_back => return Tried::Myself,
                Err(end) => end,
            };
            if let Some(name) = end.already_connected() {
                self.answered = Some(name);
                return Tried::Failed;
            }
            self.failed(addr, &end);
        }
        Tried::Failed
    }

    async fn try_address(&self, addr: SocketAddr) -> (ConnectionId, Result<Link, End>) {
        let id = self.shared.dials.begin();
        let mut config = self.shared.client.lock().clone();
        config.initial_dst_cid_provider(Arc::new(move || id));
        let link = match self.shared.endpoint.connect_with(config, addr, TLS_NAME) {
            Ok(connecting) => Link::dial(&self.shared, connecting).await,
            Err(problem) => Err(End::Undialable(problem)),
        };
        (id, link)
    }

    fn unresolved(&mut self, problem: &str) -> Tried {
        if std::mem::take(&mut self.resolves) {
            tracing::warn!(seed = self.seed, problem, "cannot resolve a seed; going on trying");
        }
        Tried::Failed
    }

    fn failed(&self, addr: SocketAddr, end: &End) {
        tracing::debug!(seed = self.seed, %addr, %end, "cannot connect to a seed");
        if !end.benign() && self.shared.rejects.seed(addr, Instant::now()) {
            self.shared.hub.rejected(addr, &format!("dialed as seed {}: {end}", self.seed));
        }
    }
}

/// Waits that double, each drawn from the upper half, so that nodes that lost each other do not dial in step.
struct Backoff {
    next: Duration,
    rng: StdRng,
}

impl Backoff {
    fn new(rng: StdRng) -> Self {
        Self { next: MIN_BACKOFF, rng }
    }

    fn restart(&mut self) {
        self.next = MIN_BACKOFF;
    }

    fn draw(&mut self) -> Duration {
        let longest = self.next;
        self.next = (longest * 2).min(MAX_BACKOFF);
        self.rng.random_range(longest / 2..=longest)
    }

    async fn wait(&mut self) {
        let wait = self.draw();
        sleep(wait).await;
    }
}

/// The ids of connections being dialed. One that arrives at this node's own port shows that a seed is the node itself,
/// which is no mistake: every node may have the same list of seeds.
pub(super) struct Dials {
    rng: Mutex<StdRng>,
    /// At most one for each seed; true once it came back.
    open: Mutex<HashMap<ConnectionId, bool>>,
}

impl Dials {
    pub(super) fn new(rng: StdRng) -> Self {
        Self { rng: Mutex::new(rng), open: Mutex::default() }
    }

    fn begin(&self) -> ConnectionId {
        let id = first_id(&mut self.rng.lock());
        self.open.lock().insert(id, false);
        id
    }

    /// Whether a connection that arrives was dialed by this node.
    pub(super) fn comes_back(&self, id: ConnectionId) -> bool {
        self.open.lock().get_mut(&id).map(|back| *back = true).is_some()
    }

    fn end(&self, id: ConnectionId) -> bool {
        self.open.lock().remove(&id).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn waits_double_up_to_the_longest_and_start_anew() {
        let mut backoff = Backoff::new(StdRng::seed_from_u64(1));
        let mut longest = MIN_BACKOFF;
        for _ in 0..20 {
            let wait = backoff.draw();
            assert!(wait >= longest / 2 && wait <= longest, "{wait:?} of {longest:?}");
            longest = (longest * 2).min(MAX_BACKOFF);
        }
        assert_eq!(longest, MAX_BACKOFF);
        backoff.restart();
        assert!(backoff.draw() <= MIN_BACKOFF);
    }

    #[test]
    fn equal_seeds_wait_alike() {
        let waits = |seed| {
            let mut backoff = Backoff::new(StdRng::seed_from_u64(seed));
            (0..8).map(|_| backoff.draw()).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }

    #[test]
    fn a_dial_that_comes_back_is_known() {
        let dials = Dials::new(StdRng::seed_from_u64(1));
        let (one, other) = (dials.begin(), dials.begin());
        assert!(dials.comes_back(one));
        assert!(!dials.comes_back(ConnectionId::new(&[1; 16])));
        assert!(dials.end(one) && !dials.end(other));
        assert!(!dials.comes_back(one));
    }
}
