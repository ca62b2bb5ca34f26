//! Operations beside a plain check: refunds, limits that watch, turns to wait for, batches, explanations.

use serde_json::{Value, json};
use tidegate::api::{MAX_BATCH, Settings};
use tidegate::time::{MS, SECOND};

use crate::server::{Server, problem, settings, start};

async fn told(server: &Server, path: &str, body: Value) -> Value {
    let answer = server.post(path, &body).await;
    answer.json().unwrap()
}

#[tokio::test]
async fn reserve_and_settle() {
    let server = start(settings()).await;
    let ask = |cost: u32| json!({"limit": "team/a:b", "key": "model", "cost": cost});
    // An estimate is checked; less was needed, and the difference comes back; then more was needed, and is owed.
    assert_eq!(told(&server, "/v1/check", ask(8)).await["results"][0]["remaining"], 2);
    let refunded = server.post("/v1/refund", &ask(3)).await;
    assert_eq!((refunded.status.as_u16(), refunded.header("x-ratelimit-remaining")), (200, Some("5")));
    assert_eq!(told(&server, "/v1/debit", ask(12)).await["results"][0]["remaining"], 0);
    assert_eq!(server.used("team/a:b", "model").await, 17);
    // Never more than was taken.
    assert_eq!(told(&server, "/v1/refund", ask(4_000_000_000)).await["results"][0]["remaining"], 10);
    assert_eq!(told(&server, "/v1/refund", ask(1)).await["results"][0]["remaining"], 10);
    assert_eq!(server.used("team/a:b", "model").await, 0);
}

#[tokio::test]
async fn a_limit_in_shadow_mode_is_seen_and_not_felt() {
    let server = start(settings()).await;
    let alone = json!({"limit": "watched", "key": "k"});
    let first = server.post("/v1/check", &alone).await;
    assert_eq!(first.json::<Value>().unwrap()["results"][0]["would_deny"], false);
    assert_eq!((first.header("ratelimit"), first.header("x-ratelimit-limit")), (None, None));
    let second = server.post("/v1/check", &alone).await;
    let document: Value = second.json().unwrap();
    assert_eq!(
        (second.status.as_u16(), &document["allowed"], &document["retry_after_ms"]),
        (200, &true.into(), &Value::Null)
    );
    let result = &document["results"][0];
    assert_eq!(
        (&result["allowed"], &result["would_deny"], &result["reason"]),
        (&false.into(), &true.into(), &"quota".into())
    );
    assert!(result["retry_after_ms"].as_u64().unwrap() > 0);

    // Beside one that denies it is named nowhere but in its own result.
    let both = json!({"checks": [{"limit": "watched", "key": "k"}, {"limit": "closed", "key": "k"}]});
    let denied = server.post("/v1/check", &both).await;
    assert_eq!(denied.json::<Value>().unwrap()["violated-policies"], json!(["closed"]));
    assert_eq!(denied.header("ratelimit"), Some("\"closed\";r=0"));
    let metrics = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    for line in [
        "tidegate_checks_total{limit=\"watched\",result=\"would_deny\"} 2",
        "tidegate_checks_total{limit=\"watched\",result=\"allowed\"} 1",
        "tidegate_checks_total{limit=\"watched\",result=\"denied\"} 0",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn a_queue_tells_each_caller_its_turn() {
    let server = start(settings()).await;
    let ask = json!({"limit": "queued", "key": "k"});
    for delay_ms in [0, 1000, 2000] {
        let document = told(&server, "/v1/check", ask.clone()).await;
        assert_eq!((&document["allowed"], &document["delay_ms"]), (&true.into(), &delay_ms.into()));
        assert_eq!(document["results"][0]["delay_ms"], delay_ms);
    }
    let denied = server.post("/v1/check", &ask).await;
    assert_eq!((denied.status.as_u16(), denied.header("retry-after")), (429, Some("1")));
    server.clock.advance(SECOND);
    assert_eq!(told(&server, "/v1/check", ask.clone()).await["delay_ms"], 2000);
}

#[tokio::test]
async fn an_answer_is_held_until_its_turn() {
    let server = start(settings()).await;
    let ask = json!({"limit": "quick", "key": "k", "cost": 10});
    assert_eq!(told(&server, "/v1/check", ask).await["delay_ms"], 0);
    let begun = tokio::time::Instant::now();
    let ask = json!({"limit": "quick", "key": "k", "cost": 3});
    let held = told(&server, "/v1/check?wait=true", ask.clone()).await;
    assert!(begun.elapsed().as_millis() >= 300, "answered after {:?}", begun.elapsed());
    assert_eq!(
        (&held["allowed"], &held["delay_ms"], &held["results"][0]["delay_ms"]),
        (&true.into(), &0.into(), &0.into())
    );
    // A node that stops holds nobody: what is left of the delay is told.
    server.node.stop.send_replace(true);
    assert_eq!(told(&server, "/v1/check?wait=true", ask.clone()).await["delay_ms"], 600);
    // A denial is not held.
    let denied = server.post("/v1/check?wait=true", &ask).await;
    assert_eq!((denied.status.as_u16(), denied.json::<Value>().unwrap()["retry_after_ms"].as_u64()), (429, Some(300)));
    server.clock.advance(300 * MS);
    assert_eq!(told(&server, "/v1/check", ask).await["allowed"], true);
}

#[tokio::test]
async fn a_batch_is_decided_one_by_one() {
    let server = start(settings()).await;
    let batch = json!({"requests": [
        {"limit": "per-user", "key": "k", "cost": 2},
        {"limit": "per-user", "key": "k", "cost": 2},
        {"op": "refund", "limit": "per-user", "key": "k", "cost": 1},
        {"op": "check", "limit": "per-user", "key": "k", "cost": 2},
        {"limit": "nobody", "key": "k"},
        {"op": "peek", "checks": [{"limit": "closed", "key": "k"}, {"limit": "hourly", "key": "k"}]},
    ]});
    let answer = server.post("/v1/batch", &batch).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, Some("application/json")));
    let document: Value = answer.json().unwrap();
    let answers = document["answers"].as_array().unwrap();
    let allowed: Vec<_> = answers.iter().map(|answer| answer.get("allowed").and_then(Value::as_bool)).collect();
    assert_eq!(allowed, [Some(true), Some(false), Some(true), Some(true), None, Some(false)]);
    assert_eq!((&answers[4]["status"], &answers[4]["title"]), (&404.into(), &"Not Found".into()));
    assert!(answers[4]["detail"].as_str().unwrap().contains("\"nobody\""));
    assert_eq!(answers[5]["results"][0]["reason"], "cost_over_limit");
    assert_eq!(server.used("per-user", "k").await, 3);
}

#[tokio::test]
async fn a_malformed_batch_takes_nothing() {
    let server = start(settings()).await;
    let good = json!({"limit": "hourly", "key": "k"});
    for (bad, says) in [
        (json!({"limit": "hourly"}), "`requests[1]`"),
        (json!({"limit": "hourly", "key": "k", "cst": 1}), "`requests[1]`: unknown field `cst`"),
        (json!({"op": "take", "limit": "hourly", "key": "k"}), "`requests[1]`: `op`: \"take\" is none of"),
        (json!(7), "`requests[1]`"),
        (json!({"limit": "hourly", "key": "k", "checks": [good]}), "`requests[1]`: both"),
        (json!({"checks": []}), "`requests[1].checks`: a request has 1 to 64"),
        (json!({"limit": "hourly", "key": ""}), "`requests[1].key`: a key has 1 to 1024 bytes"),
        (json!({"checks": [good, {"limit": "hourly", "key": ""}]}), "`requests[1].checks[1].key`: a key has"),
    ] {
        let batch = json!({"requests": [good, bad]});
        let detail = problem(&server.post("/v1/batch", &batch).await, 400);
        assert!(detail.contains(says), "{bad}: {detail}");
    }
    assert!(problem(&server.post("/v1/batch", &json!({"requests": []})).await, 400).contains("`requests` is empty"));
    let detail = problem(&server.post("/v1/batch", &json!({"requests": vec![&good; MAX_BATCH + 1]})).await, 400);
    assert!(detail.contains("more than 1000"), "{detail}");
    let detail = problem(&server.post("/v1/check", &json!({"op": "peek", "limit": "hourly", "key": "k"})).await, 400);
    assert!(detail.contains("`op` is for the requests of a batch"), "{detail}");
    assert_eq!(server.used("hourly", "k").await, 0);
}

#[tokio::test]
async fn a_batch_that_does_more_than_checks_needs_the_token() {
    let server = start(Settings { token: Some("secret".into()), ..settings() }).await;
    let check = json!({"limit": "hourly", "key": "k"});
    assert_eq!(server.post("/v1/batch", &json!({"requests": [check]})).await.status, 200);
    let debit = json!({"op": "debit", "limit": "hourly", "key": "k"});
    problem(&server.post("/v1/batch", &json!({"requests": [check, debit]})).await, 401);
    problem(&server.post("/v1/refund", &check).await, 401);
    assert_eq!(server.used("hourly", "k").await, 1);
}

#[tokio::test]
async fn an_explanation_tells_the_rule_and_who_counted() {
    let server = start(settings()).await;
    let ask = json!({"limit": "burst", "key": "k"});
    let document = told(&server, "/v1/check?explain=true", ask.clone()).await;
    let expected = json!({
        "definition": {"name": "burst", "algorithm": "token_bucket", "limit": 2, "window": "3s", "burst": 2, "consistency": "eventual"},
        "used": 1, "replicas": [{"node": "eu-1", "region": "eu", "generation": 7, "used": 1, "stale_ms": 0}]});
    assert_eq!(document["results"][0]["explain"], expected);
    assert!(told(&server, "/v1/check?explain=false", ask.clone()).await["results"][0].get("explain").is_none());
    for path in ["/v1/peek", "/v1/debit", "/v1/refund", "/v1/reset"] {
        let document = told(&server, &format!("{path}?explain=true"), ask.clone()).await;
        assert_eq!(document["results"][0]["explain"]["definition"]["name"], "burst", "{path}");
    }
    let batch = told(&server, "/v1/batch?explain=true", json!({"requests": [ask]})).await;
    assert_eq!(batch["answers"][0]["results"][0]["explain"]["used"], 1);
}
