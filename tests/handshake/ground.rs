//! What the tests stand on: a cluster's certificates, nodes on loopback.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tidegate::cert::{Authority, NodeCertificate};
use tidegate::id::{NodeName, ReplicaId};
use tidegate::node::SystemClock;
use tidegate::time::Clock;
use tidegate::transport::{self, ALPN, Boxed, Identity, Network, Settings, Transport, UdpNetwork};
use tokio::sync::watch;

use crate::recorder::Recorder;
use crate::stranger::{Stranger, loopback};

/// How long a test waits for what must happen.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// A cluster's authority and what it issues.
pub struct Cluster {
    pub authority: Authority,
    rng: Mutex<StdRng>,
}

impl Cluster {
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let authority = Authority::generate(&mut rng, SystemClock::new().system_ns()).unwrap();
        Self { authority, rng: Mutex::new(rng) }
    }

    pub fn issue(&self, node: &str) -> NodeCertificate {
        self.issue_at(node, SystemClock::new().system_ns())
    }

    pub fn issue_at(&self, node: &str, now_ns: u64) -> NodeCertificate {
        self.authority.issue(&name(node), &[], &mut *self.rng.lock(), now_ns).unwrap()
    }

    pub fn identity(&self, node: &str) -> Identity {
        let made = self.issue(node);
        let (ca, cert, key) = (&self.authority.cert_pem, &made.cert_pem, &made.key_pem);
        Identity::from_pem(ca.as_bytes(), cert.as_bytes(), key.as_bytes()).unwrap()
    }
}

/// Loopback, with names that the test gives out.
#[derive(Clone, Default)]
pub struct Names(Arc<watch::Sender<Given>>);

#[derive(Default)]
struct Given {
    names: HashMap<String, SocketAddr>,
    /// How often each was asked for, with an address or without.
    asked: HashMap<String, u32>,
}

impl Names {
    pub fn set(&self, host: &str, addr: SocketAddr) {
        self.0.send_modify(|given| {
            given.asked.remove(host);
            given.names.insert(host.to_owned(), addr);
        });
    }

    /// How often `host` was asked for since it got its address.
    pub fn asked(&self, host: &str) -> u32 {
        self.0.borrow().asked.get(host).copied().unwrap_or(0)
    }

    /// Waits until a seed without an address was asked for `times` more: long enough for other dialers to try again.
    pub async fn until_asked(&self, host: &str, times: u32) {
        let until = self.asked(host) + times;
        let mut given = self.0.subscribe();
        let wait = given.wait_for(|given| given.asked.get(host).is_some_and(|asked| *asked >= until));
        tokio::time::timeout(DEADLINE, wait).await.expect("a seed is asked for again and again").unwrap();
    }
}

impl Network for Names {
    fn bind(&self, addr: SocketAddr) -> io::Result<Arc<dyn quinn::AsyncUdpSocket>> {
        UdpNetwork.bind(addr)
    }

    fn resolve(&self, host: String) -> Boxed<io::Result<Vec<SocketAddr>>> {
        self.0.send_modify(|given| *given.asked.entry(host.clone()).or_default() += 1);
        let known = self.0.borrow().names.get(&host).copied();
        match known {
            Some(addr) => Box::pin(async move { Ok(vec![addr]) }),
            None if host.contains(".invalid:") => Box::pin(async { Err(io::ErrorKind::NotFound.into()) }),
            None => UdpNetwork.resolve(host),
        }
    }

    fn quic_seed(&self) -> Option<u64> {
        None
    }
}

/// A node: a real transport around a recorder.
pub struct Node {
    pub hub: Arc<Recorder>,
    pub transport: Transport,
}

impl Node {
    /// Starts on loopback, on a free port.
    pub fn start(node: &str, identity: Identity, names: &Names, seeds: &[String]) -> Self {
        Self::start_at(node, identity, names, seeds, loopback(1)).unwrap()
    }

    pub fn start_at(
        node: &str,
        identity: Identity,
        names: &Names,
        seeds: &[String],
        listen: SocketAddr,
    ) -> io::Result<Self> {
        let hub = Recorder::new(node);
        let own = ReplicaId::next_life(name(node), 0, SystemClock::new().system_ns() / 1_000_000, 1);
        let settings = Settings { identity, own, listen, seeds: seeds.to_vec() };
        let rng = StdRng::from_os_rng();
        let transport =
            transport::spawn(settings, Arc::new(names.clone()), Arc::new(SystemClock::new()), rng, hub.clone())?;
        Ok(Self { hub, transport })
    }

    pub fn addr(&self) -> SocketAddr {
        self.transport.local_addr()
    }

    pub fn seed(&self) -> Vec<String> {
        vec![self.addr().to_string()]
    }
}

/// One frame each way between two connected nodes.
pub async fn exchange(a: (&Recorder, &str), b: (&Recorder, &str), text: &str) {
    let (there, back) = (format!("{text} there"), format!("{text} back"));
    a.0.send(b.1, there.as_bytes());
    b.0.send(a.1, back.as_bytes());
    b.0.until(&there, |record| record.received(there.as_bytes())).await;
    a.0.until(&back, |record| record.received(back.as_bytes())).await;
}

impl<'a> Stranger<'a> {
    /// One that has a node's certificate and key.
    pub fn with(cluster: &'a Cluster, shows: &'a NodeCertificate) -> Self {
        Self { trusts: &cluster.authority.cert_pem, shows: Some((&shows.cert_pem, &shows.key_pem)), alpn: ALPN }
    }
}
