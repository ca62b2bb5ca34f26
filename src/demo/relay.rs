//! UDP relays: the only paths between the demo's nodes. A relay adds latency in both directions and can be cut.
//!
//! [`super::cluster`] makes one for every ordered pair of nodes: it serves the one node that dials through it, so it
//! remembers one client, whoever sent last. Answers go back the way the questions came: what the target sees is the
//! relay's own far socket.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Packets under way on one relay in one direction; what arrives beyond is dropped, as a router would.
const QUEUE_PACKETS: usize = 4096;
/// The largest UDP packet.
const MAX_PACKET_BYTES: usize = 65_535;

/// Which regions are cut off: no packet to or from them passes a relay.
#[derive(Clone, Debug)]
pub(super) struct Cuts(Arc<[AtomicBool]>);

impl Cuts {
    /// None of `regions` is cut off.
    pub(super) fn none(regions: usize) -> Self {
        Self((0..regions).map(|_| AtomicBool::new(false)).collect())
    }

    /// Cuts a region off, or heals it.
    pub(super) fn set(&self, region: usize, cut: bool) {
        if let Some(flag) = self.0.get(region) {
            flag.store(cut, Ordering::Relaxed);
        }
    }

    /// Whether a region is cut off.
    pub(super) fn is_cut(&self, region: usize) -> bool {
        self.0.get(region).is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// What passes through a relay, and how.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Region of the node that dials.
    pub(super) from: usize,
    /// Region of the node that is dialed.
    pub(super) to: usize,
    /// One way, the same in both directions.
    pub(super) latency: Duration,
    /// Consulted for every packet, as it arrives and as it leaves.
    pub(super) cuts: Cuts,
}

impl Path {
    fn is_cut(&self) -> bool {
        self.cuts.is_cut(self.from) || self.cuts.is_cut(self.to)
    }
}

/// A relay with its sockets bound, not yet running: so that all addresses are known, and taken, before any node starts.
#[derive(Debug)]
pub(super) struct Relay {
    path: Path,
    near: Arc<UdpSocket>,
    far: Arc<UdpSocket>,
    client: Arc<Mutex<Option<SocketAddr>>>,
}

impl Relay {
    /// Binds both sockets on loopback.
    pub(super) async fn bind(path: Path) -> io::Result<Self> {
        let near = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
        let far = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
        Ok(Self { path, near, far, client: Arc::default() })
    }

    /// Where the dialing node sends.
    pub(super) fn addr(&self) -> io::Result<SocketAddr> {
        self.near.local_addr()
    }

    /// Forwards between whoever dials and `target` for as long as `tasks` live. `overflowed` counts what a full queue
    /// dropped.
    pub(super) fn run(self, target: SocketAddr, overflowed: &Arc<AtomicU64>, tasks: &mut JoinSet<()>) {
        let there = Pump {
            from: self.near.clone(),
            to: self.far.clone(),
            path: self.path.clone(),
            overflowed: overflowed.clone(),
        };
        let client = self.client.clone();
        tasks.spawn(async move {
            let remember = |source| {
                *client.lock() = Some(source);
                true
            };
            there.run(remember, || Some(target)).await;
        });
        let back = Pump { from: self.far, to: self.near, path: self.path, overflowed: overflowed.clone() };
        let client = self.client;
        tasks.spawn(async move { back.run(|source| source == target, || *client.lock()).await });
    }
}

/// One direction of a relay.
struct Pump {
    from: Arc<UdpSocket>,
    to: Arc<UdpSocket>,
    path: Path,
    overflowed: Arc<AtomicU64>,
}

impl Pump {
    /// `admit` sees every packet's source; `whereto` says where packets go when they are due.
    async fn run(self, admit: impl Fn(SocketAddr) -> bool, whereto: impl Fn() -> Option<SocketAddr>) {
        // The latency is one constant, so first in is first due: a queue keeps the order.
        let mut queue: VecDeque<(Instant, Box<[u8]>)> = VecDeque::new();
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        loop {
            tokio::select! {
                received = self.from.recv_from(&mut buffer) => {
                    // An error here is about one packet (an ICMP answer); to the nodes it is a lost one.
                    let Ok((bytes, source)) = received else { continue };
                    if !admit(source) || self.path.is_cut() {
                        continue;
                    }
                    if queue.len() >= QUEUE_PACKETS {
                        self.overflowed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    queue.push_back((Instant::now() + self.path.latency, buffer[..bytes].into()));
                }
                () = until_due(queue.front()) => {
                    if let (Some((_, packet)), Some(target), false) = (queue.pop_front(), whereto(), self.path.is_cut()) {
                        // What cannot be sent is lost: that is what UDP promises.
                        let _lost_or_sent = self.to.send_to(&packet, target).await;
                    }
                }
            }
        }
    }
}

async fn until_due(front: Option<&(Instant, Box<[u8]>)>) {
    match front {
        Some((due, _)) => tokio::time::sleep_until(*due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for the slowest machine: what is waited for arrives in milliseconds.
    const DEADLINE: Duration = Duration::from_secs(20);

    struct Bench {
        client: UdpSocket,
        target: UdpSocket,
        relay: SocketAddr,
        cuts: Cuts,
        _tasks: JoinSet<()>,
    }

    async fn bench(latency: Duration) -> Bench {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let target = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let cuts = Cuts::none(2);
        let relay = Relay::bind(Path { from: 0, to: 1, latency, cuts: cuts.clone() }).await.unwrap();
        let addr = relay.addr().unwrap();
        let mut tasks = JoinSet::new();
        relay.run(target.local_addr().unwrap(), &Arc::default(), &mut tasks);
        Bench { client, target, relay: addr, cuts, _tasks: tasks }
    }

    async fn next(socket: &UdpSocket) -> (u8, SocketAddr) {
        let mut byte = [0];
        let (_, source) = tokio::time::timeout(DEADLINE, socket.recv_from(&mut byte)).await.expect("a packet").unwrap();
        (byte[0], source)
    }

    #[tokio::test]
    async fn delays_both_ways_and_keeps_the_order() {
        let latency = Duration::from_millis(30);
        let bench = bench(latency).await;
        let start = Instant::now();
        for n in 0..50 {
            bench.client.send_to(&[n], bench.relay).await.unwrap();
        }
        let mut back = None;
        for n in 0..50 {
            let (byte, source) = next(&bench.target).await;
            assert_eq!(byte, n);
            assert!(start.elapsed() >= latency);
            back = Some(source);
        }
        for n in 0..50 {
            bench.target.send_to(&[100 + n], back.unwrap()).await.unwrap();
        }
        for n in 0..50 {
            assert_eq!(next(&bench.client).await, (100 + n, bench.relay));
            assert!(start.elapsed() >= 2 * latency);
        }
    }

    #[tokio::test]
    async fn a_cut_drops_what_comes_and_what_is_under_way_until_healed() {
        let bench = bench(Duration::from_millis(50)).await;
        bench.client.send_to(&[1], bench.relay).await.unwrap();
        let (first, back) = next(&bench.target).await;
        assert_eq!(first, 1);

        bench.cuts.set(1, true);
        bench.client.send_to(&[2], bench.relay).await.unwrap();
        bench.target.send_to(&[3], back).await.unwrap();
        // Longer than the latency: had they been let in, they would be due, and dropped as they leave.
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.cuts.set(1, false);
        bench.client.send_to(&[4], bench.relay).await.unwrap();
        bench.target.send_to(&[5], back).await.unwrap();
        assert_eq!(next(&bench.target).await.0, 4);
        assert_eq!(next(&bench.client).await.0, 5);
    }

    #[tokio::test]
    async fn a_stranger_cannot_answer_for_the_target() {
        let bench = bench(Duration::from_millis(1)).await;
        bench.client.send_to(&[1], bench.relay).await.unwrap();
        let (_, back) = next(&bench.target).await;
        let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        stranger.send_to(&[66], back).await.unwrap();
        bench.target.send_to(&[2], back).await.unwrap();
        assert_eq!(next(&bench.client).await.0, 2);
    }
}
