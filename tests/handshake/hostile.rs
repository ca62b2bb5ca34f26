//! Who is not let in, while a good pair on the same port goes on.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tidegate::cert::NODE_DAYS;
use tidegate::codec::MAX_FRAME_BYTES;
use tidegate::gossip::Refusal;
use tidegate::id::TLS_NAME;
use tidegate::node::SystemClock;
use tidegate::time::{Clock, SECOND};
use tidegate::transport::{ALPN, MAX_HANDSHAKES};
use tokio::net::UdpSocket;

use crate::ground::{Cluster, DEADLINE, Names, Node, exchange, name};
use crate::recorder::Record;
use crate::stranger::{Stranger, loopback, say};

/// A good pair: a, which is attacked, and b.
struct Pair {
    cluster: Cluster,
    names: Names,
    a: Node,
    b: Node,
}

impl Pair {
    async fn start() -> Self {
        let (cluster, names) = (Cluster::new(1), Names::default());
        let a = Node::start("a", cluster.identity("a"), &names, &[]);
        let b = Node::start("b", cluster.identity("b"), &names, &a.seed());
        let pair = Self { cluster, names, a, b };
        pair.unharmed("before").await;
        pair
    }

    /// The pair exchanges frames, on its first connection still.
    async fn unharmed(&self, when: &str) {
        self.a.hub.until("b", |record| record.connected("b")).await;
        exchange((&self.a.hub, "a"), (&self.b.hub, "b"), when).await;
        assert_eq!(self.b.hub.read(|record| (record.accepted, record.closed.len())), (1, 0));
    }

    /// What a told of 127.0.0.`host`, once it has: exactly one line.
    async fn told_of(&self, host: u8) -> String {
        let from = |record: &Record| {
            let told = record.rejected.iter().filter(|(remote, _)| remote.ip() == loopback(host).ip());
            told.map(|(_, why)| why.clone()).collect::<Vec<_>>()
        };
        self.a.hub.until("told", |record| !from(record).is_empty()).await;
        let told = self.a.hub.read(from);
        assert_eq!(told.len(), 1, "{told:?}");
        told.into_iter().next().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_of_another_authority() {
    let pair = Pair::start().await;
    let foreign = Cluster::new(2);
    let seeds = pair.a.seed();
    let node = Node::start_at("b", foreign.identity("b"), &pair.names, &seeds, loopback(2)).unwrap();
    node.hub.until("refuses a's certificate", |record| !record.rejected.is_empty()).await;
    let seen = node.hub.read(|record| record.rejected[0].1.clone());
    assert!(seen.contains("UnknownIssuer"), "{seen}");
    let told = pair.told_of(2).await;
    assert!(told.contains("unknown certificate authority") || told.contains("the peer closed it"), "{told}");

    // One that does not care whom it talks to, and shows what its own authority issued.
    let made = foreign.issue("b");
    let client = Stranger { trusts: &pair.cluster.authority.cert_pem, ..Stranger::with(&foreign, &made) }.client(3);
    let end = say(&client, pair.a.addr(), b"").await;
    assert!(end.contains("unknown") || end.contains("certificate"), "{end}");
    let told = pair.told_of(3).await;
    assert!(told.contains("UnknownIssuer"), "{told}");
    pair.unharmed("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_certificate_a_self_signed_or_expired_one_and_another_protocol() {
    let pair = Pair::start().await;
    let ca = &pair.cluster.authority.cert_pem;
    let nothing = Stranger { trusts: ca, shows: None, alpn: ALPN }.client(2);
    for _ in 0..5 {
        say(&nothing, pair.a.addr(), b"").await;
    }
    // Five tries, one line.
    assert!(pair.told_of(2).await.contains("no certificates"), "{}", pair.told_of(2).await);

    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let names = [TLS_NAME.to_owned(), "b".to_owned()];
    let cert = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let (cert, key) = (cert.pem(), key.serialize_pem());
    say(&Stranger { trusts: ca, shows: Some((&cert, &key)), alpn: ALPN }.client(3), pair.a.addr(), b"").await;
    assert!(pair.told_of(3).await.contains("certificate"), "{}", pair.told_of(3).await);

    let made = pair.cluster.issue("c");
    let end =
        say(&Stranger { alpn: b"h3", ..Stranger::with(&pair.cluster, &made) }.client(4), pair.a.addr(), b"").await;
    assert!(end.contains("protocol"), "{end}");
    assert!(pair.told_of(4).await.contains("protocol"), "{}", pair.told_of(4).await);

    let long_ago_ns = SystemClock::new().system_ns() - (NODE_DAYS + 1) * 24 * 3600 * SECOND;
    let made = pair.cluster.issue_at("c", long_ago_ns);
    say(&Stranger::with(&pair.cluster, &made).client(5), pair.a.addr(), b"").await;
    assert!(pair.told_of(5).await.contains("expired"), "{}", pair.told_of(5).await);

    assert_eq!(pair.a.hub.read(|record| (record.accepted, record.refused.len())), (1, 0));
    pair.unharmed("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_nodes_name() {
    let pair = Pair::start().await;
    // It has a certificate of the cluster, for c, and calls itself d.
    let seeds = pair.a.seed();
    let liar = Node::start_at("d", pair.cluster.identity("c"), &pair.names, &seeds, loopback(2)).unwrap();
    liar.hub.until("refused", |record| !record.rejected.is_empty()).await;
    let seen = liar.hub.read(|record| record.rejected[0].1.clone());
    assert!(seen.ends_with("the peer closed it: its certificate does not bear its name d"), "{seen}");
    assert_eq!(pair.told_of(2).await, "its certificate does not bear its name d");
    assert!(pair.a.hub.read(|record| record.refused.contains(&Refusal::Certificate(name("d")))));
    pair.unharmed("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn frames_that_are_too_large_or_cut() {
    let pair = Pair::start().await;
    let made = pair.cluster.issue("c");
    let stranger = Stranger::with(&pair.cluster, &made);
    // In place of a hello.
    let end = say(&stranger.client(2), pair.a.addr(), &u32::MAX.to_le_bytes()).await;
    assert!(end.contains("a frame of 4294967295 bytes"), "{end}");
    assert!(pair.told_of(2).await.starts_with("a frame of 4294967295 bytes"));

    // After a good hello: the hub hears why.
    let mut bytes = b"\x01\0\0\0c".to_vec();
    bytes.extend((MAX_FRAME_BYTES as u32 + 1).to_le_bytes());
    let end = say(&stranger.client(3), pair.a.addr(), &bytes).await;
    assert!(end.contains("a frame of 1048577 bytes, at most 1048576 are taken here"), "{end}");
    pair.a.hub.until("closed", |record| record.closed.len() == 1).await;
    assert!(pair.a.hub.read(|record| record.closed[0].1.starts_with("a frame of 1048577 bytes")));

    // A hello that is none.
    let end = say(&stranger.client(4), pair.a.addr(), b"\x02\0\0\0!!").await;
    assert!(end.contains("malformed"), "{end}");
    pair.unharmed("after").await;
}

/// More than are let in at a time; they say nothing, and time out.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_that_never_says_hello() {
    let pair = Pair::start().await;
    let made = pair.cluster.issue("c");
    let client = Stranger::with(&pair.cluster, &made).client(2);
    let crowd: Vec<_> = (0..MAX_HANDSHAKES + 16).map(|_| client.connect(pair.a.addr(), TLS_NAME).unwrap()).collect();
    pair.unharmed("with the crowd at the door").await;
    let mut ends = Vec::new();
    for connecting in crowd {
        let end = async { Err::<(), _>(connecting.await?.closed().await) };
        let end: Result<(), quinn::ConnectionError> = tokio::time::timeout(DEADLINE, end).await.unwrap();
        ends.push(end.unwrap_err().to_string());
    }
    assert!(ends.iter().any(|end| end.contains("no hello within 5s")), "{ends:?}");
    let told = pair.told_of(2).await;
    assert!(told.contains("too many connections at once") || told.contains("no hello within 5s"), "{told}");

    let seeds = pair.a.seed();
    let late = Node::start("late", pair.cluster.identity("late"), &pair.names, &seeds);
    late.hub.until("let in", |record| record.connected("a")).await;
    pair.unharmed("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn garbage_on_the_port() {
    let pair = Pair::start().await;
    let mut rng = StdRng::seed_from_u64(1);
    let socket = UdpSocket::bind(loopback(2)).await.unwrap();
    for n in 0..20_000 {
        let mut packet = vec![0u8; rng.random_range(1..1400)];
        rng.fill_bytes(&mut packet);
        match n % 4 {
            // An Initial of QUIC version 1, all noise behind its header.
            0 if packet.len() > 32 => {
                packet.resize(1200, 0);
                packet[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
            }
            // A short header: some connection of an earlier life.
            1 => packet[0] = 0x40,
            // A version that nobody knows.
            2 if packet.len() > 5 => packet[0] = 0x80,
            _ => {}
        }
        // A full buffer is no reason to stop.
        let _ = socket.send_to(&packet, pair.a.addr()).await;
        if n % 2000 == 0 {
            pair.unharmed(&format!("garbage {n}")).await;
        }
    }
    pair.unharmed("after").await;
    assert!(pair.a.hub.read(|record| record.rejected.len()) <= 1);
}
