//! `/v1/usage`: what is known of one key, by replica.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::decide::JSON;
use super::problem::Problem;
use super::query::Query;
use super::{App, body};
use crate::engine::{ReplicaUsage, Usage, spec};

/// Which key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which<'a> {
    #[serde(borrow, deserialize_with = "spec::limit")]
    limit: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "spec::key")]
    key: Cow<'a, str>,
}

#[derive(Serialize)]
struct Document<'a> {
    limit: &'a str,
    key: &'a str,
    used: u64,
    remaining: u64,
    replicas: Vec<Replica>,
}

#[derive(Serialize)]
pub(super) struct Replica {
    node: String,
    region: Option<String>,
    generation: u64,
    used: u64,
    stale_ms: Option<u64>,
}

/// `GET /v1/usage?limit=..&key=..`.
pub(super) async fn by_query(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::read(&uri, &["limit", "key"])?;
    let field = |name: &str| {
        query.value(name).ok_or_else(|| Problem::bad_request(format_args!("the query parameter `{name}` is missing")))
    };
    app.usage(field("limit")?, field("key")?)
}

/// `POST /v1/usage`: keys in a URL end in access logs, those in a body do not.
pub(super) async fn by_body(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    Query::read(&head.uri, &[])?;
    let _in_flight = app.in_flight()?;
    let body = app.read(&head.headers, body).await?;
    let which: Which<'_> = body::parse(&body)?;
    app.usage(&which.limit, &which.key)
}

impl App {
    fn usage(&self, limit: &str, key: &str) -> Result<Response, Problem> {
        let service = &self.service;
        let now_ns = service.slot_clock.now(service.clock.monotonic_ns());
        let usage = service.engine.usage(now_ns, limit, key).map_err(|error| Problem::of(&error, false))?;
        let limit = usage.limit.name.as_str();
        let replicas = self.replicas(&usage);
        let key = usage.counted_as.as_deref().unwrap_or(key);
        Ok(json(&Document { limit, key, used: usage.used, remaining: usage.remaining, replicas }))
    }

    /// What each replica counted.
    pub(super) fn replicas(&self, usage: &Usage) -> Vec<Replica> {
        let node = &self.service.node;
        let replica = |one: &ReplicaUsage| Replica {
            node: one.replica.node.to_string(),
            region: node.region_of(&one.replica.node),
            generation: one.replica.generation,
            used: one.used,
            stale_ms: node.stale_ms(&one.replica),
        };
        usage.replicas.iter().map(replica).collect()
    }
}

/// A 200 of plain JSON.
pub(super) fn json(document: &impl Serialize) -> Response {
    let body = serde_json::to_vec(document).expect("plain fields always serialise");
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
