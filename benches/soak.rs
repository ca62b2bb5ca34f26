//! Four million counter updates through a node that has a peer over QUIC, both with journals in sled: resident memory
//! and the data folders must stay flat once the working set is reached. `cargo bench --bench soak [-- UPDATES RATE]`
//! prints them as it goes; the memory is that of both nodes.

#![expect(clippy::disallowed_methods, reason = "it keeps to a rate of the real clock")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use tidegate::cert::Authority;
use tidegate::engine::{Ask, Op};
use tidegate::id::{NodeName, Secret};
use tidegate::journal::SledStore;
use tidegate::limits::{LimitSet, LimitSpec};
use tidegate::node::{self, Cluster, JournalRunner, Node, Parts, Settings, SystemClock};
use tidegate::time::Clock;
use tidegate::transport::{Identity, UdpNetwork};
use tidegate::{api, engine};

/// Keys drawn from, uniformly.
const KEYS: u32 = 100_000;
/// Updates between two pauses.
const BURST: u64 = 100;
/// Between two lines, seconds.
const LINE_EVERY_S: u64 = 5;

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let updates = numbers.first().copied().unwrap_or(4_000_000);
    let rate = numbers.get(1).copied().unwrap_or(40_000);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(soak(updates, rate));
}

async fn soak(updates: u64, rate: u64) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut rng = StdRng::seed_from_u64(1);
    let authority = Authority::generate(&mut rng, clock.system_ns()).expect("an authority");
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let peer = start("peer", &authority, &folders[1], Vec::new(), &mut rng).await;
    let heard_at = peer.gossip_addr().expect("it has peers").to_string();
    let node = start("soaked", &authority, &folders[0], vec![heard_at], &mut rng).await;

    println!("{updates} updates at {rate}/s over {KEYS} keys, fixed_window of 10s");
    println!("seconds  updates  resident MiB  folder MiB  peer's folder MiB  keys held  heard by the peer");
    let (began, mut keys, mut done, mut shown) = (Instant::now(), StdRng::seed_from_u64(2), 0, 0);
    while done < updates {
        for _ in 0..BURST {
            let key = keys.random_range(0..KEYS).to_string();
            let now_ns = node.slot_clock().now(clock.monotonic_ns());
            let asks = [Ask { limit: "soak", key: &key, cost: 1 }];
            let answer = node.engine().decide(now_ns, Op::Check, &asks).expect("a good request");
            assert!(answer.allowed, "the limit is far above the load");
        }
        done += BURST;
        let due = Duration::from_secs_f64(done as f64 / rate as f64);
        if let Some(early) = due.checked_sub(began.elapsed()) {
            tokio::time::sleep(early).await;
        }
        if began.elapsed().as_secs() >= shown {
            let [own, its] = [&folders[0], &folders[1]].map(|folder| folder_mib(folder.path()));
            let (held, heard) = (node.engine().stats().keys, peer.engine().stats().keys);
            println!("{shown:>7} {done:>8} {:>13.1} {own:>11.1} {its:>18.1} {held:>10} {heard:>18}", resident_mib());
            shown += LINE_EVERY_S;
        }
    }
    node.stop().await;
    peer.stop().await;
    let [own, its] = [&folders[0], &folders[1]].map(|folder| folder_mib(folder.path()));
    println!("stopped: folders {own:.1} and {its:.1} MiB");
}

async fn start(name: &str, authority: &Authority, folder: &TempDir, seeds: Vec<String>, rng: &mut StdRng) -> Node {
    let clock = Arc::new(SystemClock::new());
    let name = NodeName::new(name).expect("a name");
    let made = authority.issue(&name, &[], rng, clock.system_ns()).expect("a certificate");
    let (ca, cert, key) = (&authority.cert_pem, &made.cert_pem, &made.key_pem);
    let cluster = Cluster {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        seeds,
        interval: Duration::from_millis(50),
        sync_timeout: Duration::from_secs(3),
        ring_bytes: tidegate::node::RING_BYTES,
        secret: Secret([1; 32]),
        identity: Identity::from_pem(ca.as_bytes(), cert.as_bytes(), key.as_bytes()).expect("an identity"),
    };
    let parts = Parts {
        clock,
        network: Arc::new(UdpNetwork),
        store: Box::new(SledStore::open(folder.path()).expect("a data folder")),
        rng: StdRng::from_rng(rng),
        journal: JournalRunner::Thread,
    };
    let http = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    node::start(settings(name, cluster), parts, http).await.expect("a node")
}

fn settings(name: NodeName, cluster: Cluster) -> Settings {
    let spec = LimitSpec {
        name: "soak".into(),
        algorithm: Some("fixed_window".into()),
        limit: Some(1_000_000),
        window: Some("10s".into()),
        ..LimitSpec::default()
    };
    Settings {
        name,
        region: "local".into(),
        engine: engine::Settings::default(),
        http: api::Settings { max_body: 1 << 20, denied_status: 429, token: None },
        cluster: Some(cluster),
        limits: LimitSet::new([spec.check().expect("a limit")]).expect("one name"),
        journal_flush: Duration::from_millis(100),
        shutdown_timeout: Duration::from_secs(10),
    }
}

fn resident_mib() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / 1048576.0
}

fn folder_mib(folder: &Path) -> f64 {
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            // Files that sled removes meanwhile are none.
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) => bytes += meta.len(),
                Err(_) => {}
            }
        }
    }
    bytes as f64 / 1048576.0
}
