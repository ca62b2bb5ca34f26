//! `check`, `peek`, `debit`, `refund` and `reset`: the way of a request through the engine and back.

use std::hint::black_box;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;

use super::body::{self, Asked, BODY_TIMEOUT};
use super::explain::Explained;
use super::problem::{PROBLEM_JSON, Problem};
use super::query::Query;
use super::waits::Waits;
use super::{App, denied_status, document, headers};
use crate::engine::spec::AskSpec;
use crate::engine::{Answer, AskError, Op};

/// The media type of everything but problems.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers one request. The head is done with before the body is awaited: without it a request fits the sizes that an
/// allocator is quick with.
pub(super) fn handle(
    app: Arc<App>,
    op: Op,
    request: Request,
) -> impl Future<Output = Result<Response, Problem>> + Send + use<> {
    let (head, body) = request.into_parts();
    let how = settle(&app, op, &head);
    let body = app.read(&head.headers, body);
    async move {
        let how = how?;
        let in_flight = app.in_flight()?;
        let body = body.await?;
        let asked = Asked::parse(&body)?;
        let mut decided = app.decide(op, &asked, how.explain)?;
        if how.wait && decided.answer.delay_ns() > 0 {
            drop(in_flight);
            // In a box, so that a request which is not held need not have the room.
            let held_ns = Box::pin(app.hold(decided.answer.delay_ns(), decided.waits)).await;
            decided.waits = decided.waits.after(held_ns);
        }
        let denial = how.denial.filter(|_| !decided.answer.allowed);
        let mut response = Response::new(Body::from(decided.document(&asked, denial)));
        *response.status_mut() = denial.unwrap_or(StatusCode::OK);
        headers::add(response.headers_mut(), &decided.answer, decided.waits);
        response.headers_mut().insert(CONTENT_TYPE, if denial.is_some() { PROBLEM_JSON } else { JSON });
        app.count(op, &decided);
        Ok(response)
    }
}

/// What the head alone decides.
struct How {
    /// The status of a denied check; None for the operations whose every answer is 200.
    denial: Option<StatusCode>,
    /// Whether an admitted check is answered only when its turn has come.
    wait: bool,
    explain: bool,
}

/// Whether the request is let in, and how it is to be answered.
fn settle(app: &App, op: Op, head: &Parts) -> Result<How, Problem> {
    if needs_token(op) {
        app.authorise(&head.headers)?;
    }
    let is_check = op == Op::Check;
    let query = Query::read(&head.uri, if is_check { &["denied", "explain", "wait"] } else { &["explain"] })?;
    let denial = if is_check { Some(denied(app, &query)?) } else { None };
    Ok(How { denial, wait: query.flag("wait")?, explain: query.flag("explain")? })
}

/// Whether an operation changes what was counted otherwise than a check does.
pub(super) fn needs_token(op: Op) -> bool {
    matches!(op, Op::Debit | Op::Refund | Op::Reset)
}

fn denied(app: &App, query: &Query) -> Result<StatusCode, Problem> {
    let Some(status) = query.value("denied") else { return Ok(app.denied) };
    let status = status.parse().ok().and_then(denied_status);
    status.ok_or_else(|| Problem::bad_request("the query parameter `denied` is 200 or a status from 400 to 499"))
}

/// Checks the bearer token, where one is needed.
fn authorise(headers: &HeaderMap, token: Option<&str>) -> Result<(), Problem> {
    let Some(token) = token else { return Ok(()) };
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| value.split_at_checked(7));
    let fits = given.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case(b"Bearer ") && equal_in_constant_time(given.trim_ascii(), token.as_bytes())
    });
    match fits {
        true => Ok(()),
        false => Err(Problem::new(StatusCode::UNAUTHORIZED, "this needs the bearer token of the node's `token_file`")),
    }
}

/// The time tells the length of the token but nothing of its bytes.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| black_box(differs | (a ^ b))) == 0
}

/// What a request was answered, and what is told beside it.
pub(super) struct Decided {
    pub(super) answer: Answer,
    explained: Option<Vec<Explained>>,
    pub(super) waits: Waits,
    /// How long it was worked on, nanoseconds.
    took_ns: u64,
}

impl Decided {
    /// The JSON of it. `denial`: the status under which a denial goes out as a problem document; None where a denial is
    /// an answer like any other.
    pub(super) fn document(&self, asked: &Asked<'_>, denial: Option<StatusCode>) -> Vec<u8> {
        document::answer(&self.answer, asked, self.waits, denial, self.explained.as_deref())
    }
}

impl App {
    /// A place among the requests that are worked on.
    pub(super) fn in_flight(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Problem> {
        let too_many =
            |_| Problem::unavailable(format_args!("{} requests are in flight already", super::MAX_IN_FLIGHT));
        self.in_flight.try_acquire().map_err(too_many)
    }

    /// The body of a request.
    pub(super) fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> impl Future<Output = Result<Bytes, Problem>> + Send + use<> {
        body::read(headers, body, self.service.settings.max_body, BODY_TIMEOUT)
    }

    /// Lets in whoever may do what needs the token.
    pub(super) fn authorise(&self, headers: &HeaderMap) -> Result<(), Problem> {
        authorise(headers, self.service.settings.token.as_deref())
    }

    /// Decides one request.
    pub(super) fn decide(&self, op: Op, asked: &Asked<'_>, explain: bool) -> Result<Decided, Problem> {
        let service = &self.service;
        let start_ns = service.clock.monotonic_ns();
        let now_ns = service.slot_clock.now(start_ns);
        let refused = |error: AskError| Problem::of(&error, asked.listed());
        let answer = self.ask(now_ns, op, asked).map_err(refused)?;
        if answer.urgent {
            service.urge.notify_one();
        }
        let explained =
            if explain { Some(self.explain(now_ns, asked, &answer.results).map_err(refused)?) } else { None };
        let waits = Waits::new(service.slot_clock.slewing());
        Ok(Decided { answer, explained, waits, took_ns: service.clock.monotonic_ns().saturating_sub(start_ns) })
    }

    /// Counts what was decided.
    pub(super) fn count(&self, op: Op, decided: &Decided) {
        if op == Op::Check {
            self.metrics.decided(&decided.answer, || self.service.engine.limits());
        }
        self.metrics.took(op, decided.took_ns);
    }

    fn ask(&self, now_ns: u64, op: Op, asked: &Asked<'_>) -> Result<Answer, AskError> {
        let engine = &self.service.engine;
        match asked {
            // By far the most common, and it needs no list of its own.
            Asked::One([spec]) => engine.decide(now_ns, op, &[spec.ask()]),
            Asked::Listed(specs) => engine.decide(now_ns, op, &specs.iter().map(AskSpec::ask).collect::<Vec<_>>()),
            Asked::Described(request, cost) => engine.decide_matching(now_ns, op, request, *cost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_lets_in() {
        let check = |value: Option<&'static str>, token| {
            let mut headers = HeaderMap::new();
            value.map(|value| headers.insert(AUTHORIZATION, HeaderValue::from_static(value)));
            authorise(&headers, token).is_ok()
        };
        assert!(check(None, None) && check(Some("Bearer x"), None));
        assert!(check(Some("Bearer secret"), Some("secret")) && check(Some("bearer secret"), Some("secret")));
        for wrong in [None, Some(""), Some("Bearer"), Some("Bearer "), Some("Bearer secreT"), Some("Bearer secret2")] {
            assert!(!check(wrong, Some("secret")), "{wrong:?}");
        }
        assert!(!check(Some("Basic secret"), Some("secret")));
    }
}
