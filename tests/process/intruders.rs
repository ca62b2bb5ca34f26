//! Who is not let into a cluster of real nodes, which goes on counting meanwhile.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::ground::{Served, write};
use crate::nodes::{Cluster, LIMITS, NODES, certificates, config, until};
use crate::stranger::{Stranger, say};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tidegate::codec::Hello;
use tidegate::id::{NodeName, ReplicaId};
use tidegate::transport::ALPN;

/// Tokens that intruders take by themselves.
const TAKEN_OUTSIDE: u64 = 7;

/// A cluster, and how much it has counted on the one key.
struct Guarded {
    cluster: Cluster,
    counted: u64,
}

impl Guarded {
    async fn start() -> Self {
        let mut guarded = Self { cluster: Cluster::start().await, counted: 0 };
        guarded.goes_on().await;
        guarded
    }

    /// Every node takes a token, and all come to know exactly what all of them took. They are still connected.
    async fn goes_on(&mut self) {
        for node in 0..NODES.len() {
            assert_eq!(self.cluster.ask(node).check("hits", "k").await, Some(true));
            self.counted += 1;
        }
        for node in 0..NODES.len() {
            let ask = self.cluster.ask(node);
            until("all is counted everywhere", async || {
                let used = ask.usage("hits", "k").await?.used;
                assert!(used <= self.counted, "{used} where the cluster took {}", self.counted);
                (used == self.counted).then_some(())
            })
            .await;
            assert_eq!(ask.connected().await, NODES.len() - 1);
            let members = ask.document("/v1/cluster").await["members"].as_array().unwrap().len();
            assert_eq!(members, NODES.len(), "nobody else is known");
        }
    }

    /// Waits until a node has turned somebody away and said so with `why`.
    async fn until_refused(&self, why: &str) {
        let ask = self.cluster.ask(0);
        until("the refusal is counted", async || {
            (ask.metric("tidegate_connections_rejected_total").await > 0).then_some(())
        })
        .await;
        until(&format!("the log says {why}"), async || self.cluster.node(0).log().contains(why).then_some(())).await;
    }

    /// A process in a folder of its own that wants to be in the cluster. It has taken tokens of `key` by itself.
    async fn intruder(&self, folder: &Path, name: &str, key: &str) -> Served {
        let seeds: Vec<String> = (0..NODES.len()).map(|node| format!("\"{}\"", self.cluster.gossip(node))).collect();
        let text = config(name, SocketAddr::from(([127, 0, 0, 1], 0)), &seeds.join(", "), LIMITS);
        let intruder = Served::start(&write(folder, "intruder.toml", &text));
        let ask = crate::nodes::Asker::new(&intruder);
        for _ in 0..TAKEN_OUTSIDE {
            assert_eq!(ask.check("hits", key).await, Some(true));
        }
        intruder
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_authority() {
    let mut guarded = Guarded::start().await;
    let foreign = tempfile::tempdir().unwrap();
    certificates(foreign.path(), &["us"]);
    // It even knows the secret.
    copy(guarded.cluster.folder.path(), foreign.path(), &["cluster.secret"]);
    let intruder = guarded.intruder(foreign.path(), "us", "k").await;
    guarded.until_refused("certificate").await;
    guarded.goes_on().await;
    assert_eq!(intruder.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_cluster() {
    let mut guarded = Guarded::start().await;
    let folder = guarded.cluster.folder.path();
    let made = crate::ground::run(folder, &["cert", "node", "other", "--ca", ".", "--out", "other"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    copy(folder, &folder.join("other"), &["ca.pem"]);
    write(&folder.join("other"), "cluster.secret", &"ab".repeat(32));
    let intruder = guarded.intruder(&folder.join("other"), "other", "k").await;
    guarded.until_refused("another cluster").await;
    guarded.goes_on().await;
    assert_eq!(intruder.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_of_one_name() {
    let mut guarded = Guarded::start().await;
    let folder = guarded.cluster.folder.path();
    let twin = folder.join("twin");
    fs::create_dir(&twin).unwrap();
    copy(folder, &twin, &["ca.pem", "cluster.secret", "us.pem", "us.key"]);
    // It is of the cluster: what it says until the old one has answered is believed, and is true.
    let intruder = guarded.intruder(&twin, "us", "twin").await;
    for node in [guarded.cluster.node(0), &intruder] {
        let told = || node.log().contains("another process called us is alive").then_some(());
        until("both sides tell of it", async || told()).await;
    }
    guarded.until_refused("another process called us is alive").await;
    let reasons = crate::nodes::Asker::new(&intruder).document("/healthz").await["reasons"].to_string();
    assert!(reasons.contains("another process calls itself us and is alive: "), "{reasons}");
    guarded.goes_on().await;
    assert_eq!(intruder.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_certificate_and_anothers_name() {
    let mut guarded = Guarded::start().await;
    let folder = guarded.cluster.folder.path().to_owned();
    let to = guarded.cluster.gossip(0);
    say(&client(&folder, None, 2), to, b"").await;
    guarded.until_refused("certificate").await;
    guarded.goes_on().await;

    // A certificate of the cluster, for c, and a hello in the name of us.
    let made = crate::ground::run(&folder, &["cert", "node", "c", "--ca", ".", "--out", "."]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let secret = tidegate::cert::read_secret(&folder.join("cluster.secret")).unwrap();
    let replica = ReplicaId::next_life(NodeName::new("us").unwrap(), 0, u64::MAX / 2, 1);
    let hello = Hello {
        cluster: secret.cluster_id(),
        replica,
        region: "us".into(),
        stamp_ns: 1,
        expected_nodes: 8,
        have: Vec::new(),
    };
    let hello = hello.encode();
    let framed = [&(hello.len() as u32).to_le_bytes()[..], &hello].concat();
    let end = say(&client(&folder, Some("c"), 3), to, &framed).await;
    assert!(end.contains("its certificate does not bear its name us"), "{end}");
    guarded.until_refused("its certificate does not bear its name us").await;
    guarded.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_every_port() {
    let mut guarded = Guarded::start().await;
    let mut rng = StdRng::seed_from_u64(1);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..20_000 {
        let mut packet = vec![0u8; rng.random_range(1..1400)];
        rng.fill_bytes(&mut packet);
        if n % 3 == 0 {
            // What looks like the first packet of a connection.
            packet.resize(1200, 0);
            packet[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
        }
        // A full buffer is no reason to stop.
        let _ = socket.send_to(&packet, guarded.cluster.gossip(n % NODES.len()));
        if n % 5_000 == 0 {
            guarded.goes_on().await;
        }
    }
    guarded.goes_on().await;
    for node in 0..NODES.len() {
        let log = guarded.cluster.node(node).log();
        assert!(!log.contains("panicked") && log.lines().count() < 200, "{log}");
    }
}

fn copy(from: &Path, to: &Path, files: &[&str]) {
    for file in files {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

/// A client on 127.0.0.`host` (refusals are told once an address) that trusts the cluster in `folder` and shows the
/// certificate `shows` of it, or none.
fn client(folder: &Path, shows: Option<&str>, host: u8) -> quinn::Endpoint {
    let pem = |name: String| fs::read_to_string(folder.join(name)).unwrap();
    let shows = shows.map(|name| (pem(format!("{name}.pem")), pem(format!("{name}.key"))));
    let shows = shows.as_ref().map(|(cert, key)| (cert.as_str(), key.as_str()));
    Stranger { trusts: &pem("ca.pem".into()), shows, alpn: ALPN }.client(host)
}
