//! What is answered to a request that cannot be served: problem documents (RFC 9457).

use std::any::Any;
use std::fmt::Display;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::engine::AskError;

/// The media type of every problem.
pub(super) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A refusal.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Display) -> Self {
        Self { status, detail: detail.to_string() }
    }

    /// The request is wrong; `detail` names the field.
    pub(super) fn bad_request(detail: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// This node cannot answer now.
    pub(super) fn unavailable(detail: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// What the engine refused. `listed`: the request had a list of checks.
    pub(super) fn of(error: &AskError, listed: bool) -> Self {
        let status = match error {
            AskError::UnknownLimit { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, format_args!("`{}`: {error}", error.field(listed)))
    }
}

impl Problem {
    /// The JSON of it.
    pub(super) fn document(&self) -> Vec<u8> {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let document = Document { r#type: "about:blank", title, status: self.status.as_u16(), detail: &self.detail };
        serde_json::to_vec(&document).expect("four plain fields always serialise")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body::from(self.document());
        let mut response = (self.status, [(CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"tidegate\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// For a path that no route has.
pub(super) async fn unknown_route(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format_args!("no route {:?}", uri.path()))
}

/// For a route that has not this method; the router adds `Allow`.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format_args!("{:?} does not take {method}; `Allow` names what it does", uri.path()),
    )
}

/// For a handler that panicked. Nothing of the panic is told to the caller; the log has it.
pub(super) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("no text"), "a request panicked");
    Problem::unavailable("internal failure; the node's log has more").into_response()
}
