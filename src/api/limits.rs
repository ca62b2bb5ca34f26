//! `/v1/limits`: the limits in force, as they would be written.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;

use super::App;
use super::problem::Problem;
use super::query::Query;
use super::usage::json;
use crate::limits::LimitSpec;

#[derive(Serialize)]
struct Document {
    limits: Vec<LimitSpec>,
}

/// `GET /v1/limits`.
pub(super) async fn all(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    let limits = app.service.engine.limits();
    Ok(json(&Document { limits: limits.iter().map(|limit| LimitSpec::of(limit)).collect() }))
}

/// `GET /v1/limits/{name}`. A name may contain `/`, as it is or as `%2F`.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    let Path(name) = name.map_err(|rejection| Problem::bad_request(format_args!("the limit's name: {rejection}")))?;
    let limits = app.service.engine.limits();
    match limits.iter().find(|limit| limit.name.as_str() == name) {
        Some(limit) => Ok(json(&LimitSpec::of(limit))),
        None => Err(Problem::new(StatusCode::NOT_FOUND, format_args!("no limit is called {name:?}"))),
    }
}
