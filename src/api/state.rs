//! How the node and its cluster are: `/v1/cluster`, `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use serde::Serialize;

use super::problem::Problem;
use super::query::Query;
use super::usage::json;
use super::{App, LimitDifference, Member};

#[derive(Serialize)]
struct Cluster {
    members: Vec<Member>,
    limits_differ: Vec<LimitDifference>,
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

/// The cluster as this node sees it.
pub(super) async fn cluster(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    let node = &app.service.node;
    Ok(json(&Cluster { members: node.members(), limits_differ: node.limits_differ() }))
}

/// Always 200: a degraded node still decides, and restarting it would mend nothing.
pub(super) async fn healthz(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    let reasons = app.service.node.degraded();
    Ok(json(&Health { status: if reasons.is_empty() { "ok" } else { "degraded" }, reasons }))
}

/// 503 with the reason while traffic should go elsewhere.
pub(super) async fn readyz(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    match app.service.node.not_ready() {
        None => Ok(json(&Health { status: "ready", reasons: Vec::new() })),
        Some(reason) => Err(Problem::unavailable(format_args!("not ready: {reason}"))),
    }
}

/// For Prometheus.
pub(super) async fn metrics(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    let mut response = Response::new(Body::from(app.metrics.render(&app.service)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    Ok(response)
}
