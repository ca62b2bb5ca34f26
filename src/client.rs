//! A small HTTP client for a node's own API: `status`, the demo and tests use it. Plain HTTP/1.1, connections kept alive.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// How long a request may take, its answer included, unless [`Client::with_timeout`] says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest answer that is read, bytes.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Connections to one node that are kept for the next request.
const MAX_IDLE: usize = 256;

/// Talks to one node. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
    authority: Authority,
    timeout: Duration,
    authorization: Option<HeaderValue>,
}

/// What a node answered.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not an address of a node.
    #[error("{url:?} is no address of a node: write e.g. \"http://127.0.0.1:8080\"")]
    Url {
        /// What was given.
        url: String,
    },
    /// Nothing that can be sent.
    #[error("the request cannot be sent: {0}")]
    Request(String),
    /// Nobody answers there, or the connection broke.
    #[error("{url}: {problem}")]
    Connection {
        /// The node.
        url: String,
        /// What happened.
        problem: String,
    },
    /// No answer in time.
    #[error("{url}: no answer within {} ms", .after.as_millis())]
    Timeout {
        /// The node.
        url: String,
        /// How long was waited.
        after: Duration,
    },
    /// More than [`MAX_ANSWER_BYTES`].
    #[error("{url}: the answer has more than {MAX_ANSWER_BYTES} bytes")]
    TooLarge {
        /// The node.
        url: String,
    },
    /// The body is not what was asked for.
    #[error("the answer is not the JSON expected: {0}")]
    Json(#[from] serde_json::Error),
}

impl Response {
    /// The body as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, ClientError> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// A header as text; None when it is not there, or not once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
    }
}

impl Client {
    /// A client for the node at `http://host:port`.
    pub fn new(base_url: &str) -> Result<Self, ClientError> {
        let wrong = || ClientError::Url { url: base_url.to_owned() };
        let uri: Uri = base_url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let authority = uri.authority().cloned().ok_or_else(wrong)?;
        if uri.scheme() != Some(&Scheme::HTTP) || uri.path() != "/" || uri.query().is_some() {
            return Err(wrong());
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Pool::builder(TokioExecutor::new()).pool_max_idle_per_host(MAX_IDLE).build(connector);
        Ok(Self { pool, authority, timeout: TIMEOUT, authorization: None })
    }

    /// Waits this long for an answer.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends a bearer token with every request.
    pub fn with_token(mut self, token: &str) -> Result<Self, ClientError> {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| ClientError::Request("the token has characters no header takes".into()))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }

    /// `GET path`; the path begins with `/` and may have a query.
    pub async fn get(&self, path: &str) -> Result<Response, ClientError> {
        self.send(Method::GET, path, HeaderMap::new(), Bytes::new()).await
    }

    /// `POST path` with a JSON body.
    pub async fn post_json(&self, path: &str, body: &Value) -> Result<Response, ClientError> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        self.send(Method::POST, path, headers, body.to_string().into()).await
    }

    /// Any request.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, ClientError> {
        let unsendable = |problem: axum::http::Error| ClientError::Request(problem.to_string());
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.authority.clone()).path_and_query(path).build();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.map_err(unsendable)?;
        *request.headers_mut() = headers;
        request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("application/json, */*"));
        if let Some(authorization) = &self.authorization {
            request.headers_mut().entry(AUTHORIZATION).or_insert_with(|| authorization.clone());
        }
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Timeout { url: self.url(), after: self.timeout }),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response, ClientError> {
        let broken = |problem| ClientError::Connection { url: self.url(), problem };
        let answer = self.pool.request(request).await.map_err(|error| broken(with_causes(&error)))?;
        let (head, body) = answer.into_parts();
        match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
            Ok(body) => Ok(Response { status: head.status, headers: head.headers, body: body.to_bytes() }),
            Err(error) if error.is::<LengthLimitError>() => Err(ClientError::TooLarge { url: self.url() }),
            Err(error) => Err(broken(with_causes(&*error))),
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.authority)
    }
}

/// The error and what it came from: hyper's own words are only "client error".
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_nodes() {
        for good in ["http://127.0.0.1:8080", "http://127.0.0.1:8080/", "http://[::1]:1", "http://localhost"] {
            assert!(Client::new(good).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1:8080", "https://127.0.0.1:8080", "http://a/b", "http://a?b", "unix:/a"] {
            assert!(Client::new(bad).is_err(), "{bad}");
        }
    }
}
