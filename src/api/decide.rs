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
    let denial = settle(&app, op, &head);
    let body = app.read(&head.headers, body);
    async move {
        let denial = denial?;
        let _in_flight = app.in_flight()?;
        let body = body.await?;
        let asked = Asked::parse(&body)?;
        app.answer(op, &asked, denial)
    }
}

/// What the head alone decides: whether the request is let in, and the status of a denied check.
fn settle(app: &App, op: Op, head: &Parts) -> Result<Option<StatusCode>, Problem> {
    if matches!(op, Op::Debit | Op::Refund | Op::Reset) {
        authorise(&head.headers, app.service.settings.token.as_deref())?;
    }
    denial(app, op, &Query::read(&head.uri, if op == Op::Check { &["denied"] } else { &[] })?)
}

/// The status of a denied check; None for the operations whose every answer is 200.
fn denial(app: &App, op: Op, query: &Query) -> Result<Option<StatusCode>, Problem> {
    match (op, query.value("denied")) {
        (Op::Check, None) => Ok(Some(app.denied)),
        (Op::Check, Some(status)) => match status.parse().ok().and_then(denied_status) {
            Some(status) => Ok(Some(status)),
            None => Err(Problem::bad_request("the query parameter `denied` is 200 or a status from 400 to 499")),
        },
        _ => Ok(None),
    }
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

    fn answer(&self, op: Op, asked: &Asked<'_>, denial: Option<StatusCode>) -> Result<Response, Problem> {
        let service = &self.service;
        let start_ns = service.clock.monotonic_ns();
        let answer = self.ask(service.slot_clock.now(start_ns), op, asked.specs());
        let answer = answer.map_err(|error| Problem::of(&error, asked.listed()))?;
        if answer.urgent {
            service.urge.notify_one();
        }
        let waits = Waits::new(service.slot_clock.slewing());
        let denial = denial.filter(|_| !answer.allowed);

        let mut response = Response::new(Body::from(document::answer(&answer, asked.specs(), waits, denial)));
        *response.status_mut() = denial.unwrap_or(StatusCode::OK);
        headers::add(response.headers_mut(), &answer, waits);
        response.headers_mut().insert(CONTENT_TYPE, if denial.is_some() { PROBLEM_JSON } else { JSON });

        if op == Op::Check {
            self.metrics.decided(&answer, || service.engine.limits());
        }
        self.metrics.took(op, service.clock.monotonic_ns().saturating_sub(start_ns));
        Ok(response)
    }

    fn ask(&self, now_ns: u64, op: Op, specs: &[AskSpec<'_>]) -> Result<Answer, AskError> {
        match specs {
            // By far the most common, and it needs no list of its own.
            [spec] => self.service.engine.decide(now_ns, op, &[spec.ask()]),
            specs => self.service.engine.decide(now_ns, op, &specs.iter().map(AskSpec::ask).collect::<Vec<_>>()),
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
