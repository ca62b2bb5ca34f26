//! Requests that are wrong: the answer is a problem document that names what is, and nothing is taken.

use axum::http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::server::{problem, settings, start};

/// Routes that take checks, and how they are called right.
const DECIDING: [&str; 5] = ["/v1/check", "/v1/peek", "/v1/debit", "/v1/refund", "/v1/reset"];

/// Every route that takes a body.
const WITH_BODY: [&str; 6] = ["/v1/check", "/v1/peek", "/v1/debit", "/v1/refund", "/v1/reset", "/v1/usage"];

const GOOD: &str = r#"{"limit":"hourly","key":"k"}"#;

#[tokio::test]
async fn bodies_of_checks() {
    let server = start(settings()).await;
    let long = "k".repeat(1025);
    let good = json!({"limit": "hourly", "key": "k", "cost": 1});
    let rows: Vec<(Value, &str)> = vec![
        (json!({"limit": "hourly", "key": ""}), "`key`"),
        (json!({"limit": "hourly", "key": long}), "`key`"),
        (json!({"limit": "hourly", "key": 5}), "`key`"),
        (json!({"limit": "hourly", "key": null}), "`key`"),
        (json!({"limit": "hourly"}), "`key`"),
        (json!({"limit": ["hourly"], "key": "k"}), "`limit`"),
        (json!({"key": "k"}), "`limit`"),
        (json!({"limit": "hourly", "key": "k", "cost": -1}), "`cost`"),
        (json!({"limit": "hourly", "key": "k", "cost": 1.5}), "`cost`"),
        (json!({"limit": "hourly", "key": "k", "cost": "1"}), "`cost`"),
        (json!({"limit": "hourly", "key": "k", "cost": null}), "`cost`"),
        (json!({"limit": "hourly", "key": "k", "cost": 4_294_967_296u64}), "`cost`"),
        (json!({"limit": "hourly", "key": "k", "cst": 5}), "`cst`"),
        (json!({"checks": []}), "`checks`"),
        (json!({"checks": vec![good.clone(); 65]}), "`checks`"),
        (json!({"checks": {"limit": "hourly", "key": "k"}}), "`checks`"),
        (json!({"checks": ["k"]}), "`checks[0]`"),
        (json!({"checks": [["hourly", "k", 1]]}), "`checks[0]`"),
        (
            json!({"checks": [good.clone(), {"limit": "hourly", "key": "k", "cst": 1}]}),
            "`checks[1]`: unknown field `cst`",
        ),
        (json!({"checks": [good.clone(), {"limit": "hourly", "key": ""}]}), "`checks[1].key`"),
        (json!({"checks": [good], "cost": 2}), "both `checks`"),
        (json!({}), "neither"),
        (json!({"cost": 1}), "neither"),
        (json!(["hourly", "k", 1]), "an object"),
        (json!("hourly"), "an object"),
    ];
    for route in DECIDING {
        for (body, says) in &rows {
            let detail = problem(&server.post(route, body).await, 400);
            assert!(detail.contains(says), "{route} {body}: {detail}");
        }
    }
    assert_eq!(server.used("hourly", "k").await, 0);
}

#[tokio::test]
async fn bodies_of_every_route() {
    let server = start(settings()).await;
    for route in WITH_BODY {
        for wrong in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonp")] {
            let detail = problem(&server.post_raw(route, wrong, GOOD.as_bytes()).await, 415);
            assert!(detail.contains("Content-Type: application/json"), "{detail}");
        }
        for right in ["application/json", "Application/JSON; charset=utf-8"] {
            assert_eq!(server.post_raw(route, Some(right), GOOD.as_bytes()).await.status, 200);
        }
        let twice = r#"{"limit":"hourly","key":"k","key":"l"}"#;
        let not_utf8 = b"{\"limit\":\"hourly\",\"key\":\"\xff\"}";
        let trailing = format!("{GOOD}{GOOD}");
        for body in [b"".as_slice(), b"{", b"nonsense", b"null", b"5", twice.as_bytes(), trailing.as_bytes(), not_utf8]
        {
            let answer = server.post_raw(route, Some("application/json"), body).await;
            problem(&answer, 400);
        }
        let large = format!("{{\"limit\":\"hourly\",\"key\":\"{}\"}}", "k".repeat(settings().max_body));
        let answer = server.post_raw(route, Some("application/json"), large.as_bytes()).await;
        assert!(problem(&answer, 413).contains(&settings().max_body.to_string()));
    }
    for body in
        [json!({"limit": "hourly"}), json!({"limit": "hourly", "key": "k", "cost": 1}), json!({"limit": 1, "key": "k"})]
    {
        problem(&server.post("/v1/usage", &body).await, 400);
    }
}

#[tokio::test]
async fn unknown_limits_take_nothing() {
    let server = start(settings()).await;
    for route in WITH_BODY {
        let answer = server.post(route, &json!({"limit": "nope", "key": "k"})).await;
        assert!(problem(&answer, 404).contains("\"nope\""));
    }
    for route in DECIDING {
        let checks = json!({"checks": [{"limit": "hourly", "key": "k"}, {"limit": "nope", "key": "k"}]});
        assert!(
            problem(&server.post(route, &checks).await, 404).contains("`checks[1].limit`: no limit is called \"nope\"")
        );
    }
    assert_eq!(server.used("hourly", "k").await, 0);
    problem(&server.get("/v1/limits/nope").await, 404);
    problem(&server.get("/v1/usage?limit=nope&key=k").await, 404);
}

#[tokio::test]
async fn routes_and_methods() {
    let server = start(settings()).await;
    for unknown in ["/", "/v1", "/v1/check/", "/v1/refunds", "/v1/authz", "/v1/limits/", "/openapi.yaml"] {
        assert!(problem(&server.get(unknown).await, 404).contains(unknown));
        problem(&server.post(unknown, &json!({})).await, 404);
    }
    let send = |method: Method, path: &'static str| server.client.send(method, path, HeaderMap::new(), "".into());
    for (route, allow) in [
        ("/v1/check", "POST"),
        ("/v1/peek", "POST"),
        ("/v1/debit", "POST"),
        ("/v1/refund", "POST"),
        ("/v1/reset", "POST"),
        ("/v1/batch", "POST"),
        ("/v1/usage", "GET,HEAD,POST"),
        ("/v1/limits", "GET,HEAD"),
        ("/v1/limits/per-user", "GET,HEAD,PUT,DELETE"),
        ("/v1/cluster", "GET,HEAD"),
        ("/healthz", "GET,HEAD"),
        ("/readyz", "GET,HEAD"),
        ("/metrics", "GET,HEAD"),
    ] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            if !allow.contains(method.as_str()) {
                let answer = send(method.clone(), route).await.unwrap();
                problem(&answer, 405);
                assert_eq!(answer.header("allow"), Some(allow), "{method} {route}");
            }
        }
    }
}

#[tokio::test]
async fn query_parameters() {
    let server = start(settings()).await;
    let good = serde_json::from_str(GOOD).unwrap();
    for route in WITH_BODY {
        assert!(problem(&server.post(&format!("{route}?denyed=200"), &good).await, 400).contains("`denyed`"));
        let detail = problem(&server.post(&format!("{route}?explain=yes"), &good).await, 400);
        assert!(detail.contains("`explain`"), "{detail}");
    }
    for route in &DECIDING[1..] {
        assert!(problem(&server.post(&format!("{route}?denied=200"), &good).await, 400).contains("`denied`"));
        assert!(problem(&server.post(&format!("{route}?wait=true"), &good).await, 400).contains("`wait`"));
    }
    for status in ["", "2OO", "201", "302", "500", "99", "70000", "-200"] {
        let detail = problem(&server.post(&format!("/v1/check?denied={status}"), &good).await, 400);
        assert!(detail.contains("`denied`"), "{detail}");
    }
    for route in ["/v1/limits", "/v1/limits/per-user", "/v1/cluster", "/healthz", "/readyz", "/metrics"] {
        assert!(problem(&server.get(&format!("{route}?verbose=1")).await, 400).contains("`verbose`"));
    }
    for (query, says) in [
        ("limit=hourly", "`key` is missing"),
        ("key=k", "`limit` is missing"),
        ("limit=hourly&key=", "`key`"),
        ("limit=hourly&key=k&key=l", "`key` is there twice"),
        ("limit=hourly&key=%ff", "`key` is not UTF-8"),
        ("limit=hourly&key=k&cost=1", "`cost`"),
    ] {
        let detail = problem(&server.get(&format!("/v1/usage?{query}")).await, 400);
        assert!(detail.contains(says), "{query}: {detail}");
    }
    problem(&server.get("/v1/limits/%ff").await, 400);
    assert_eq!(server.used("hourly", "k").await, 0);
}
