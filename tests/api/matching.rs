//! Requests that say what they are instead of naming limits.

use serde_json::{Value, json};

use crate::definition::put;
use crate::server::{Server, problem, settings, start};

/// By address, by user and route, and for whoever pays.
async fn keyed() -> Server {
    let server = start(settings()).await;
    for (path, body) in [
        ("/v1/limits/by-ip", json!({"limit": 3, "window": "60s", "key": "{ip}", "key_type": "ip", "ipv4_prefix": 24})),
        ("/v1/limits/by-route", json!({"limit": 5, "window": "60s", "key": "{user}_{route}"})),
        (
            "/v1/limits/paid",
            json!({"limit": 9, "window": "60s", "key": "{user}", "when": {"plan": "paid"},
                   "overrides": [{"key": "acme", "limit": 50}]}),
        ),
    ] {
        assert_eq!(put(&server, path, &body.to_string(), &[]).await.status, 201);
    }
    server
}

async fn told(server: &Server, path: &str, body: Value) -> Value {
    server.post(path, &body).await.json().unwrap()
}

/// `limit key remaining` of each result.
fn results(answer: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let one =
        |result: &Value| format!("{} {} {}", text(&result["limit"]), text(&result["key"]), text(&result["remaining"]));
    answer["results"].as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn every_operation_takes_descriptors() {
    let server = keyed().await;
    let ask = |cost: u32| {
        let fields = json!({"ip": "192.0.2.7", "user": "ann", "route": "GET /", "plan": "paid"});
        json!({"descriptors": fields, "cost": cost})
    };
    let with = |ip: u64, route: u64, paid: u64| {
        vec![format!("by-ip 192.0.2.0/24 {ip}"), format!("by-route ann_GET / {route}"), format!("paid ann {paid}")]
    };
    assert_eq!(results(&told(&server, "/v1/check", ask(2)).await), with(1, 3, 7));
    // All or nothing: the address has no two left.
    let denied = told(&server, "/v1/check", ask(2)).await;
    assert_eq!((results(&denied), &denied["violated-policies"]), (with(1, 3, 7), &json!(["by-ip"])));
    assert_eq!(results(&told(&server, "/v1/peek", ask(1)).await), with(1, 3, 7));
    assert_eq!(results(&told(&server, "/v1/debit", ask(2)).await), with(0, 1, 5));
    assert_eq!(results(&told(&server, "/v1/refund", ask(3)).await), with(2, 4, 8));
    assert_eq!(results(&told(&server, "/v1/reset", ask(1)).await), with(3, 5, 9));
    let batch = told(&server, "/v1/batch", json!({"requests": [ask(1), {"op": "peek", "descriptors": {}}]})).await;
    assert_eq!(results(&batch["answers"][0]), with(2, 4, 8));
    assert_eq!(batch["answers"][1], json!({"allowed": true, "retry_after_ms": null, "delay_ms": 0, "results": []}));
    let explained = told(&server, "/v1/peek?explain=true", ask(1)).await;
    assert_eq!(explained["results"][0]["explain"]["definition"]["ipv4_prefix"], 24);
    assert_eq!(explained["results"][1]["explain"]["used"], 1);
}

#[tokio::test]
async fn a_request_counts_for_the_limits_that_are_for_it() {
    let server = keyed().await;
    let matched = async |fields: Value| {
        let answer = told(&server, "/v1/peek", json!({"descriptors": fields})).await;
        results(&answer).iter().map(|one| one.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(matched(json!({})).await, [""; 0]);
    assert_eq!(matched(json!({"user": "ann"})).await, [""; 0], "a key that lacks a field is none");
    assert_eq!(matched(json!({"user": "ann", "plan": "paid"})).await, ["paid"]);
    assert_eq!(matched(json!({"user": "ann", "plan": "free", "route": "/"})).await, ["by-route"]);
    assert_eq!(matched(json!({"user": "", "plan": "paid", "ip": "::1"})).await, ["by-ip"], "an empty field is none");
    // An override is the limit of its key alone.
    let quota = async |user: &str| {
        let body = json!({"descriptors": {"user": user, "plan": "paid"}});
        told(&server, "/v1/peek", body).await["results"][0]["quota"].clone()
    };
    assert_eq!((quota("ann").await, quota("acme").await), (json!(9), json!(50)));
}

#[tokio::test]
async fn no_two_requests_share_a_key_by_accident() {
    let server = keyed().await;
    let take = async |user: &str, route: &str| {
        results(&told(&server, "/v1/check", json!({"descriptors": {"user": user, "route": route}})).await)
    };
    assert_eq!(take("a", "b_c").await, ["by-route a_b%5Fc 4"]);
    assert_eq!(take("a_b", "c").await, ["by-route a%5Fb_c 4"]);
    assert_eq!(take("a%5Fb", "c").await, ["by-route a%255Fb_c 4"]);
    assert_eq!(take("a", "b_c").await, ["by-route a_b%5Fc 3"]);
}

#[tokio::test]
async fn addresses_are_folded_however_they_are_named() {
    let server = keyed().await;
    for (path, body) in [
        ("/v1/check", json!({"descriptors": {"ip": "192.0.2.7"}})),
        ("/v1/check", json!({"descriptors": {"ip": "::ffff:192.0.2.8"}})),
        ("/v1/check", json!({"limit": "by-ip", "key": "192.0.2.9"})),
    ] {
        assert_eq!(told(&server, path, body).await["results"][0]["key"], "192.0.2.0/24");
    }
    assert_eq!(server.used("by-ip", "192.0.2.200").await, 3);
    let by_query: Value = server.get("/v1/usage?limit=by-ip&key=192.0.2.0%2F24").await.json().unwrap();
    assert_eq!((&by_query["key"], &by_query["used"]), (&json!("192.0.2.0/24"), &json!(3)));
    let detail = problem(&server.post("/v1/check", &json!({"limit": "by-ip", "key": "ann"})).await, 400);
    assert!(detail.starts_with("`key`: \"ann\" is no IP address"), "{detail}");
    let detail = problem(&server.get("/v1/usage?limit=by-ip&key=ann").await, 400);
    assert!(detail.contains("\"ann\" is no IP address"), "{detail}");
}

#[tokio::test]
async fn bad_descriptors_name_their_field_and_take_nothing() {
    let server = keyed().await;
    let long = "x".repeat(1025);
    let many: Value = (0..33).map(|n| (format!("f{n}"), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    for (body, says) in [
        (json!({"descriptors": {"ip": "nowhere", "user": "ann", "plan": "paid"}}), "`descriptors.ip`: \"nowhere\" is"),
        (json!({"descriptors": {"a b": "x"}}), "1 to 64 of A-Z a-z 0-9 _ and -"),
        (json!({"descriptors": {"user": 5}}), "`descriptors.user`: invalid type"),
        (json!({"descriptors": {"user": long}}), "at most 1024 bytes"),
        (json!({"descriptors": many}), "at most 32 fields"),
        (json!({"descriptors": ["ann"]}), "descriptors"),
        (json!({"descriptors": {"user": "ann"}, "limit": "paid"}), "either names limits or says what it is"),
        (json!({"descriptors": {"user": "ann"}, "checks": []}), "either names limits or says what it is"),
        (json!({"descriptors": {"user": "ann", "plan": "paid"}, "cost": -1}), "`cost`"),
    ] {
        for path in ["/v1/check", "/v1/debit", "/v1/reset"] {
            let detail = problem(&server.post(path, &body).await, 400);
            assert!(detail.contains(says), "{body}: {detail}");
        }
    }
    let twice = br#"{"descriptors": {"user": "ann", "user": "bob"}}"#;
    let detail = problem(&server.post_raw("/v1/check", Some("application/json"), twice).await, 400);
    assert!(detail.contains("is there twice"), "{detail}");
    assert_eq!(server.used("paid", "ann").await, 0);
}
