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
use crate::engine::Op;
use crate::engine::spec::{self, AskSpec, Object};

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

/// What a body asks: one check, or a list.
pub(super) enum Asked<'a> {
    /// `{"limit":..,"key":..,"cost":..}`.
    One([AskSpec<'a>; 1]),
    /// `{"checks":[..]}`.
    Listed(Vec<AskSpec<'a>>),
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

    /// All of it.
    pub(super) fn specs(&self) -> &[AskSpec<'a>] {
        match self {
            Self::One(spec) => spec,
            Self::Listed(specs) => specs,
        }
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
}

impl<'a> Written<'a> {
    /// What it asks, if it is one of the forms.
    pub(super) fn form(self) -> Result<Asked<'a>, &'static str> {
        match self {
            Self { limit: Some(limit), key: Some(key), cost, checks: None, .. } => {
                Ok(Asked::One([AskSpec { limit, key, cost: cost.unwrap_or(1) }]))
            }
            Self { limit: None, key: None, cost: None, checks: Some(checks), .. } => Ok(Asked::Listed(checks)),
            Self { checks: Some(_), .. } => {
                Err("both `checks` and `limit`, `key` or `cost`: a request is either one check or a list")
            }
            Self { limit: None, key: None, .. } => Err("neither `limit` and `key` nor `checks`"),
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
