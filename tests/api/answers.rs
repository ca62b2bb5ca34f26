//! Decisions: statuses, headers, bodies, and waits that are true.

use axum::http::StatusCode;
use serde_json::{Value, json};
use tidegate::api::Settings;
use tidegate::client::{Client, Response};
use tidegate::time::{MS, SECOND};

use crate::server::{T0, problem, settings, start};

fn rate_limit_headers(answer: &Response) -> Vec<&str> {
    let names = ["ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    names.into_iter().chain(["retry-after"]).map(|name| answer.header(name).unwrap_or("-")).collect()
}

#[tokio::test]
async fn an_admission() {
    let server = start(settings()).await;
    server.clock.advance(39 * SECOND);
    let answer = server.post("/v1/check", &json!({"limit": "per-user", "key": "42", "cost": 1})).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    // Remaining rises, and nothing counts any more, just after the edge of the window, when 1 * (W - x) / W is below 1.
    assert_eq!(rate_limit_headers(&answer), ["\"per-user\";q=3;w=60", "\"per-user\";r=2;t=22", "3", "2", "22", "-"]);
    let expected = r#"{"allowed":true,"retry_after_ms":null,"delay_ms":0,"results":[{"limit":"per-user","key":"42","allowed":true,"reason":null,"quota":3,"remaining":2,"retry_after_ms":null,"reset_after_ms":21001,"delay_ms":0}]}"#;
    assert_eq!(answer.body, expected);
}

#[tokio::test]
async fn a_denial_whose_wait_is_true() {
    let server = start(settings()).await;
    let ask = json!({"limit": "burst", "key": "k"});
    for _ in 0..2 {
        assert_eq!(server.post("/v1/check", &ask).await.status, 200);
    }
    let denied = server.post("/v1/check", &ask).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!(rate_limit_headers(&denied), ["\"burst\";q=2;w=3", "\"burst\";r=0;t=2", "2", "0", "3", "2"]);
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota exceeded", "status": 429, "violated-policies": ["burst"],
        "allowed": false, "retry_after_ms": 1500, "delay_ms": 0,
        "results": [{"limit": "burst", "key": "k", "allowed": false, "reason": "quota", "quota": 2, "remaining": 0,
                     "retry_after_ms": 1500, "reset_after_ms": 3000, "delay_ms": 0}]});
    assert_eq!(denied.json::<Value>().unwrap(), expected);

    // 1.5 s to the nanosecond: one less is denied, and the wait told is then one nanosecond, rounded up.
    server.clock.advance(1500 * MS - 1);
    let denied = server.post("/v1/check", &ask).await;
    assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, Some("1")));
    assert_eq!(denied.json::<Value>().unwrap()["retry_after_ms"], 1);
    server.clock.advance(1);
    assert_eq!(server.post("/v1/check", &ask).await.status, 200);
}

#[tokio::test]
async fn waiting_as_long_as_retry_after_says_admits() {
    let server = start(settings()).await;
    for (limit, cost) in [("per-user", 3), ("hourly", 1_000_000), ("burst", 2), ("team/a:b", 10)] {
        // Not at the edge of anything.
        server.clock.advance(1_234_567_891);
        let ask = json!({"limit": limit, "key": "k", "cost": cost});
        assert_eq!(server.post("/v1/check", &ask).await.status, 200, "{limit}");
        let denied = server.post("/v1/check", &ask).await;
        assert_eq!(denied.status, 429, "{limit}");
        let seconds: u64 = denied.header("retry-after").unwrap().parse().unwrap();
        server.clock.advance(seconds * SECOND);
        assert_eq!(server.post("/v1/check", &ask).await.status, 200, "{limit} after {seconds} s");
        // And the body's milliseconds are as true.
        let ms = server.post("/v1/check", &ask).await.json::<Value>().unwrap()["retry_after_ms"].as_u64().unwrap();
        server.clock.advance((ms - 1) * MS);
        assert_eq!(server.post("/v1/check", &ask).await.status, 429, "{limit} before {ms} ms");
        server.clock.advance(MS);
        assert_eq!(server.post("/v1/check", &ask).await.status, 200, "{limit} after {ms} ms");
    }
}

#[tokio::test]
async fn waits_are_longer_while_the_clock_slews() {
    let server = start(settings()).await;
    let ask = json!({"limit": "hourly", "key": "k", "cost": 1_000_000});
    assert_eq!(server.post("/v1/check", &ask).await.status, 200);
    let wait =
        async || server.post("/v1/check", &ask).await.json::<Value>().unwrap()["retry_after_ms"].as_u64().unwrap();
    assert_eq!(wait().await, 3_600_000);
    // The system's clock is found 100 ms behind: the node's slews down.
    server.slot_clock.discipline(0, T0 - 100 * MS);
    assert_eq!(server.slot_clock.slewing(), 1);
    assert_eq!(wait().await, 3_600_000 + 1_801);
}

#[tokio::test]
async fn never() {
    let server = start(settings()).await;
    for ask in [json!({"limit": "closed", "key": "k"}), json!({"limit": "per-user", "key": "k", "cost": 4})] {
        let denied = server.post("/v1/check", &ask).await;
        assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, None));
        assert!(!denied.header("ratelimit").unwrap().contains(";t="), "{denied:?}");
        let document: Value = denied.json().unwrap();
        assert_eq!(
            (&document["retry_after_ms"], &document["results"][0]["retry_after_ms"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(document["results"][0]["reason"], "cost_over_limit");
    }
    let answer = server.post("/v1/check", &json!({"limit": "closed", "key": "k", "cost": 0})).await;
    assert_eq!((answer.status.as_u16(), answer.header("ratelimit-policy")), (200, Some("\"closed\";q=0")));
}

#[tokio::test]
async fn several_limits_all_or_nothing() {
    let server = start(settings()).await;
    let both = json!({"checks": [{"limit": "hourly", "key": "k"}, {"limit": "burst", "key": "k"}]});
    for _ in 0..2 {
        let answer = server.post("/v1/check", &both).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"hourly\";q=1000000;w=3600, \"burst\";q=2;w=3"));
        assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
    }
    let denied = server.post("/v1/check", &both).await;
    let document: Value = denied.json().unwrap();
    assert_eq!((denied.status.as_u16(), &document["violated-policies"]), (429, &json!(["burst"])));
    assert_eq!((&document["results"][0]["allowed"], &document["results"][1]["allowed"]), (&json!(true), &json!(false)));
    assert_eq!(denied.header("ratelimit"), Some("\"hourly\";r=999998;t=3600, \"burst\";r=0;t=2"));
    assert_eq!(server.used("hourly", "k").await, 2);

    let twice =
        json!({"checks": [{"limit": "per-user", "key": "k", "cost": 2}, {"limit": "per-user", "key": "k", "cost": 2}]});
    let denied = server.post("/v1/check", &twice).await;
    assert_eq!(denied.header("ratelimit-policy"), Some("\"per-user\";q=3;w=60"));
    assert_eq!(denied.json::<Value>().unwrap()["violated-policies"], json!(["per-user"]));
}

#[tokio::test]
async fn a_denial_under_another_status() {
    let server = start(Settings { denied_status: 403, ..settings() }).await;
    let ask = json!({"limit": "closed", "key": "k"});
    for (path, status) in [("/v1/check", 403), ("/v1/check?denied=200", 200), ("/v1/check?denied=429", 429)] {
        let denied = server.post(path, &ask).await;
        assert_eq!((denied.status.as_u16(), denied.header("content-type")), (status, Some("application/problem+json")));
        let document: Value = denied.json().unwrap();
        assert_eq!((&document["status"], &document["allowed"]), (&status.into(), &json!(false)));
    }
    // Peek tells the same, and is no denial.
    let peeked = server.post("/v1/peek", &ask).await;
    assert_eq!((peeked.status.as_u16(), peeked.header("content-type")), (200, Some("application/json")));
    let document: Value = peeked.json().unwrap();
    assert_eq!((&document["allowed"], document.get("type")), (&json!(false), None));
}

#[tokio::test]
async fn peek_debit_reset() {
    let server = start(settings()).await;
    let ask = |cost| json!({"limit": "per-user", "key": "k", "cost": cost});
    for _ in 0..5 {
        assert_eq!(server.post("/v1/peek", &ask(3)).await.json::<Value>().unwrap()["allowed"], true);
    }
    assert_eq!(server.used("per-user", "k").await, 0);
    let debited = server.post("/v1/debit", &ask(50)).await;
    let document: Value = debited.json().unwrap();
    assert_eq!(
        (debited.status.as_u16(), &document["allowed"], &document["results"][0]["remaining"]),
        (200, &json!(true), &json!(0))
    );
    assert_eq!(document["retry_after_ms"], Value::Null);
    assert_eq!(server.used("per-user", "k").await, 50);
    assert_eq!(server.post("/v1/check", &ask(1)).await.status, 429);
    let reset = server.post("/v1/reset", &json!({"limit": "per-user", "key": "k"})).await;
    assert_eq!((reset.status.as_u16(), reset.header("x-ratelimit-remaining")), (200, Some("3")));
    assert_eq!(server.post("/v1/check", &ask(3)).await.status, 200);
}

#[tokio::test]
async fn debit_and_reset_need_the_token() {
    let server = start(Settings { token: Some("open sesame".into()), ..settings() }).await;
    let ask = json!({"limit": "hourly", "key": "k"});
    for route in ["/v1/debit", "/v1/reset"] {
        let wrong = server.client.clone().with_token("open sesamE").unwrap();
        for client in [&server.client, &wrong] {
            let answer = client.post_json(route, &ask).await.unwrap();
            problem(&answer, 401);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"tidegate\""));
        }
        let right: Client = server.client.clone().with_token("open sesame").unwrap();
        assert_eq!(right.post_json(route, &ask).await.unwrap().status, 200);
    }
    for route in ["/v1/check", "/v1/peek"] {
        assert_eq!(server.post(route, &ask).await.status, 200);
    }
}

#[tokio::test]
async fn a_hot_key_asks_for_a_flush() {
    let server = start(settings()).await;
    // All of a limit at once is more than any part of it that may wait.
    assert_eq!(server.post("/v1/check", &json!({"limit": "per-user", "key": "k", "cost": 3})).await.status, 200);
    tokio::time::timeout(std::time::Duration::from_secs(5), server.urge.notified())
        .await
        .expect("a flush was asked for");
}
