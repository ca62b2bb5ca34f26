//! The test's own end of a transport: a small hub that records.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate::gossip::{ConnId, Next, Refusal};
use tidegate::id::NodeName;
use tidegate::transport::Hub;
use tokio::sync::watch;

use crate::ground::{DEADLINE, name};

/// Says its name, sends what it is given, records what arrives.
pub struct Recorder {
    own: NodeName,
    state: Mutex<Record>,
    changes: watch::Sender<u64>,
    /// Moves with everything recorded.
    events: watch::Sender<u64>,
    /// While false, receiving blocks: a slow reader.
    open: watch::Sender<bool>,
}

/// See [`Recorder::hold`]. A failing test lets go too, and so can end.
pub struct Held(Arc<Recorder>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.open.send_replace(true);
    }
}

#[derive(Default)]
pub struct Record {
    pub peers: BTreeMap<ConnId, NodeName>,
    pub accepted: u64,
    pub refused: Vec<Refusal>,
    pub received: Vec<(NodeName, Vec<u8>)>,
    pub closed: Vec<(ConnId, String)>,
    pub rejected: Vec<(SocketAddr, String)>,
    /// Bytes that writers fetched, by peer.
    pub fetched: HashMap<NodeName, usize>,
    outbox: HashMap<NodeName, VecDeque<Vec<u8>>>,
    closing: Vec<NodeName>,
}

impl Recorder {
    pub fn new(own: &str) -> Arc<Self> {
        Arc::new(Self {
            own: name(own),
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            events: watch::Sender::new(0),
            open: watch::Sender::new(true),
        })
    }

    pub fn send(&self, to: &str, frame: impl Into<Vec<u8>>) {
        self.state.lock().outbox.entry(name(to)).or_default().push_back(frame.into());
        self.changes.send_modify(|n| *n += 1);
    }

    /// Asks the transport to close the connection to `peer`.
    pub fn close(&self, peer: &str) {
        self.state.lock().closing.push(name(peer));
        self.changes.send_modify(|n| *n += 1);
    }

    /// Makes it a slow reader: it takes nothing until what is returned is dropped.
    pub fn hold(self: &Arc<Self>) -> Held {
        self.open.send_replace(false);
        Held(self.clone())
    }

    pub fn read<T>(&self, read: impl FnOnce(&Record) -> T) -> T {
        read(&self.state.lock())
    }

    /// Waits for a condition on the record; fails at the deadline.
    pub async fn until(&self, what: &str, condition: impl Fn(&Record) -> bool) {
        let mut events = self.events.subscribe();
        let wait = async {
            while !condition(&self.state.lock()) {
                events.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(DEADLINE, wait).await.is_err() {
            let state = self.state.lock();
            panic!(
                "{}: not within {DEADLINE:?}: {what}; closed {:?}, rejected {:?}, refused {:?}",
                self.own, state.closed, state.rejected, state.refused
            );
        }
    }

    fn record<T>(&self, change: impl FnOnce(&mut Record) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.events.send_modify(|n| *n += 1);
        result
    }
}

impl Record {
    pub fn connected(&self, peer: &str) -> bool {
        self.peers.values().any(|name| name.as_str() == peer)
    }

    pub fn received(&self, frame: &[u8]) -> bool {
        self.received.iter().any(|(_, seen)| seen == frame)
    }
}

impl Hub for Recorder {
    fn hello(&self) -> Vec<u8> {
        self.own.as_str().as_bytes().to_vec()
    }

    fn accept(
        &self,
        conn: ConnId,
        _dialed: bool,
        hello: &[u8],
        vouched: &dyn Fn(&NodeName) -> bool,
        _rtt_ns: u64,
    ) -> Result<NodeName, Refusal> {
        self.record(|record| {
            let decide = || {
                let text = std::str::from_utf8(hello).map_err(|e| Refusal::Malformed(e.to_string()))?;
                let peer = NodeName::new(text).map_err(|e| Refusal::Malformed(e.to_string()))?;
                match () {
                    () if peer == self.own => Err(Refusal::OwnName(peer)),
                    () if !vouched(&peer) => Err(Refusal::Certificate(peer)),
                    () if record.connected(peer.as_str()) => Err(Refusal::AlreadyConnected(peer)),
                    () => Ok(peer),
                }
            };
            let decided = decide();
            match &decided {
                Ok(peer) => {
                    record.accepted += 1;
                    record.peers.insert(conn, peer.clone());
                }
                Err(refusal) => record.refused.push(refusal.clone()),
            }
            decided
        })
    }

    fn receive(&self, conn: ConnId, frame: &[u8], _rtt_ns: u64) -> Result<(), Refusal> {
        let mut open = self.open.subscribe();
        if !*open.borrow_and_update() {
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async { open.wait_for(|open| *open).await.map(|_| ()) })
            })
            .unwrap();
        }
        self.record(|record| {
            let peer = record.peers[&conn].clone();
            record.received.push((peer, frame.to_vec()));
        });
        Ok(())
    }

    fn poll(&self, conn: ConnId) -> Next {
        self.record(|record| {
            let peer = record.peers[&conn].clone();
            if let Some(at) = record.closing.iter().position(|name| *name == peer) {
                record.closing.remove(at);
                return Next::Close(Refusal::Replaced);
            }
            let Some(frame) = record.outbox.get_mut(&peer).and_then(VecDeque::pop_front) else {
                return Next::Idle;
            };
            *record.fetched.entry(peer).or_default() += frame.len();
            Next::Frame(frame)
        })
    }

    fn closed(&self, conn: ConnId, why: &str) {
        self.record(|record| {
            assert!(record.peers.remove(&conn).is_some(), "{conn:?} closed twice, or never accepted");
            record.closed.push((conn, why.to_owned()));
        });
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tried(&self, _: &str, _: bool) {}

    fn outlived(&self, _: &NodeName) {}

    fn connected(&self, name: &NodeName) -> bool {
        self.read(|record| record.connected(name.as_str()))
    }

    fn rejected(&self, remote: SocketAddr, why: &str) {
        self.record(|record| record.rejected.push((remote, why.to_owned())));
    }
}
