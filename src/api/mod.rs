//! The HTTP API: [`router`] makes an axum router of a [`Service`], which the node [`serve`]s on its listener.
//!
//! A check's way: [`body`] reads and parses what is asked, `decide` reads the clock once and asks the engine, [`headers`]
//! and [`document`] write the answer. Whatever cannot be served is a [`problem`].

mod batch;
mod body;
mod decide;
mod definition;
mod document;
mod explain;
mod headers;
mod hold;
mod limits;
mod metrics;
mod openapi;
mod precondition;
mod problem;
mod query;
mod routes;
mod server;
mod state;
mod usage;
mod waits;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use tokio::sync::{Notify, Semaphore, watch};
use tower_http::catch_panic::CatchPanicLayer;

pub use self::batch::MAX_BATCH;
pub use self::hold::{MAX_HELD, MAX_HOLD};
use self::metrics::Metrics;
use self::routes::Route;
pub use self::server::{HEAD_TIMEOUT, serve};
use crate::engine::Engine;
use crate::id::NodeName;
use crate::limits::{Limit, LimitName};
use crate::time::{Clock, SlotClock};

/// Requests with a body that are worked on at once; more are answered 503. Each holds at most `max_body` bytes.
pub const MAX_IN_FLIGHT: usize = 1024;

/// How the HTTP API is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The largest request body, bytes.
    pub max_body: usize,
    /// The status of a denied check: 429 or 200 (or what a proxy needs).
    pub denied_status: u16,
    /// The bearer token that reset, refund, debit and changes of limits need; None: none needed, which is refused off loopback.
    pub token: Option<String>,
}

/// What the API serves from.
pub struct Service {
    /// Decides.
    pub engine: Arc<Engine>,
    /// Tells the time, once a request.
    pub clock: Arc<dyn Clock>,
    /// Makes slot-clock time of it.
    pub slot_clock: Arc<SlotClock>,
    /// Asks for an early flush.
    pub urge: Arc<Notify>,
    /// The node around the engine.
    pub node: Arc<dyn NodeView>,
    /// Takes limits made at run time.
    pub definer: Arc<dyn Definer>,
    /// Turns true when the node is to stop: then no answer is held any more.
    pub stopping: watch::Receiver<bool>,
    /// Settings.
    pub settings: Settings,
}

/// One node of the cluster as this node sees it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Member {
    /// Node name.
    pub name: String,
    /// Where it is.
    pub region: String,
    /// Which life.
    pub generation: u64,
    /// `self`, `connected`, `unreachable` or `clock_beyond_skew`.
    pub state: &'static str,
    /// Round trip of the link, milliseconds; None for this node and those not connected.
    pub rtt_ms: Option<u64>,
    /// How old the newest complete knowledge of it is, milliseconds.
    pub lag_ms: Option<u64>,
    /// Its clock minus this node's, milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// Own chunks that it has not acknowledged.
    pub backlog: u64,
}

/// A limit that is not the same everywhere.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LimitDifference {
    /// The limit.
    pub limit: String,
    /// The nodes that have it otherwise than this one, or have it not, or have it when this one has not.
    pub nodes: Vec<String>,
}

/// Figures of the node's other parts, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Whether the journal cannot be written now.
    pub journal_failing: bool,
    /// Bytes of records that wait for the journal.
    pub journal_queued_bytes: u64,
    /// Records that were skipped as damaged when the journal was read.
    pub journal_damaged: u64,
    /// Handshakes that failed and connections that were refused.
    pub connections_rejected: u64,
    /// Chunks of peers refused because they were of a time too far ahead.
    pub peers_chunks_ahead: u64,
    /// When this node's certificate ends, Unix seconds; None without one.
    pub certificate_expires_unix_s: Option<i64>,
}

/// What the API tells of the node beside decisions.
pub trait NodeView: Send + Sync + 'static {
    /// All nodes known, this one first.
    fn members(&self) -> Vec<Member>;
    /// Limits whose definitions differ.
    fn limits_differ(&self) -> Vec<LimitDifference>;
    /// What is wrong with this node; empty: it is well.
    fn degraded(&self) -> Vec<String>;
    /// Why it is not ready; None: it is.
    fn not_ready(&self) -> Option<String>;
    /// The region of a node, for usage by region.
    fn region_of(&self, node: &NodeName) -> Option<String>;
    /// How old the newest complete knowledge of a replica is, milliseconds; 0 for this node's own.
    fn stale_ms(&self, replica: &crate::id::ReplicaId) -> Option<u64>;
    /// Figures for metrics.
    fn figures(&self) -> Figures;
}

/// Who makes, changes and deletes limits while the node runs. `may` is asked, under the same lock, about the limit that
/// is in force now; None: there is none.
pub trait Definer: Send + Sync + 'static {
    /// Puts a limit in force, here and, as they hear of it, on all nodes. Whether it is a new one.
    fn define(&self, limit: Limit, may: &dyn Fn(Option<&Limit>) -> bool) -> Result<bool, DefineError>;
    /// Deletes a limit, likewise.
    fn delete(&self, name: &LimitName, may: &dyn Fn(Option<&Limit>) -> bool) -> Result<(), DefineError>;
    /// Whether the node's own file defines a limit.
    fn is_of_file(&self, name: &LimitName) -> bool;
}

/// Why a limit is not made, changed or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefineError {
    /// `may` said no.
    Precondition,
    /// There is none of this name.
    Unknown,
    /// The file of this node defines it.
    OfFile(NodeName),
    /// There is no room for it: what the bound is.
    Full(String),
}

/// The status that denied checks may be given: 200, or one that says it was the client. None for any other.
pub fn denied_status(status: u16) -> Option<StatusCode> {
    StatusCode::from_u16(status).ok().filter(|status| *status == StatusCode::OK || status.is_client_error())
}

/// What every handler works from.
struct App {
    service: Service,
    metrics: Metrics,
    denied: StatusCode,
    in_flight: Semaphore,
    held: Semaphore,
}

/// All routes. A `denied_status` in the settings that [`denied_status`] does not know counts as 429.
pub fn router(service: Service) -> Router {
    let denied = denied_status(service.settings.denied_status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let metrics = Metrics::new();
    let (in_flight, held) = (Semaphore::new(MAX_IN_FLIGHT), Semaphore::new(MAX_HELD));
    let app = Arc::new(App { service, metrics, denied, in_flight, held });
    let with = |router: Router<_>, route: Route| {
        route.operations.into_iter().fold(router, |router, operation| router.route(route.path, operation.handler))
    };
    routes::all()
        .into_iter()
        .fold(Router::new(), with)
        .fallback(problem::unknown_route)
        .method_not_allowed_fallback(problem::wrong_method)
        // `body` has a bound of its own, and a problem document for it.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(app)
}
