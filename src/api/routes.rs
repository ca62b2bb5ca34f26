//! All routes, each with what the OpenAPI document says of it: the router and the document are made of this one table.

use std::sync::Arc;

use axum::extract::State;
use axum::handler::Handler;
use axum::routing::{self, MethodRouter};
use serde_json::Value;

use super::openapi::operations as told;
use super::{App, batch, decide, definition, limits, openapi, state, usage};
use crate::engine::Op;

/// A path and what can be done there.
pub(super) struct Route {
    /// As axum writes it: `{*name}` also takes slashes.
    pub(super) path: &'static str,
    pub(super) operations: Vec<Operation>,
}

/// One method of a path.
pub(super) struct Operation {
    /// As OpenAPI writes it: `get`.
    pub(super) method: &'static str,
    pub(super) handler: MethodRouter<Arc<App>>,
    /// What the document says of it.
    pub(super) told: Value,
}

/// The table.
pub(super) fn all() -> Vec<Route> {
    let ask = |path, op| {
        let handler = move |State(app), request| decide::handle(app, op, request);
        route(path, [post(handler, told::ask(op))])
    };
    vec![
        ask("/v1/check", Op::Check),
        ask("/v1/peek", Op::Peek),
        ask("/v1/debit", Op::Debit),
        ask("/v1/refund", Op::Refund),
        ask("/v1/reset", Op::Reset),
        route("/v1/batch", [post(batch::handle, told::batch())]),
        route("/v1/usage", [get(usage::by_query, told::usage_by_query()), post(usage::by_body, told::usage_by_body())]),
        route("/v1/limits", [get(limits::all, told::all_limits())]),
        route(
            "/v1/limits/{*name}",
            [
                get(limits::one, told::one_limit()),
                put(definition::put, told::put_limit()),
                delete(definition::delete, told::delete_limit()),
            ],
        ),
        route("/v1/cluster", [get(state::cluster, told::cluster())]),
        route("/healthz", [get(state::healthz, told::healthz())]),
        route("/readyz", [get(state::readyz, told::readyz())]),
        route("/metrics", [get(state::metrics, told::metrics())]),
        route("/openapi.json", [get(openapi::handle, told::openapi())]),
    ]
}

fn route<const N: usize>(path: &'static str, operations: [Operation; N]) -> Route {
    Route { path, operations: operations.into() }
}

fn get<H: Handler<T, Arc<App>>, T: 'static>(handler: H, told: Value) -> Operation {
    Operation { method: "get", handler: routing::get(handler), told }
}

fn post<H: Handler<T, Arc<App>>, T: 'static>(handler: H, told: Value) -> Operation {
    Operation { method: "post", handler: routing::post(handler), told }
}

fn put<H: Handler<T, Arc<App>>, T: 'static>(handler: H, told: Value) -> Operation {
    Operation { method: "put", handler: routing::put(handler), told }
}

fn delete<H: Handler<T, Arc<App>>, T: 'static>(handler: H, told: Value) -> Operation {
    Operation { method: "delete", handler: routing::delete(handler), told }
}
