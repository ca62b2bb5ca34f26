//! `PUT` and `DELETE /v1/limits/{name}`: limits that are made, changed and deleted while the node runs.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::Response;

use super::precondition::{Precondition, etag_header};
use super::problem::Problem;
use super::query::Query;
use super::usage::json;
use super::{App, DefineError, limits};
use crate::engine::spec::Object;
use crate::limits::{Limit, LimitName, LimitSpec};

/// `PUT /v1/limits/{name}`: the whole definition; what it leaves out is as in a file that leaves it out.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    app.authorise(&head.headers)?;
    Query::read(&head.uri, &[])?;
    let name = limits::named(name)?;
    let precondition = Precondition::read(&head.headers)?;
    let _in_flight = app.in_flight()?;
    let body = app.read(&head.headers, body).await?;
    let limit = read(&name, &body)?;
    let (answer, tag) = (json(&LimitSpec::of(&limit)), etag_header(&limit));
    let created = app.service.definer.define(limit, &|old| precondition.holds(old));
    let created = created.map_err(|error| refused(&name, error))?;
    let mut answer = answer;
    *answer.status_mut() = if created { StatusCode::CREATED } else { StatusCode::OK };
    answer.headers_mut().insert(ETAG, tag);
    Ok(answer)
}

/// `DELETE /v1/limits/{name}`.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    app.authorise(request.headers())?;
    Query::read(request.uri(), &[])?;
    let name = limits::named(name)?;
    let precondition = Precondition::read(request.headers())?;
    let limit_name = LimitName::new(&name).ok_or_else(|| refused(&name, DefineError::Unknown))?;
    let deleted = app.service.definer.delete(&limit_name, &|old| precondition.holds(old));
    deleted.map_err(|error| refused(&name, error))?;
    let mut answer = Response::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}

/// A definition, whose name may be left to the path.
fn read(name: &str, body: &[u8]) -> Result<Limit, Problem> {
    let wrong = |e: crate::limits::SpecError| Problem::bad_request(format_args!("`{}`: {}", e.field, e.problem));
    // Whatever is no object has no fields to name.
    let fields = serde_json::from_slice::<Object<serde_json::Map<_, _>>>(body).map_err(Problem::bad_request)?.0;
    let mut spec = LimitSpec::read(serde_json::Value::Object(fields)).map_err(wrong)?;
    if spec.name.is_empty() {
        name.clone_into(&mut spec.name);
    }
    if spec.name != name {
        let problem = format!("`name`: the body defines {:?}, the path names {name:?}", spec.name);
        return Err(Problem::bad_request(problem));
    }
    spec.check().map_err(wrong)
}

fn refused(name: &str, error: DefineError) -> Problem {
    match error {
        DefineError::Precondition => Problem::new(
            StatusCode::PRECONDITION_FAILED,
            format_args!("{name:?} is not as `If-Match` or `If-None-Match` has it: read it again and decide anew"),
        ),
        DefineError::Unknown => limits::unknown(name),
        DefineError::OfFile(node) => Problem::new(
            StatusCode::CONFLICT,
            format_args!("{name:?} is defined in the configuration file of the node {node}: change it there"),
        ),
        DefineError::Full(why) => Problem::new(StatusCode::INSUFFICIENT_STORAGE, format_args!("{name:?}: {why}")),
    }
}
