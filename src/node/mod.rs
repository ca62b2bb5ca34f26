//! A node, built from its parts: recovers, starts its tasks, serves, and stops.
//!
//! [`start`] is called by `serve` with the machine's own clock, network and disk, and by the simulation with others.

mod body;
mod definitions;
mod hub;
mod recover;
mod shared;
mod source;
mod tasks;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

pub use body::{Body, BodyParts, Inspector, Sizes};
pub use tasks::{FLUSH_APART, SECOND_HAND, TICK};

use crate::api;
use crate::engine::{self, Engine};
use crate::id::{NodeName, ReplicaId, Secret};
use crate::journal::{Store, StoreError};
use crate::limits::LimitSet;
use crate::time::{Clock, SlotClock};
use crate::transport::{self, Identity, IdentityError, Network, Transport};

use shared::Shared;
use tasks::JournalTask;

/// Recent chunks that a node keeps for its peers, bytes. What is older is sent as state.
pub const RING_BYTES: usize = 16 * 1024 * 1024;

/// How often a node without peers collects what changed, for its journal.
const ALONE_INTERVAL: Duration = Duration::from_millis(50);

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name.
    pub name: NodeName,
    /// Where it is.
    pub region: String,
    /// The engine.
    pub engine: engine::Settings,
    /// The HTTP API.
    pub http: api::Settings,
    /// The cluster it belongs to; None: a single node.
    pub cluster: Option<Cluster>,
    /// The limits of the file.
    pub limits: LimitSet,
    /// How often the journal is written.
    pub journal_flush: Duration,
    /// How long a stop may take.
    pub shutdown_timeout: Duration,
}

/// What makes a node one of several.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Where peers reach it.
    pub listen: SocketAddr,
    /// Peers to dial, `host:port`.
    pub seeds: Vec<String>,
    /// How often changes are sent.
    pub interval: Duration,
    /// After this long a node is ready although no peer has answered.
    pub sync_timeout: Duration,
    /// The cluster's secret.
    pub secret: Secret,
    /// Recent chunks kept for peers, bytes: [`RING_BYTES`].
    pub ring_bytes: usize,
    /// Its certificate.
    pub identity: Identity,
}

/// What differs between a real node and a simulated one.
pub struct Parts {
    /// The machine's clocks.
    pub clock: Arc<dyn Clock>,
    /// The network between nodes.
    pub network: Arc<dyn Network>,
    /// The disk.
    pub store: Box<dyn Store>,
    /// Nonces, jitter, and the secret of a node without a cluster.
    pub rng: StdRng,
    /// Who runs the journal.
    pub journal: JournalRunner,
}

/// Who runs the journal: its calls block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalRunner {
    /// A thread of its own.
    Thread,
    /// A task beside the others: for stores that do not block (simulation).
    Inline,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The socket for peers.
    #[error("gossip.listen {addr}: {problem}")]
    Listen {
        /// As configured.
        addr: SocketAddr,
        /// Why not.
        problem: std::io::Error,
    },
    /// The journal's thread.
    #[error("no thread for the journal: {0}")]
    Thread(std::io::Error),
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// A clock whose monotonic time begins now.
    #[expect(clippy::new_without_default, reason = "a default clock would hide that time is read here")]
    #[expect(clippy::disallowed_methods, reason = "the one place where the machine's clocks are read")]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn monotonic_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where the machine's clocks are read")]
    fn system_ns(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    }
}

/// A running node.
pub struct Node {
    body: Body,
    transport: Option<Transport>,
    tasks: JoinSet<()>,
    http: tokio::task::JoinHandle<()>,
    journal: JournalTask,
    shutdown_timeout: Duration,
}

/// Starts a node that serves its API on `http`.
///
/// # Errors
/// When the data folder is not this node's or does not work, or the socket for peers cannot be bound.
pub async fn start<L>(mut settings: Settings, mut parts: Parts, http: L) -> Result<Node, StartError>
where
    L: axum::serve::Listener,
{
    let machine = BodyParts { clock: parts.clock, store: parts.store, rng: &mut parts.rng };
    let (body, writer) = Body::start(&mut settings, machine)?;
    let shared = &body.shared;
    let journal = JournalTask::start(writer, parts.journal, settings.journal_flush)?;
    let transport = match settings.cluster {
        Some(cluster) => Some(connect(cluster, shared, parts.network, &mut parts.rng)?),
        None => None,
    };
    let tasks = tasks::spawn(shared);
    let http = serve(http, shared, settings.http);
    Ok(Node { body, transport, tasks, http, journal, shutdown_timeout: settings.shutdown_timeout })
}

fn connect(
    cluster: Cluster,
    shared: &Arc<Shared>,
    network: Arc<dyn Network>,
    rng: &mut StdRng,
) -> Result<Transport, StartError> {
    let addr = cluster.listen;
    shared.certificate_expires_s.store(cluster.identity.expires_s(), Ordering::Relaxed);
    let settings = transport::Settings {
        identity: cluster.identity,
        own: shared.engine.own(),
        listen: addr,
        seeds: cluster.seeds,
    };
    let (clock, rng, hub) = (Arc::clone(&shared.clock), StdRng::from_rng(rng), Arc::clone(shared));
    transport::spawn(settings, network, clock, rng, hub).map_err(|problem| StartError::Listen { addr, problem })
}

fn serve<L>(listener: L, shared: &Arc<Shared>, settings: api::Settings) -> tokio::task::JoinHandle<()>
where
    L: axum::serve::Listener,
{
    let service = api::Service {
        engine: Arc::clone(&shared.engine),
        clock: Arc::clone(&shared.clock),
        slot_clock: Arc::clone(&shared.slot_clock),
        urge: Arc::clone(&shared.urge),
        node: Arc::clone(shared) as Arc<dyn api::NodeView>,
        definer: Arc::clone(shared) as Arc<dyn api::Definer>,
        stopping: shared.stopping.clone(),
        settings,
    };
    let mut stopping = shared.stopping.clone();
    let stopped = async move {
        // An error means that the node was dropped, which stops it too.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    tokio::spawn(api::serve(listener, api::router(service), stopped, api::HEAD_TIMEOUT))
}

impl Node {
    /// Replaces the limits of the file.
    pub fn install(&self, limits: LimitSet) {
        self.body.shared.install(limits);
    }

    /// What is wrong with the config file, said in health until it is None again.
    pub fn set_config_problem(&self, problem: Option<String>) {
        *self.body.shared.config_problem.lock() = problem;
    }

    /// Uses another certificate for connections made from now on.
    ///
    /// # Errors
    /// When TLS does not take it; the old one stays.
    pub fn replace_identity(&self, identity: &Identity) -> Result<(), IdentityError> {
        let Some(transport) = &self.transport else { return Ok(()) };
        transport.replace_identity(identity)?;
        self.body.shared.certificate_expires_s.store(identity.expires_s(), Ordering::Relaxed);
        Ok(())
    }

    /// The state.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.body.shared.engine
    }

    /// The slot clock.
    pub fn slot_clock(&self) -> &Arc<SlotClock> {
        &self.body.shared.slot_clock
    }

    /// The id it writes under now.
    pub fn own(&self) -> ReplicaId {
        self.body.shared.engine.own()
    }

    /// Looks into it.
    pub fn inspector(&self) -> Inspector {
        self.body.inspector()
    }

    /// Where peers reach it.
    pub fn gossip_addr(&self) -> Option<SocketAddr> {
        self.transport.as_ref().map(Transport::local_addr)
    }

    /// Returns only when a task of the node ended, which none does before a stop: a bug.
    pub async fn failed(&mut self) -> String {
        match self.tasks.join_next().await {
            Some(Err(error)) => error.to_string(),
            _ => "a task of the node ended".to_owned(),
        }
    }

    /// Stops: `/readyz` turns 503, requests in flight finish, a last flush goes to peers and disk. Takes at most the
    /// configured shutdown timeout.
    pub async fn stop(mut self) {
        let deadline = tokio::time::Instant::now() + self.shutdown_timeout;
        self.body.stop.send_replace(true);
        if tokio::time::timeout_at(deadline, &mut self.http).await.is_err() {
            self.http.abort();
            tracing::warn!("requests were still in flight at the end of shutdown_timeout");
        }
        self.tasks.shutdown().await;
        self.body.shared.flush();
        if let Some(transport) = self.transport.take() {
            transport.stop(deadline).await;
        }
        self.journal.stop(deadline).await;
    }
}
