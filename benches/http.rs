//! `/v1/check` against an axum handler that parses the same JSON and answers a constant: what deciding, counting and
//! saying so costs on top of HTTP, in a whole node with its journal on disk. Both servers live in this process, are
//! driven by the same load generator over keep-alive connections, and take turns.
//!
//! `cargo bench --bench http [-- SECONDS_A_TURN [CONNECTIONS]]`

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Deserialize;
use tidegate::id::NodeName;
use tidegate::journal::SledStore;
use tidegate::limits::{LimitSet, LimitSpec};
use tidegate::node::{self, JournalRunner, Node, Parts, Settings, SystemClock};
use tidegate::time::Clock;
use tidegate::transport::UdpNetwork;
use tidegate::{api, engine};
use tokio::net::{TcpListener, TcpStream};

const TURNS: usize = 9;
const SECONDS_A_TURN: u64 = 2;
const CONNECTIONS: usize = 32;
const KEYS: usize = 10_000;
/// What of the constant handler's rate `/v1/check` is to reach.
const GOAL: f64 = 0.75;

/// A whole node, its journal in sled in `folder`.
async fn tidegate(folder: &std::path::Path, listener: TcpListener) -> Node {
    let limit = LimitSpec {
        name: "per-user".into(),
        limit: Some(1_000_000),
        window: Some("60s".into()),
        ..LimitSpec::default()
    };
    let settings = Settings {
        name: NodeName::new("bench").expect("a name"),
        region: "local".into(),
        engine: engine::Settings::default(),
        http: api::Settings { max_body: 1 << 20, denied_status: 429, token: None },
        cluster: None,
        limits: LimitSet::new([limit.check().expect("a limit")]).expect("one name"),
        journal_flush: Duration::from_millis(100),
        shutdown_timeout: Duration::from_secs(10),
    };
    let parts = Parts {
        clock: Arc::new(SystemClock::new()),
        network: Arc::new(UdpNetwork),
        store: Box::new(SledStore::open(folder).expect("a data folder")),
        rng: StdRng::seed_from_u64(1),
        journal: JournalRunner::Thread,
    };
    node::start(settings, parts, listener).await.expect("a node")
}

#[derive(Deserialize)]
struct Ask {
    limit: String,
    key: String,
    cost: u32,
}

/// As long as an answer of `/v1/check`.
const CONSTANT: &str = r#"{"allowed":true,"retry_after_ms":null,"delay_ms":0,"results":[{"limit":"per-user","key":"user:1234","allowed":true,"reason":null,"quota":1000000,"remaining":999999,"retry_after_ms":null,"reset_after_ms":60000,"delay_ms":0}]}"#;

fn handler() -> Router {
    let answer = |Json(ask): Json<Ask>| async move {
        // Read, so that parsing cannot be left out.
        std::hint::black_box((ask.limit, ask.key, ask.cost));
        ([("content-type", "application/json")], CONSTANT)
    };
    Router::new().route("/v1/check", post(answer))
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let addr = listener.local_addr().expect("it is bound");
    (listener, addr)
}

async fn connect(addr: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(addr).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket takes nodelay");
    let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
    tokio::spawn(connection);
    sender
}

/// Answers a second at `addr` over `seconds`, with `connections` that each have one request under way.
async fn drive(addr: SocketAddr, bodies: Arc<Vec<Bytes>>, connections: usize, seconds: u64) -> f64 {
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (clock, mut tasks) = (SystemClock::new(), Vec::new());
    for number in 0..connections {
        let (stop, answers, bodies) = (stop.clone(), answers.clone(), bodies.clone());
        let mut sender = connect(addr).await;
        tasks.push(tokio::spawn(async move {
            for body in bodies.iter().cycle().skip(number * bodies.len() / connections) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let request =
                    Request::post("/v1/check").header("host", "bench").header("content-type", "application/json");
                let request = request.body(Full::new(body.clone())).expect("the request is whole");
                let answer = sender.send_request(request).await.expect("an answer comes");
                assert_eq!(answer.status(), 200);
                answer.into_body().collect().await.expect("all of it");
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no request failed");
    }
    answers.load(Ordering::Relaxed) as f64 / (clock.monotonic_ns() as f64 / 1e9)
}

#[tokio::main]
async fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(SECONDS_A_TURN);
    let connections = numbers.get(1).map_or(CONNECTIONS, |n| usize::try_from(*n).expect("it fits"));
    let body = |key| Bytes::from(format!(r#"{{"limit":"per-user","key":"user:{key}","cost":1}}"#));
    let bodies = Arc::new((0..KEYS).map(body).collect::<Vec<_>>());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ((listener, check), (other, constant)) = (listen().await, listen().await);
    let node = tidegate(folder.path(), listener).await;
    tokio::spawn(async move { axum::serve(other, handler()).await });

    // One short turn each, so that neither pays for the first touch of anything.
    for addr in [check, constant] {
        drive(addr, bodies.clone(), connections, 1).await;
    }
    let (mut checks, mut constants, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 1..=TURNS {
        let a = drive(check, bodies.clone(), connections, seconds).await;
        let b = drive(constant, bodies.clone(), connections, seconds).await;
        println!("turn {turn}: /v1/check {a:.0}/s, constant {b:.0}/s, ratio {:.3}", a / b);
        checks.push(a);
        constants.push(b);
        ratios.push(a / b);
    }
    // Medians: what else the machine does hits single turns.
    let (a, b, ratio) = (median(checks), median(constants), median(ratios));
    println!("/v1/check {a:.0}/s, constant {b:.0}/s, ratio {ratio:.3} (goal {GOAL})");
    node.stop().await;
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
