//! `GET /openapi.json`: the API described (OpenAPI 3.1), true to the code. Paths and methods are those of the router's own
//! table; bounds are the constants in force; and what is answered is held against the shapes by tests.

mod definition;
pub(super) mod operations;
mod schemas;

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::decide::JSON;
use super::problem::Problem;
use super::query::Query;
use super::routes::{self, Route};

/// Written once: it is the same for every node of a version.
static DOCUMENT: LazyLock<Bytes> =
    LazyLock::new(|| serde_json::to_vec(&document(&routes::all())).expect("JSON values always serialise").into());

/// `GET /openapi.json`.
pub(super) async fn handle(uri: Uri) -> Result<Response, Problem> {
    Query::read(&uri, &[])?;
    let mut response = Response::new(Body::from(DOCUMENT.clone()));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

fn document(routes: &[Route]) -> Value {
    let path = |route: &Route| {
        let methods = route.operations.iter().map(|operation| (operation.method.to_owned(), operation.told.clone()));
        // A parameter that takes slashes has no notation here; as `%2F` a client sends them anyway.
        (route.path.replace("{*", "{"), Value::Object(methods.collect()))
    };
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tidegate",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "One quota worldwide, decided locally",
            "description": "A node decides every request from its own memory, at once, and tells the others. \
                Errors are problem documents (RFC 9457) whose detail names the field; a request that fails takes nothing.",
            "license": { "name": "Apache-2.0", "identifier": env!("CARGO_PKG_LICENSE") },
        },
        "tags": [
            { "name": "decisions", "description": "Ask, take, give back." },
            { "name": "limits", "description": "What is enforced, and changing it in the whole cluster." },
            { "name": "node", "description": "How the node and its cluster are." },
        ],
        "paths": routes.iter().map(path).collect::<Map<_, _>>(),
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of the node's `http.token_file`; a node without one lets everybody in.",
                },
            },
        },
    })
}
