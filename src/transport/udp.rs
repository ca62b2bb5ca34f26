//! The machine's own network.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{AsyncUdpSocket, Runtime, TokioRuntime};

use super::{Boxed, Network};

/// Sockets and names of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpNetwork;

impl Network for UdpNetwork {
    fn bind(&self, addr: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(UdpSocket::bind(addr)?)
    }

    fn resolve(&self, host: String) -> Boxed<io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host(host).await?.collect()) })
    }

    fn quic_seed(&self) -> Option<u64> {
        None
    }
}
