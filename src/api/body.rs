//! Request bodies: read with a bound, then parsed into what they ask.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::Deserializer;

use super::problem::Problem;
use crate::engine::spec::{self, AskSpec, Object};
use crate::engine::{Ask, AskError, Op, Outcome};
use crate::limits::Descriptors;

/// How long the body of a request may take to arrive.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a JSON body of at most `most` bytes that arrives `within` a time.
pub(super) fn read(
    headers: &HeaderMap,
    body: Body,
    most: usize,
    within: Duration,
) -> impl Future<Output = Result<Bytes, Problem>> + Send + use<> {
    let expected = expect(headers, &body, most);
    async move {
        expected?;
        collect(body, most, within).await
    }
}

/// Refuses what the head says is no such body.
fn expect(headers: &HeaderMap, body: &Body, most: usize) -> Result<(), Problem> {
    let essence = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).and_then(|v| v.split(';').next());
    // Beside saying what is expected this keeps web pages from posting to loopback: they may not send this type unasked.
    if !essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json")) {
        let problem = "the body must be JSON: send `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem));
    }
    if headers.contains_key(CONTENT_ENCODING) {
        let problem = "no `Content-Encoding` is known: send the JSON as it is";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem));
    }
    if body.size_hint().lower() > most as u64 { Err(too_large(most)) } else { Ok(()) }
}

fn too_large(most: usize) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format_args!("a body has at most {most} bytes"))
}

async fn collect(body: Body, most: usize, within: Duration) -> Result<Bytes, Problem> {
    let collected = tokio::time::timeout(within, Limited::new(body, most).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(most)),
        Ok(Err(error)) => Err(Problem::bad_request(format_args!("the body did not arrive whole: {error}"))),
        Err(_) => {
            let problem = format!("the body did not arrive within {} ms", within.as_millis());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, problem))
        }
    }
}

/// What a body asks: one check, a list, or whatever limits are for it.
pub(super) enum Asked<'a> {
    /// `{"limit":..,"key":..,"cost":..}`.
    One([AskSpec<'a>; 1]),
    /// `{"checks":[..]}`.
    Listed(Vec<AskSpec<'a>>),
    /// `{"descriptors":{..},"cost":..}`.
    Described(Descriptors<'a>, u32),
}

impl<'a> Asked<'a> {
    /// Parses a body.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let written = parse::<Written<'a>>(body)?;
        if written.op.is_some() {
            return Err(Problem::bad_request("`op` is for the requests of a batch: here the path says what is asked"));
        }
        written.form().map_err(Problem::bad_request)
    }

    /// The parts that it names; none when it only says what it is.
    pub(super) fn specs(&self) -> &[AskSpec<'a>] {
        match self {
            Self::One(spec) => spec,
            Self::Listed(specs) => specs,
            Self::Described(..) => &[],
        }
    }

    /// Whether it can be decided at all, whatever limits there are.
    pub(super) fn well_formed(&self) -> Result<(), AskError> {
        match self {
            Self::Described(..) => Ok(()),
            Self::One(_) | Self::Listed(_) => {
                let specs = self.specs();
                Ask::right_count(specs.len())?;
                specs.iter().enumerate().try_for_each(|(index, spec)| spec.ask().well_formed(index))
            }
        }
    }

    /// The key that the result `index` was counted under.
    pub(super) fn key<'b>(&'b self, index: usize, outcome: &'b Outcome) -> &'b str {
        let named = || self.specs().get(index).map_or("", |spec| &*spec.key);
        outcome.counted_as.as_deref().unwrap_or_else(named)
    }

    /// Whether it was a list.
    pub(super) fn listed(&self) -> bool {
        matches!(self, Self::Listed(_))
    }
}

/// Parses a JSON object; the error names the field.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice::<Object<T>>(body).map(|object| object.0).map_err(Problem::bad_request)
}

/// All forms at once, before it is known which it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written<'a> {
    /// What is to be done: in a batch only.
    #[serde(default, deserialize_with = "op")]
    pub(super) op: Option<Op>,
    #[serde(borrow, default, deserialize_with = "limit")]
    limit: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "key")]
    key: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "cost")]
    cost: Option<u32>,
    #[serde(borrow, default, deserialize_with = "checks")]
    checks: Option<Vec<AskSpec<'a>>>,
    #[serde(borrow, default, deserialize_with = "descriptors")]
    descriptors: Option<Descriptors<'a>>,
}

impl<'a> Written<'a> {
    /// What it asks, if it is one of the forms.
    pub(super) fn form(self) -> Result<Asked<'a>, &'static str> {
        match self {
            Self { limit: Some(limit), key: Some(key), cost, checks: None, descriptors: None, .. } => {
                Ok(Asked::One([AskSpec { limit, key, cost: cost.unwrap_or(1) }]))
            }
            Self { limit: None, key: None, cost: None, checks: Some(checks), descriptors: None, .. } => {
                Ok(Asked::Listed(checks))
            }
            Self { limit: None, key: None, cost, checks: None, descriptors: Some(descriptors), .. } => {
                Ok(Asked::Described(descriptors, cost.unwrap_or(1)))
            }
            Self { checks: Some(_), descriptors: None, .. } => {
                Err("both `checks` and `limit`, `key` or `cost`: a request is either one check or a list")
            }
            Self { descriptors: Some(_), .. } => {
                Err("`descriptors` and `checks`, `limit` or `key`: a request either names limits or says what it is")
            }
            Self { limit: None, key: None, .. } => Err("neither `limit` and `key` nor `checks` nor `descriptors`"),
            Self { limit: None, .. } => Err("missing field `limit`"),
            Self { key: None, .. } => Err("missing field `key`"),
        }
    }
}

fn op<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Op>, D::Error> {
    spec::op(from).map(Some)
}

fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    spec::limit(from).map(Some)
}

fn key<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    spec::key(from).map(Some)
}

fn cost<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    spec::cost(from).map(Some)
}

fn checks<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<AskSpec<'de>>>, D::Error> {
    spec::checks(from).map(Some)
}

fn descriptors<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Descriptors<'de>>, D::Error> {
    spec::descriptors(from).map(Some)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::http::HeaderValue;
    use axum::response::IntoResponse;

    use super::*;

    /// A body that never comes.
    struct Never;

    impl HttpBody for Never {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_body_that_never_comes_is_not_waited_for() {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let problem = read(&headers, Body::new(Never), 100, Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(problem.into_response().status(), StatusCode::REQUEST_TIMEOUT);
    }
}
