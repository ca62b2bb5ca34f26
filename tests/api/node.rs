//! What the API tells of keys, limits, the node and its cluster; overload and failure.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, StatusCode};
use hyper::body::Frame;
use serde_json::{Value, json};
use tidegate::api::{MAX_IN_FLIGHT, router};
use tower::ServiceExt;

use crate::server::{problem, service, settings, start};

#[tokio::test]
async fn usage() {
    let server = start(settings()).await;
    server.post("/v1/debit", &json!({"limit": "team/a:b", "key": "a b&c", "cost": 4})).await;
    let expected = json!({"limit": "team/a:b", "key": "a b&c", "used": 4, "remaining": 6,
        "replicas": [{"node": "eu-1", "region": "eu", "generation": 7, "used": 4, "stale_ms": 0}]});
    let by_body = server.post("/v1/usage", &json!({"limit": "team/a:b", "key": "a b&c"})).await;
    let by_query = server.get("/v1/usage?limit=team/a:b&key=a+b%26c").await;
    assert_eq!((by_body.json::<Value>().unwrap(), by_query.json::<Value>().unwrap()), (expected.clone(), expected));
}

#[tokio::test]
async fn limits() {
    let server = start(settings()).await;
    let all: Value = server.get("/v1/limits").await.json().unwrap();
    let names: Vec<_> = all["limits"].as_array().unwrap().iter().map(|limit| limit["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["burst", "closed", "hourly", "per-user", "queued", "quick", "team/a:b", "watched"]);
    let bucket = json!({"name": "burst", "algorithm": "token_bucket", "limit": 2, "window": "3s", "burst": 2, "consistency": "eventual"});
    assert_eq!(server.get("/v1/limits/burst").await.json::<Value>().unwrap(), bucket);
    let slashed = json!({"name": "team/a:b", "algorithm": "fixed_window", "limit": 10, "window": "500ms", "consistency": "eventual"});
    for path in ["/v1/limits/team/a:b", "/v1/limits/team%2Fa%3Ab"] {
        assert_eq!(server.get(path).await.json::<Value>().unwrap(), slashed);
    }
}

#[tokio::test]
async fn cluster_health_and_readiness() {
    let server = start(settings()).await;
    let cluster: Value = server.get("/v1/cluster").await.json().unwrap();
    assert_eq!(cluster["members"][0]["state"], "self");
    let peer = json!({"name": "us-1", "region": "us", "generation": 7, "state": "connected", "rtt_ms": 80, "lag_ms": 91,
        "clock_offset_ms": -3, "backlog": 2});
    assert_eq!(cluster["members"][1], peer);
    assert_eq!(cluster["limits_differ"], json!([{"limit": "per-user", "nodes": ["us-1"]}]));

    assert_eq!(server.get("/healthz").await.body, r#"{"status":"ok"}"#);
    assert_eq!(server.get("/readyz").await.body, r#"{"status":"ready"}"#);
    server.node.degraded.lock().push("the disk is full".into());
    *server.node.not_ready.lock() = Some("no seed has answered".into());
    let health = server.get("/healthz").await;
    assert_eq!(
        (health.status, health.json().unwrap()),
        (StatusCode::OK, json!({"status": "degraded", "reasons": ["the disk is full"]}))
    );
    assert!(problem(&server.get("/readyz").await, 503).contains("no seed has answered"));
    // Decided all the same.
    assert_eq!(server.post("/v1/check", &json!({"limit": "hourly", "key": "k"})).await.status, 200);
}

#[tokio::test]
async fn metrics() {
    let server = start(settings()).await;
    for _ in 0..5 {
        server.post("/v1/check", &json!({"limit": "per-user", "key": "k"})).await;
    }
    server.post("/v1/peek", &json!({"limit": "per-user", "key": "k"})).await;
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        "tidegate_checks_total{limit=\"per-user\",result=\"allowed\"} 3",
        "tidegate_checks_total{limit=\"per-user\",result=\"denied\"} 2",
        "tidegate_checks_total{limit=\"hourly\",result=\"allowed\"} 0",
        "tidegate_request_duration_seconds_count{op=\"check\"} 5",
        "tidegate_request_duration_seconds_count{op=\"peek\"} 1",
        "# TYPE tidegate_request_duration_seconds histogram",
        "tidegate_own_keys 1",
        "tidegate_cells 1",
        "tidegate_table_full_total{answer=\"denied\"} 0",
        "tidegate_peer_connected{peer=\"us-1\",region=\"us\"} 1",
        "tidegate_peer_connected{peer=\"ap-1\",region=\"ap\"} 1",
        "tidegate_peer_lag_seconds{peer=\"us-1\",region=\"us\"} 0.091",
        "tidegate_peer_backlog_chunks{peer=\"us-1\",region=\"us\"} 2",
        "tidegate_peer_clock_offset_seconds{peer=\"us-1\",region=\"us\"} -0.003",
        "tidegate_limits_differ 1",
        "tidegate_journal_queued_bytes 5",
        "tidegate_certificate_expires_timestamp_seconds 1900000000",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn two_nodes_in_one_process_count_apart() {
    let (one, other) = (start(settings()).await, start(settings()).await);
    one.post("/v1/check", &json!({"limit": "per-user", "key": "k"})).await;
    let line = "tidegate_checks_total{limit=\"per-user\",result=\"allowed\"} 0";
    assert!(String::from_utf8_lossy(&other.get("/metrics").await.body).contains(line));
    assert!(!String::from_utf8_lossy(&one.get("/metrics").await.body).contains(line));
}

#[tokio::test]
async fn a_panic_is_a_503_and_the_node_goes_on() {
    let server = start(settings()).await;
    server.node.panics.store(true, Ordering::SeqCst);
    let detail = problem(&server.get("/v1/cluster").await, 503);
    assert!(!detail.contains("a test wanted this"), "{detail}");
    server.node.panics.store(false, Ordering::SeqCst);
    assert_eq!(server.get("/v1/cluster").await.status, 200);
}

/// A body of which nothing comes; counts that it was waited for.
struct Slow {
    waited_for: Arc<AtomicUsize>,
    counted: bool,
}

impl HttpBody for Slow {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if !std::mem::replace(&mut self.counted, true) {
            self.waited_for.fetch_add(1, Ordering::SeqCst);
        }
        Poll::Pending
    }
}

#[tokio::test]
async fn too_many_at_once_are_a_503_and_health_answers_still() {
    let router = router(service(settings()).0);
    let request =
        |path: &str, body: Body| Request::post(path).header("content-type", "application/json").body(body).unwrap();
    let waited_for = Arc::new(AtomicUsize::new(0));
    let slow: Vec<_> = (0..MAX_IN_FLIGHT)
        .map(|_| Slow { waited_for: waited_for.clone(), counted: false })
        .map(|body| tokio::spawn(router.clone().oneshot(request("/v1/check", Body::new(body)))))
        .collect();
    while waited_for.load(Ordering::SeqCst) < MAX_IN_FLIGHT {
        tokio::task::yield_now().await;
    }
    let good = || Body::from(r#"{"limit":"hourly","key":"k"}"#);
    for path in ["/v1/check", "/v1/usage"] {
        let answer = router.clone().oneshot(request(path, good())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    let health = Request::get("/healthz").body(Body::empty()).unwrap();
    assert_eq!(router.clone().oneshot(health).await.unwrap().status(), StatusCode::OK);
    // Whoever goes makes room.
    for one in slow {
        one.abort();
        assert!(one.await.unwrap_err().is_cancelled());
    }
    assert_eq!(router.oneshot(request("/v1/check", good())).await.unwrap().status(), StatusCode::OK);
}
