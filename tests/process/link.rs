//! A link between two nodes that can be cut: a UDP relay that one of them dials.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Packets pass until it is cut; those of a cut are lost.
pub struct Link {
    cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
    addr: SocketAddr,
}

impl Link {
    /// To the node that hears its peers at `target`.
    pub async fn to(target: SocketAddr) -> Self {
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (cut, addr) = (Arc::new(AtomicBool::new(false)), near.local_addr().unwrap());
        Self { task: tokio::spawn(relay(near, far, target, Arc::clone(&cut))), cut, addr }
    }

    /// What the other node dials.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(near: UdpSocket, far: UdpSocket, target: SocketAddr, cut: Arc<AtomicBool>) {
    let (mut there, mut back) = (vec![0; 65_535], vec![0; 65_535]);
    let mut client = None;
    loop {
        // A node that is not there yet, or no more, shows as an error of the next call: its packets are lost.
        tokio::select! {
            received = near.recv_from(&mut there) => {
                let Ok((len, from)) = received else { continue };
                client = Some(from);
                if !cut.load(Ordering::Relaxed) {
                    let _ = far.send_to(&there[..len], target).await;
                }
            }
            received = far.recv_from(&mut back) => {
                let (Ok((len, _)), Some(client)) = (received, client) else { continue };
                if !cut.load(Ordering::Relaxed) {
                    let _ = near.send_to(&back[..len], client).await;
                }
            }
        }
    }
}
