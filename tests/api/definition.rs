//! Limits that are made, changed and deleted over HTTP.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};
use tidegate::client::Response;

use crate::server::{Server, problem, settings, start};

pub async fn put(server: &Server, path: &str, body: &str, headers: &[(&'static str, &str)]) -> Response {
    let pairs = headers.iter().chain(&[("content-type", "application/json")]);
    let pairs = pairs.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
    let sent = server.client.send(Method::PUT, path, HeaderMap::from_iter(pairs), body.to_owned().into());
    server.told("put", path, sent.await.unwrap())
}

async fn delete(server: &Server, path: &str, if_match: Option<&str>) -> Response {
    let header = if_match.map(|tag| (HeaderName::from_static("if-match"), HeaderValue::from_str(tag).unwrap()));
    let sent = server.client.send(Method::DELETE, path, HeaderMap::from_iter(header), Default::default());
    server.told("delete", path, sent.await.unwrap())
}

const NEW: &str = r#"{"limit": 2, "window": "60s", "key": "{user}", "when": {"plan": "free"}}"#;

#[tokio::test]
async fn a_limit_is_made_changed_and_deleted() {
    let server = start(settings()).await;
    let made = put(&server, "/v1/limits/team/new", NEW, &[]).await;
    assert_eq!(made.status, 201);
    let document: Value = made.json().unwrap();
    assert_eq!((&document["name"], &document["limit"]), (&json!("team/new"), &json!(2)));
    let check = json!({"descriptors": {"user": "7", "plan": "free"}});
    for allowed in [true, true, false] {
        let answer: Value = server.post("/v1/check?denied=200", &check).await.json().unwrap();
        assert_eq!((&answer["allowed"], &answer["results"][0]["limit"]), (&json!(allowed), &json!("team/new")));
    }
    let read = server.get("/v1/limits/team%2Fnew").await;
    assert_eq!((read.header("tidegate-source"), read.header("etag")), (Some("api"), made.header("etag")));
    assert_eq!(read.json::<Value>().unwrap(), document);

    // What was read can be put there again, changed.
    let changed =
        Value::Object(document.as_object().unwrap().clone().into_iter().chain([("limit".into(), 3.into())]).collect());
    let tag = made.header("etag").unwrap();
    let put_again = put(&server, "/v1/limits/team/new", &changed.to_string(), &[("if-match", tag)]).await;
    assert_eq!(put_again.status, 200);
    assert_ne!(put_again.header("etag"), Some(tag));
    let answer: Value = server.post("/v1/check?denied=200", &check).await.json().unwrap();
    assert_eq!(answer["allowed"], true, "what was used stays, and there is room for one more");

    // Somebody else was faster.
    let late = put(&server, "/v1/limits/team/new", NEW, &[("if-match", tag)]).await;
    assert!(problem(&late, 412).contains("If-Match"));
    assert!(
        problem(&put(&server, "/v1/limits/team/new", NEW, &[("if-none-match", "*")]).await, 412).contains("team/new")
    );
    assert!(problem(&delete(&server, "/v1/limits/team/new", Some(tag)).await, 412).contains("team/new"));

    let listed: Value = server.get("/v1/limits").await.json().unwrap();
    let source = |name: &str| {
        let items = listed["limits"].as_array().unwrap();
        items.iter().find(|item| item["name"] == name).unwrap()["source"].as_str().unwrap().to_owned()
    };
    assert_eq!((source("team/new"), source("per-user")), ("api".into(), "file".into()));

    let gone = delete(&server, "/v1/limits/team/new", put_again.header("etag")).await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    problem(&server.get("/v1/limits/team/new").await, 404);
    problem(&delete(&server, "/v1/limits/team/new", None).await, 404);
}

#[tokio::test]
async fn what_is_no_definition_names_its_field_and_changes_nothing() {
    let server = start(settings()).await;
    for (body, says) in [
        (r#"{"limit": 2, "window": "60"}"#, "`window`: \"60\" is no duration"),
        (r#"{"limit": -2, "window": "60s"}"#, "`limit`: -2 is too small"),
        (r#"{"limit": "2", "window": "60s"}"#, "`limit`: invalid type: string"),
        (r#"{"window": "60s"}"#, "`limit`: is missing"),
        (r#"{"limit": 2, "window": "60s", "wnidow": "1s"}"#, "`wnidow`: unknown field"),
        (r#"{"name": "other", "limit": 2, "window": "60s"}"#, "`name`: the body defines \"other\""),
        (r#"{"limit": 2, "window": "60s", "key": "{ip}", "when": {"ip": {"cidr": ["x"]}}}"#, "`when.ip.cidr[0]`"),
        (
            r#"{"limit": 2, "window": "60s", "overrides": [{"key": "a", "limit": 1}, {"key": "a", "limit": 2}]}"#,
            "`overrides[1].key`: \"a\" is named already",
        ),
        (r#"{"limit": 2, "window": "60s", "overrides": [{"key": "a", "limt": 1}]}"#, "`overrides[0].limt`"),
        ("[]", "expected an object"),
        ("", "EOF"),
        ("{", "EOF"),
    ] {
        let answer = put(&server, "/v1/limits/new", body, &[]).await;
        let detail = problem(&answer, 400);
        assert!(detail.contains(says), "{body}: {detail}");
    }
    let body = r#"{"limit": 2, "window": "60s"}"#;
    assert!(
        problem(&put(&server, "/v1/limits/a%20b", body, &[]).await, 400).contains("`name`: \"a b\" is no limit name")
    );
    assert!(problem(&put(&server, "/v1/limits/new", body, &[("if-match", "5")]).await, 400).contains("if-match"));
    assert!(problem(&put(&server, "/v1/limits/new?x=1", body, &[]).await, 400).contains("`x`"));
    assert!(problem(&put(&server, "/v1/limits/per-user", body, &[]).await, 409).contains("file of the node eu-1"));
    assert!(problem(&delete(&server, "/v1/limits/per-user", None).await, 409).contains("change it there"));
    problem(&delete(&server, "/v1/limits/a%20b", None).await, 404);
    let empty = server.client.send(Method::PUT, "/v1/limits/new", HeaderMap::new(), body.into()).await.unwrap();
    problem(&empty, 415);
    problem(&server.get("/v1/limits/new").await, 404);
}

#[tokio::test]
async fn changes_need_the_token() {
    let server = start(tidegate::api::Settings { token: Some("0123456789abcdef".into()), ..settings() }).await;
    problem(&put(&server, "/v1/limits/new", NEW, &[]).await, 401);
    problem(&delete(&server, "/v1/limits/new", None).await, 401);
    let made = put(&server, "/v1/limits/new", NEW, &[("authorization", "Bearer 0123456789abcdef")]).await;
    assert_eq!(made.status, 201);
}
