//! The OpenAPI document is true: every answer in these tests is held against it (by [`Server`]), and it has every route.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::http::{HeaderMap, Method};
use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate::client::Response;
use tidegate::limits::{Descriptors, LimitName, LimitSpec, OverrideSpec};

use crate::definition::put;
use crate::server::{settings, start};

/// Panics unless the document has the operation, and the answer is one that it may give.
#[track_caller]
pub fn assert_told(document: &Value, method: &str, path_and_query: &str, answer: &Response) {
    let path = path_and_query.split('?').next().unwrap();
    let what = format!("{method} {path_and_query}: {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    let told = &document["paths"]
        [if path.len() > "/v1/limits/".len() && path.starts_with("/v1/limits/") { "/v1/limits/{name}" } else { path }];
    if told.is_null() {
        assert_eq!(answer.status, 404, "{what}");
        return;
    }
    if told[method].is_null() {
        assert_eq!(answer.status, 405, "{what}");
        return;
    }
    let responses = &told[method]["responses"];
    let exact = &responses[answer.status.as_str()];
    let range = format!("{}XX", answer.status.as_u16() / 100);
    let response = if exact.is_null() { &responses[&range] } else { exact };
    assert!(!response.is_null(), "no such status in the document: {what}");
    let Some(content) = response["content"].as_object() else {
        assert!(answer.body.is_empty(), "{what}");
        return;
    };
    let media_type = answer.header("content-type").unwrap();
    let schema =
        &content.get(media_type).unwrap_or_else(|| panic!("no {media_type} in the document: {what}"))["schema"];
    if !media_type.ends_with("json") {
        return;
    }
    let validator = validator(document, schema);
    let body = answer.json::<Value>().unwrap();
    let wrong: Vec<_> = validator.iter_errors(&body).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{what}");
    assert_headers_told(response, answer, &what);
}

/// Those of this API: whatever is there is in the document, and is of the type it says.
fn assert_headers_told(response: &Value, answer: &Response, what: &str) {
    let told: BTreeMap<String, &Value> =
        response["headers"].as_object().into_iter().flatten().map(|(name, told)| (name.to_lowercase(), told)).collect();
    for (name, value) in &answer.headers {
        let name = name.as_str();
        if ["content-type", "content-length", "date", "allow"].contains(&name) {
            continue;
        }
        let told = told.get(name).unwrap_or_else(|| panic!("{name} is not in the document: {what}"));
        let number = told["schema"]["type"] == "integer";
        assert!(!number || value.to_str().unwrap().parse::<u64>().is_ok(), "{name}: {value:?}: {what}");
    }
}

/// Of a schema of the document; made once.
fn validator(document: &Value, schema: &Value) -> Arc<Validator> {
    static MADE: LazyLock<Mutex<BTreeMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);
    let make = || {
        let whole = json!({ "components": document["components"], "allOf": [schema] });
        Arc::new(jsonschema::validator_for(&whole).unwrap())
    };
    MADE.lock().entry(schema.to_string()).or_insert_with(make).clone()
}

#[tokio::test]
async fn it_has_every_route_and_no_other() {
    let server = start(settings()).await;
    let document: Value = server.get("/openapi.json").await.json().unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    let known: Vec<_> = paths.keys().map(String::as_str).collect();
    let expected = [
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/batch",
        "/v1/check",
        "/v1/cluster",
        "/v1/debit",
        "/v1/limits",
        "/v1/limits/{name}",
        "/v1/peek",
        "/v1/refund",
        "/v1/reset",
        "/v1/usage",
    ];
    assert_eq!(known, expected);
    for (path, told) in paths {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let url = path.replace("{name}", "hourly");
            let sent = server.client.send(method.clone(), &url, HeaderMap::new(), Default::default()).await.unwrap();
            let known = !told[method.as_str().to_lowercase()].is_null();
            assert_eq!(sent.status != 405, known, "{method} {url}: {}", sent.status);
        }
    }
}

#[tokio::test]
async fn its_references_and_examples_hold() {
    let server = start(settings()).await;
    let document: Value = server.get("/openapi.json").await.json().unwrap();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, told) in methods.as_object().unwrap() {
            for content in told["responses"].as_object().unwrap().values().map(|response| &response["content"]) {
                let contents = content.as_object().into_iter().flatten();
                contents.for_each(|(_, content)| drop(validator(&document, &content["schema"])));
            }
            let Some(body) = told["requestBody"]["content"].get("application/json") else { continue };
            let validator = validator(&document, &body["schema"]);
            for (name, example) in body["examples"].as_object().unwrap() {
                assert!(validator.is_valid(&example["value"]), "{method} {path}: {name}");
            }
        }
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        validator(&document, &json!({ "$ref": format!("#/components/schemas/{name}") }));
    }
}

#[tokio::test]
async fn names_are_what_the_code_takes() {
    let server = start(settings()).await;
    let schemas = &server.document["components"]["schemas"];
    let name = validator(&server.document, &schemas["LimitName"]);
    let field = validator(&server.document, &schemas["Descriptors"]["propertyNames"]);
    let letters = (0..=255u8).map(|byte| char::from(byte).to_string());
    for text in letters.chain(["", "a\n"].map(str::to_owned)).chain([64, 65].map(|length| "a".repeat(length))) {
        assert_eq!(name.is_valid(&json!(text)), LimitName::new(&text).is_some(), "{text:?}");
        let added = Descriptors::default().add(text.as_str().into(), "value".into());
        assert_eq!(field.is_valid(&json!(text)), added.is_ok(), "{text:?}");
    }
}

#[tokio::test]
async fn a_definition_has_the_fields_that_are_read() {
    let server = start(settings()).await;
    let document: Value = server.get("/openapi.json").await.json().unwrap();
    let own = OverrideSpec { limit: Some(1), window: Some("1s".into()), burst: Some(1), ..OverrideSpec::default() };
    let text = || Some("text".to_owned());
    let all = LimitSpec {
        name: "name".into(),
        algorithm: text(),
        limit: Some(1),
        window: text(),
        slots: Some(1),
        align: text(),
        time_zone: text(),
        burst: Some(1),
        queue: text(),
        enforce: text(),
        consistency: text(),
        max_keys: Some(1),
        on_full: text(),
        key: text(),
        key_type: text(),
        ipv4_prefix: Some(1),
        ipv6_prefix: Some(1),
        when: BTreeMap::from([("plan".into(), json!("free"))]),
        overrides: vec![own],
    };
    let written = serde_json::to_value(&all).unwrap();
    for (schema, written) in [("Limit", &written), ("WrittenLimit", &written), ("Override", &written["overrides"][0])] {
        let fields = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(fields(&document["components"]["schemas"][schema]["properties"]), fields(written), "{schema}");
    }
}

/// Each answer is held against the document as it is given.
#[tokio::test]
async fn answers_of_every_form() {
    let server = start(settings()).await;
    let status = async |path: &str, body: &Value| server.post(path, body).await.status.as_u16();
    let check = json!({"limit": "per-user", "key": "k", "cost": 2});
    for (query, expected) in [
        ("", 200),
        ("?explain=true", 429),
        ("?denied=200", 200),
        ("?denied=404", 404),
        ("?denied=418&explain=true", 418),
        ("?denied=7", 400),
        ("?x=1", 400),
    ] {
        assert_eq!(status(&format!("/v1/check{query}"), &check).await, expected, "{query}");
    }
    for op in ["peek", "debit", "refund", "reset"] {
        assert_eq!(status(&format!("/v1/{op}?explain=true"), &check).await, 200);
        assert_eq!(status(&format!("/v1/{op}"), &json!({"limit": "nosuch", "key": "k"})).await, 404);
    }
    let check_of = async |body: Value| status("/v1/check", &body).await;
    assert_eq!(check_of(json!({"limit": "burst", "key": "k", "cost": 3})).await, 429);
    let both = json!([{"limit": "queued", "key": "k"}, {"limit": "watched", "key": "k"}]);
    assert_eq!(check_of(json!({ "checks": both })).await, 200);
    assert_eq!(check_of(json!({"descriptors": {"user": "ann"}})).await, 200);
    let unknown = json!({"op": "reset", "limit": "nosuch", "key": "k"});
    let batch = json!({"requests": [check, unknown, {"limit": "closed", "key": "k"}]});
    assert_eq!(status("/v1/batch?explain=true", &batch).await, 200);
    assert_eq!(status("/v1/batch", &json!({"requests": []})).await, 400);
    for (path, expected) in [
        ("/v1/usage?limit=per-user&key=k", 200),
        ("/v1/usage?limit=nosuch&key=k", 404),
        ("/v1/usage", 400),
        ("/v1/limits", 200),
        ("/v1/limits/team%2Fa:b", 200),
        ("/v1/limits/nosuch", 404),
        ("/v1/cluster", 200),
        ("/healthz", 200),
        ("/readyz", 200),
        ("/metrics", 200),
        ("/nosuch", 404),
    ] {
        assert_eq!(server.get(path).await.status, expected, "{path}");
    }
    server.node.degraded.lock().push("a reason".into());
    *server.node.not_ready.lock() = Some("a reason".into());
    for (path, expected) in [("/healthz", 200), ("/readyz", 503), ("/v1/check", 405)] {
        assert_eq!(server.get(path).await.status, expected, "{path}");
    }
}

/// Definitions with every field come back as the document has them.
#[tokio::test]
async fn definitions_of_every_form() {
    let server = start(settings()).await;
    let own = |window: &str| json!([{"key": "k", "limit": 9, "window": window}]);
    for (name, definition) in [
        (
            "calendar",
            json!({"algorithm": "fixed_window", "align": "calendar", "limit": 5, "window": "day",
                "time_zone": "Europe/Berlin", "overrides": own("month")}),
        ),
        ("slots", json!({"limit": 5, "window": "60s", "slots": 6, "overrides": own("30s"), "enforce": "shadow"})),
        ("queue", json!({"algorithm": "leaky_bucket", "limit": 5, "window": "1s", "burst": 2, "queue": "1s"})),
        (
            "described",
            json!({"limit": 5, "window": "60s", "key": "{ip}", "key_type": "ip", "ipv4_prefix": 24, "max_keys": 5,
                "on_full": "deny", "when": {"plan": {"not": "paid"}, "ip": {"cidr": ["10.0.0.0/8"]}, "b": ["x", "y"],
                "c": {"prefix": "p"}, "d": {"glob": "/a/*"}, "e": {"present": false}}}),
        ),
        ("nothing", json!({"limit": 5, "window": "60s", "slots": null, "algorithm": null})),
    ] {
        let written = validator(&server.document, &json!({ "$ref": "#/components/schemas/WrittenLimit" }));
        assert!(written.is_valid(&definition), "{name}");
        let made = put(&server, &format!("/v1/limits/{name}"), &definition.to_string(), &[]).await;
        assert_eq!(made.status, 201, "{name}: {}", String::from_utf8_lossy(&made.body));
        server.get(&format!("/v1/limits/{name}")).await;
        let peek = json!({"limit": name, "key": if name == "described" { "10.1.2.3" } else { "k" }});
        assert_eq!(server.post("/v1/peek?explain=true", &peek).await.status, 200);
    }
    server.get("/v1/limits").await;
    let opposite = json!({"limit": 5, "window": "60s", "key": "{user}", "when": {"plan": {"not": {"not": "x"}}}});
    let written = validator(&server.document, &json!({ "$ref": "#/components/schemas/WrittenLimit" }));
    assert!(!written.is_valid(&opposite));
    assert_eq!(put(&server, "/v1/limits/opposite", &opposite.to_string(), &[]).await.status, 400);
}
