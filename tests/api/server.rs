//! A server on a real socket around a real engine, with a clock that a test moves by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::Value;
use tidegate::api::{
    DefineError, Definer, Figures, HEAD_TIMEOUT, LimitDifference, Member, NodeView, Service, Settings, router, serve,
};
use tidegate::client::{Client, Response};
use tidegate::engine::{self, Engine};
use tidegate::id::{NodeName, ReplicaId, Secret};
use tidegate::limits::{Limit, LimitName, LimitSet, LimitSpec};
use tidegate::time::{Clock, SECOND, SlotClock};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use crate::openapi::assert_told;

/// The start of a window of every length used here.
pub const T0: u64 = 1_728_000_000 * SECOND;

/// A clock that stands still until it is moved.
pub struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn system_ns(&self) -> u64 {
        T0 + self.monotonic_ns()
    }
}

impl HandClock {
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::SeqCst);
    }
}

/// The node around the engine: what a test says it is.
#[derive(Default)]
pub struct Node {
    pub degraded: Mutex<Vec<String>>,
    pub not_ready: Mutex<Option<String>>,
    pub panics: AtomicBool,
    pub stop: watch::Sender<bool>,
}

impl NodeView for Node {
    fn members(&self) -> Vec<Member> {
        assert!(!self.panics.load(Ordering::SeqCst), "a test wanted this");
        let here = Member {
            name: "eu-1".into(),
            region: "eu".into(),
            generation: 7,
            state: "self",
            rtt_ms: None,
            lag_ms: None,
            clock_offset_ms: None,
            backlog: 0,
        };
        let there = Member {
            name: "us-1".into(),
            region: "us".into(),
            state: "connected",
            rtt_ms: Some(80),
            lag_ms: Some(91),
            clock_offset_ms: Some(-3),
            backlog: 2,
            ..here.clone()
        };
        let ahead = Member {
            name: "ap-1".into(),
            region: "ap".into(),
            state: "clock_beyond_skew",
            clock_offset_ms: Some(5000),
            ..there.clone()
        };
        vec![here, there, ahead]
    }

    fn limits_differ(&self) -> Vec<LimitDifference> {
        vec![LimitDifference { limit: "per-user".into(), nodes: vec!["us-1".into()] }]
    }

    fn degraded(&self) -> Vec<String> {
        self.degraded.lock().clone()
    }

    fn not_ready(&self) -> Option<String> {
        self.not_ready.lock().clone()
    }

    fn region_of(&self, node: &NodeName) -> Option<String> {
        (node.as_str() == "eu-1").then(|| "eu".to_owned())
    }

    fn stale_ms(&self, replica: &ReplicaId) -> Option<u64> {
        (replica.node.as_str() == "eu-1").then_some(0)
    }

    fn figures(&self) -> Figures {
        Figures { journal_queued_bytes: 5, certificate_expires_unix_s: Some(1_900_000_000), ..Figures::default() }
    }
}

/// Limits made at run time, by the one node there is: those of [`limits`] are of its file.
struct Made {
    engine: Arc<Engine>,
    lock: Mutex<()>,
}

impl Made {
    fn change(
        &self,
        name: &LimitName,
        new: Option<Limit>,
        may: &dyn Fn(Option<&Limit>) -> bool,
    ) -> Result<bool, DefineError> {
        let _one_at_a_time = self.lock.lock();
        if self.is_of_file(name) {
            return Err(DefineError::OfFile(self.engine.own().node));
        }
        let limits = self.engine.limits();
        let old = limits.get(name);
        match old {
            None if new.is_none() => return Err(DefineError::Unknown),
            old if !may(old.map(|old| &**old)) => return Err(DefineError::Precondition),
            _ => {}
        }
        let others = limits.iter().filter(|limit| limit.name != *name).cloned();
        self.engine.install(T0, LimitSet::of(others.chain(new.map(Arc::new))));
        Ok(old.is_none())
    }
}

impl Definer for Made {
    fn define(&self, limit: Limit, may: &dyn Fn(Option<&Limit>) -> bool) -> Result<bool, DefineError> {
        self.change(&limit.name.clone(), Some(limit), may)
    }

    fn delete(&self, name: &LimitName, may: &dyn Fn(Option<&Limit>) -> bool) -> Result<(), DefineError> {
        self.change(name, None, may).map(|_| ())
    }

    fn is_of_file(&self, name: &LimitName) -> bool {
        limits().get(name).is_some()
    }
}

/// A running server.
pub struct Server {
    pub clock: Arc<HandClock>,
    pub slot_clock: Arc<SlotClock>,
    pub node: Arc<Node>,
    pub urge: Arc<Notify>,
    pub client: Client,
    pub document: Value,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn settings() -> Settings {
    Settings { max_body: 128 << 10, denied_status: 429, token: None }
}

fn spec(name: &str, algorithm: &str, limit: i64, window: &str) -> LimitSpec {
    let (algorithm, window) = (Some(algorithm.to_owned()), Some(window.to_owned()));
    LimitSpec { name: name.into(), algorithm, limit: Some(limit), window, ..LimitSpec::default() }
}

/// Every algorithm family, one of limit 0, one with a slash in its name, two with queues, one in shadow mode.
fn limits() -> LimitSet {
    let limit = |name: &str, algorithm: &str, limit, window: &str, burst| {
        LimitSpec { burst, ..spec(name, algorithm, limit, window) }.check().unwrap()
    };
    let all = [
        limit("per-user", "sliding_window", 3, "60s", None),
        limit("hourly", "fixed_window", 1_000_000, "3600s", None),
        limit("burst", "token_bucket", 2, "3s", Some(2)),
        limit("closed", "fixed_window", 0, "60s", None),
        limit("team/a:b", "fixed_window", 10, "500ms", None),
        LimitSpec { queue: Some("2s".into()), ..spec("queued", "leaky_bucket", 1, "1s") }.check().unwrap(),
        LimitSpec { queue: Some("600ms".into()), ..spec("quick", "leaky_bucket", 10, "1s") }.check().unwrap(),
        LimitSpec { enforce: Some("shadow".into()), ..spec("watched", "fixed_window", 1, "60s") }.check().unwrap(),
    ];
    LimitSet::new(all).unwrap()
}

/// A service that `start` would run.
pub fn service(settings: Settings) -> (Service, Arc<HandClock>, Arc<Node>) {
    let (clock, node) = (Arc::new(HandClock(AtomicU64::new(0))), Arc::new(Node::default()));
    let own = ReplicaId { node: NodeName::new("eu-1").unwrap(), generation: 7, nonce: 1 };
    let engine = Engine::new(engine::Settings::default(), own, &Secret([1; 32]));
    engine.install(T0, limits());
    let engine = Arc::new(engine);
    let service = Service {
        engine: Arc::clone(&engine),
        clock: clock.clone(),
        slot_clock: Arc::new(SlotClock::start(0, T0, 0, 2 * SECOND)),
        urge: Arc::new(Notify::new()),
        node: node.clone(),
        definer: Arc::new(Made { engine, lock: Mutex::default() }),
        stopping: node.stop.subscribe(),
        settings,
    };
    (service, clock, node)
}

pub async fn start(settings: Settings) -> Server {
    let (service, clock, node) = service(settings);
    let (slot_clock, urge) = (service.slot_clock.clone(), service.urge.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let task = tokio::spawn(serve(listener, router(service), std::future::pending(), HEAD_TIMEOUT));
    let document = client.get("/openapi.json").await.unwrap().json().unwrap();
    Server { clock, slot_clock, node, urge, client, document, task }
}

impl Server {
    /// An answer, when it is as the OpenAPI document says.
    pub fn told(&self, method: &str, path: &str, answer: Response) -> Response {
        assert_told(&self.document, method, path, &answer);
        answer
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.told("post", path, self.client.post_json(path, body).await.unwrap())
    }

    pub async fn get(&self, path: &str) -> Response {
        self.told("get", path, self.client.get(path).await.unwrap())
    }

    /// Posts anything as anything.
    pub async fn post_raw(&self, path: &str, content_type: Option<&'static str>, body: &[u8]) -> Response {
        let mut headers = HeaderMap::new();
        content_type.map(|value| headers.insert("content-type", HeaderValue::from_static(value)));
        self.told("post", path, self.client.send(Method::POST, path, headers, body.to_vec().into()).await.unwrap())
    }

    /// Tokens used of a key.
    pub async fn used(&self, limit: &str, key: &str) -> u64 {
        let usage = self.post("/v1/usage", &serde_json::json!({"limit": limit, "key": key})).await;
        usage.json::<Value>().unwrap()["used"].as_u64().unwrap()
    }
}

/// Checks that an answer is a problem document of this status, and returns its detail.
#[track_caller]
pub fn problem(answer: &Response, status: u16) -> String {
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status.as_u16(), status, "{text}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{text}");
    let document: Value = answer.json().unwrap();
    let fields: Vec<_> = document.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["detail", "status", "title", "type"]);
    assert_eq!((&document["status"], &document["type"]), (&status.into(), &"about:blank".into()));
    assert_eq!(document["title"], answer.status.canonical_reason().unwrap());
    document["detail"].as_str().unwrap().to_owned()
}
