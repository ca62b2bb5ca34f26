//! The way of frames: between the transport and the protocol.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::shared::{LinkInfo, Shared};
use crate::gossip::{ConnId, Next, Refusal};
use crate::id::NodeName;
use crate::transport::Hub;

impl Hub for Shared {
    fn hello(&self) -> Vec<u8> {
        self.core.lock().gossip.hello(&self.now())
    }

    fn accept(
        &self,
        conn: ConnId,
        dialed: bool,
        hello: &[u8],
        vouched: &dyn Fn(&NodeName) -> bool,
        rtt_ns: u64,
    ) -> Result<NodeName, Refusal> {
        let now = self.now();
        let (peer, stamp_ns, differ) = {
            let mut core = self.core.lock();
            let (peer, stamp_ns) = core.gossip.accept(conn, dialed, hello, vouched, &now, &self.engine)?;
            let differ = core.gossip.expected_otherwise(&peer);
            (peer, stamp_ns, differ)
        };
        let link = LinkInfo { peer: peer.clone(), rtt_ns, beats: 0 };
        self.slot_clock.heard(&peer, stamp_ns, link.sure_rtt_ns(), now.mono_ns);
        let mut links = self.links.lock();
        // Nodes that dial each other meet twice and keep one connection.
        let again = links.values().any(|link| link.peer == peer);
        links.insert(conn, link);
        drop(links);
        if again {
            tracing::debug!(%peer, dialed, "connected once more");
        } else {
            tracing::info!(%peer, dialed, "connected");
        }
        if let Some((there, here)) = differ {
            tracing::warn!(%peer, there, here, "gossip.expected_nodes differs; the larger one is used");
        }
        self.wake();
        Ok(peer)
    }

    fn receive(&self, conn: ConnId, frame: &[u8], rtt_ns: u64) -> Result<(), Refusal> {
        let now = self.now();
        let received = {
            let mut core = self.core.lock();
            let mut received = core.gossip.receive(conn, frame, &now, &self.engine)?;
            core.pending.push(std::mem::take(&mut received.records));
            received
        };
        if let Some(stamp_ns) = received.stamp_ns {
            let mut links = self.links.lock();
            if let Some(link) = links.get_mut(&conn) {
                link.rtt_ns = rtt_ns;
                link.beats = link.beats.saturating_add(1);
                self.slot_clock.heard(&link.peer, stamp_ns, link.sure_rtt_ns(), now.mono_ns);
            }
        }
        if !received.defined.is_empty() {
            self.heard_of(&received.defined);
        }
        if received.own_above {
            self.new_life(false);
        }
        if received.wake {
            self.wake();
        }
        Ok(())
    }

    fn poll(&self, conn: ConnId) -> Next {
        self.core.lock().gossip.poll(conn, &self.now(), &self.engine)
    }

    fn closed(&self, conn: ConnId, why: &str) {
        self.core.lock().gossip.closed(conn, &self.now());
        let mut links = self.links.lock();
        let ended = links.remove(&conn).map(|link| link.peer);
        let still = links.values().any(|link| Some(&link.peer) == ended.as_ref());
        drop(links);
        match ended {
            Some(peer) if still => tracing::debug!(%peer, why, "still connected, one connection of several ended"),
            Some(peer) => tracing::info!(%peer, why, "disconnected"),
            None => {}
        }
        self.wake();
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn connected(&self, name: &NodeName) -> bool {
        self.links.lock().values().any(|link| link.peer == *name)
    }

    fn tried(&self, seed: &str, silent: bool) {
        let mut seeds = self.silent_seeds.lock();
        if silent {
            seeds.insert(seed.to_owned());
        } else {
            seeds.remove(seed);
        }
    }

    fn outlived(&self, by: &NodeName) {
        *self.outlived.lock() = Some((by.clone(), self.clock.monotonic_ns()));
    }

    fn rejected(&self, remote: SocketAddr, why: &str) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%remote, why, "no connection");
    }
}
