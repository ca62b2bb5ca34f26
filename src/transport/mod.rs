//! QUIC between nodes: connections, certificates, frames of bounded length. Knows nothing of what the frames say: a
//! [`Hub`] does.
//!
//! The node starts it with [`spawn`]. Reading goes link -> hub, writing hub -> link; a link asks for a frame when the one
//! before is written, so that QUIC's flow control is all the queue there is.

mod close;
mod dial;
mod endpoint;
mod link;
mod quic;
mod rejects;
mod tls;
mod udp;
mod window;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

pub use close::MAX_REASON_BYTES;
pub use dial::{MAX_ADDRESSES, MAX_BACKOFF, MIN_BACKOFF, SELF_RECHECK, STEADY_AFTER};
pub use endpoint::{MAX_HANDSHAKES, MAX_LINKS, STOP_GRACE, Settings, Transport, VALIDATE_ABOVE, spawn};
pub use link::{HANDSHAKE_TIMEOUT, HELLO_TIMEOUT};
pub use quic::{
    CONNECTION_ID_BYTES, IDLE_TIMEOUT, INCOMING_BUFFER_BYTES, INCOMING_BUFFERS_BYTES, KEEP_ALIVE, MAX_INCOMING,
    RECEIVE_WINDOW_BYTES, SEND_WINDOW_BYTES,
};
pub use rejects::{MAX_REJECTS, REJECTS_EVERY};
pub use tls::{ALPN, Identity, IdentityError, IdentityFile, MAX_CERTIFICATES};
pub use udp::UdpNetwork;
pub use window::WINDOW_FLOOR_BYTES;

use crate::gossip::{ConnId, Next, Refusal};
use crate::id::NodeName;
use endpoint::Shared;

/// Who decides about frames: the node.
pub trait Hub: Send + Sync + 'static {
    /// The first frame to send on a connection.
    fn hello(&self) -> Vec<u8>;
    /// A peer's first frame. `rtt_ns` here and below is the least round trip measured, 0 before any was. `vouched` tells whether its verified certificate bears a name.
    fn accept(
        &self,
        conn: ConnId,
        dialed: bool,
        hello: &[u8],
        vouched: &dyn Fn(&NodeName) -> bool,
        rtt_ns: u64,
    ) -> Result<NodeName, Refusal>;
    /// A later frame.
    fn receive(&self, conn: ConnId, frame: &[u8], rtt_ns: u64) -> Result<(), Refusal>;
    /// What to write next.
    fn poll(&self, conn: ConnId) -> Next;
    /// The connection is gone; `why` for the log.
    fn closed(&self, conn: ConnId, why: &str);
    /// Changes whenever somebody may have something to send.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Whether this node is connected to `name` (then its seed need not be dialed).
    fn connected(&self, name: &NodeName) -> bool;
    /// A round through the addresses of a seed is over. `silent`: no node ever answered there, as far as is known.
    fn tried(&self, seed: &str, silent: bool);
    /// A peer turned this node away: another process of its name is alive.
    fn outlived(&self, by: &NodeName);
    /// A handshake failed or a connection was refused, for logs and metrics. Already rate-limited.
    fn rejected(&self, remote: SocketAddr, why: &str);
}

/// A boxed future.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The network: the machine's own, or a simulated one.
pub trait Network: Send + Sync + 'static {
    /// A UDP socket.
    fn bind(&self, addr: SocketAddr) -> std::io::Result<Arc<dyn quinn::AsyncUdpSocket>>;
    /// The addresses of `host:port`.
    fn resolve(&self, host: String) -> Boxed<std::io::Result<Vec<SocketAddr>>>;
    /// A seed that makes quinn deterministic; None in production.
    fn quic_seed(&self) -> Option<u64>;
}
