//! `GET /v1/limits`: the limits in force, as they would be written.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::ETAG;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;

use super::App;
use super::precondition::{etag, etag_header};
use super::problem::Problem;
use super::query::Query;
use super::usage::json;
use crate::limits::{Limit, LimitSpec};

/// Where a limit is from: `file` or `api`.
const SOURCE: HeaderName = HeaderName::from_static("tidegate-source");

#[derive(Serialize)]
struct Document {
    limits: Vec<Item>,
}

#[derive(Serialize)]
struct Item {
    source: &'static str,
    etag: String,
    #[serde(flatten)]
    definition: LimitSpec,
}

/// `GET /v1/limits`.
pub(super) async fn all(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    let item =
        |limit: &Arc<Limit>| Item { source: app.source(limit), etag: etag(limit), definition: LimitSpec::of(limit) };
    Ok(json(&Document { limits: app.service.engine.limits().iter().map(item).collect() }))
}

/// `GET /v1/limits/{name}`: what could be put there again.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    let name = named(name)?;
    let limits = app.service.engine.limits();
    let limit = limits.iter().find(|limit| limit.name.as_str() == name).ok_or_else(|| unknown(&name))?;
    let mut answer = json(&LimitSpec::of(limit));
    answer.headers_mut().insert(ETAG, etag_header(limit));
    answer.headers_mut().insert(SOURCE, HeaderValue::from_static(app.source(limit)));
    Ok(answer)
}

impl App {
    fn source(&self, limit: &Limit) -> &'static str {
        if self.service.definer.is_of_file(&limit.name) { "file" } else { "api" }
    }
}

/// The name in a path. It may contain `/`, as it is or as `%2F`.
pub(super) fn named(name: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let wrong = |rejection| Problem::bad_request(format_args!("the limit's name: {rejection}"));
    name.map(|Path(name)| name).map_err(wrong)
}

pub(super) fn unknown(name: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format_args!("no limit is called {name:?}"))
}
