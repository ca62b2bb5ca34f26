//! The endpoint: one socket, an accept loop, a dialer for each seed.

use std::hash::Hasher;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use quinn::{AsyncUdpSocket, ClientConfig, Endpoint, Incoming, TokioRuntime};
use rand::SeedableRng;
use rand::rngs::StdRng;
use siphasher::sip::SipHasher13;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::close::End;
use super::dial::{self, Dials};
use super::link::Link;
use super::quic::{self, Quic};
use super::rejects::Rejects;
use super::{Hub, Identity, IdentityError, Network};
use crate::gossip::ConnId;
use crate::id::{NodeName, ReplicaId};
use crate::time::Clock;

/// Connections that peers make and that are not accepted yet, at most.
pub const MAX_HANDSHAKES: usize = 64;
/// With more than this many of them a newcomer must first prove that it receives at its address.
pub const VALIDATE_ABOVE: usize = 16;
/// Connections that peers made, at most.
pub const MAX_LINKS: usize = 1024;
/// How long a stopping transport waits beyond its deadline for its own tasks, and again for its last packets.
pub const STOP_GRACE: Duration = Duration::from_millis(500);

/// What a transport is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node's certificate and key.
    pub identity: Identity,
    /// This life of this node.
    pub own: ReplicaId,
    /// Where it listens, for UDP.
    pub listen: SocketAddr,
    /// Whom it dials: `host:port`.
    pub seeds: Vec<String>,
}

/// The running transport. Dropping it ends everything at once; [`Transport::stop`] does so in order.
pub struct Transport {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    quic: Quic,
    socket: Weak<dyn AsyncUdpSocket>,
    local_addr: SocketAddr,
}

/// What all connections use.
pub(super) struct Shared {
    pub(super) hub: Arc<dyn Hub>,
    pub(super) network: Arc<dyn Network>,
    pub(super) own: NodeName,
    pub(super) endpoint: Endpoint,
    pub(super) client: Mutex<ClientConfig>,
    pub(super) dials: Dials,
    pub(super) rejects: Rejects,
    /// Connections that ended: seeds are looked at again.
    pub(super) ended: watch::Sender<u64>,
    pub(super) stopping: watch::Sender<bool>,
    next_conn: AtomicU64,
}

/// Binds the socket and starts dialing and accepting. To be called in a tokio runtime. All randomness comes from `rng`,
/// or from the network's seed where it has one.
pub fn spawn(
    settings: Settings,
    network: Arc<dyn Network>,
    clock: Arc<dyn Clock>,
    rng: StdRng,
    hub: Arc<dyn Hub>,
) -> io::Result<Transport> {
    let Settings { identity, own, listen, seeds } = settings;
    let mut rng = network.quic_seed().map_or(rng, |seed| rng_of_life(seed, &own));
    let quic = Quic::new(clock, &mut rng);
    let (server, client) = (quic.server(&identity), quic.client(&identity));
    let (server, client) = (server.map_err(io::Error::other)?, client.map_err(io::Error::other)?);

    let socket = network.bind(listen).map_err(|e| io::Error::new(e.kind(), format!("UDP {listen}: {e}")))?;
    let released = Arc::downgrade(&socket);
    let config = quic::endpoint(&identity, &mut rng);
    let endpoint = Endpoint::new_with_abstract_socket(config, Some(server), socket, Arc::new(TokioRuntime))?;
    let local_addr = endpoint.local_addr()?;
    let shared = Arc::new(Shared {
        hub,
        network,
        own: own.node,
        endpoint,
        client: Mutex::new(client),
        dials: Dials::new(StdRng::from_rng(&mut rng)),
        rejects: Rejects::default(),
        ended: watch::Sender::new(0),
        stopping: watch::Sender::new(false),
        next_conn: AtomicU64::new(1),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(shared.clone()));
    for seed in seeds {
        tasks.spawn(dial::keep(shared.clone(), seed, StdRng::from_rng(&mut rng)));
    }
    Ok(Transport { shared, tasks, quic, socket: released, local_addr })
}

/// A generator for one life of one node, so that a restarted host does not repeat its ids.
fn rng_of_life(seed: u64, own: &ReplicaId) -> StdRng {
    let mut hasher = SipHasher13::new_with_keys(seed, 0);
    hasher.write(own.to_string().as_bytes());
    StdRng::seed_from_u64(hasher.finish())
}

impl Transport {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Uses another certificate for connections that are made from now on. The key for stateless resets stays that of
    /// the identity at the start.
    pub fn replace_identity(&self, identity: &Identity) -> Result<(), IdentityError> {
        let (server, client) = (self.quic.server(identity)?, self.quic.client(identity)?);
        *self.shared.client.lock() = client;
        self.shared.endpoint.set_server_config(Some(server));
        Ok(())
    }

    /// Stops: no more dialing and accepting, then on each connection what the hub still has to send, until the peer has
    /// read it. What is not done at the deadline is cut off. Afterwards the port is free.
    pub async fn stop(mut self, deadline: Instant) {
        self.shared.stopping.send_replace(true);
        if timeout_at(deadline, join(&mut self.tasks)).await.is_err() {
            let end = End::Stopping;
            self.shared.endpoint.close(end.code(), &end.reason(&self.shared.own));
            if timeout(STOP_GRACE, join(&mut self.tasks)).await.is_err() {
                self.tasks.shutdown().await;
            }
        }
        let Self { shared, socket, .. } = self;
        // The last packets tell the peers.
        let _ = timeout(STOP_GRACE, shared.endpoint.wait_idle()).await;
        drop(shared);
        // quinn's own task lets go of the socket a moment later.
        let _ = timeout(STOP_GRACE, released(socket)).await;
    }
}

async fn released(socket: Weak<dyn AsyncUdpSocket>) {
    while socket.strong_count() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Accepts connections until the transport stops, then waits for them to end.
async fn accept(shared: Arc<Shared>) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let mut stopping = shared.stopping.subscribe();
    let mut links = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => break,
            Some(ended) = links.join_next() => report(ended),
            incoming = shared.endpoint.accept() => match incoming {
                Some(incoming) => admit(&shared, incoming, &handshakes, &mut links),
                None => break,
            },
        }
    }
    shared.endpoint.set_server_config(None);
    join(&mut links).await;
}

/// Decides about a connection that a peer begins, before any cryptography is spent on it.
fn admit(shared: &Arc<Shared>, incoming: Incoming, handshakes: &Arc<Semaphore>, links: &mut JoinSet<()>) {
    let remote = incoming.remote_address();
    if shared.dials.comes_back(incoming.orig_dst_cid()) {
        return incoming.refuse();
    }
    let (permit, full) = (handshakes.clone().try_acquire_owned(), links.len() >= MAX_LINKS);
    let Some(permit) = permit.ok().filter(|_| !full) else {
        shared.reject(remote, "too many connections at once");
        return incoming.ignore();
    };
    let under_way = MAX_HANDSHAKES - handshakes.available_permits();
    if under_way > VALIDATE_ABOVE && !incoming.remote_address_validated() {
        // It cannot fail: an address that is not validated may be asked to retry.
        let _ = incoming.retry();
        return;
    }
    links.spawn(answer(shared.clone(), incoming, permit));
}

async fn answer(shared: Arc<Shared>, incoming: Incoming, permit: OwnedSemaphorePermit) {
    let remote = incoming.remote_address();
    let answered = Link::answer(&shared, incoming).await;
    drop(permit);
    match answered {
        Ok(link) => link.run().await,
        Err(end) if end.benign() => {}
        Err(end) => shared.reject(remote, &end.to_string()),
    }
}

impl Shared {
    /// The number of a connection.
    pub(super) fn next_conn(&self) -> ConnId {
        ConnId(self.next_conn.fetch_add(1, Ordering::Relaxed))
    }

    /// Tells the hub of a peer that was not let in. A socket of both families shows IPv4 addresses as IPv6.
    pub(super) fn reject(&self, remote: SocketAddr, why: &str) {
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        if self.rejects.stranger(remote, Instant::now()) {
            self.hub.rejected(remote, why);
        }
    }
}

async fn join(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        report(ended);
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(e) = ended
        && e.is_panic()
    {
        tracing::error!(error = %e, "a connection's task failed; this is a bug");
    }
}
