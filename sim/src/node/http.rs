//! HTTP over turmoil's TCP: what axum listens on, and the client that the load uses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::Listener;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use turmoil::net::{TcpListener, TcpStream};

/// Where nodes serve their API.
pub const HTTP_PORT: u16 = 8080;
/// A connection that was idle for longer is not used again, as pools have it: the node will close it.
const MOST_IDLE: Duration = Duration::from_secs(60);
/// The largest answer a client reads, bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// A listener on a simulated host.
pub struct SimListener(TcpListener);

impl SimListener {
    /// Listens on `port` of the simulated host this is called on.
    pub async fn bind(port: u16) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(("0.0.0.0", port)).await?))
    }
}

impl Listener for SimListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        self.0.accept().await.expect("turmoil's accept waits, it does not fail")
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A client of a node's API, on one connection at a time.
#[derive(Debug)]
pub struct Client {
    host: String,
    /// And when it was used last.
    connection: Option<(SendRequest<Full<Bytes>>, Instant)>,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Client {
    /// Not connected yet.
    pub fn new(host: &str) -> Self {
        Self { host: host.to_owned(), connection: None }
    }

    /// Posts a JSON document and reads the answer.
    pub async fn post(&mut self, path: &str, json: String) -> anyhow::Result<Reply> {
        let request = Request::post(path)
            .header(HOST, "tidegate")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(json)))?;
        let mut sender = match self.connection.take() {
            Some((sender, used)) if used.elapsed() < MOST_IDLE => sender,
            _ => self.connect().await?,
        };
        sender.ready().await?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?;
        self.connection = Some((sender, Instant::now()));
        Ok(Reply { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect((self.host.as_str(), HTTP_PORT)).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the connection; its error reaches whoever waits for an answer.
        tokio::spawn(connection);
        Ok(sender)
    }
}
