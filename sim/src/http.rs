//! HTTP over turmoil's TCP: what axum listens on, and the client that the load uses.

use std::io;
use std::net::SocketAddr;

use axum::serve::Listener;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use turmoil::net::{TcpListener, TcpStream};

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

/// One connection to a node's API.
#[derive(Debug)]
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
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
    /// Connects to `port` of `host`.
    pub async fn connect(host: &str, port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect((host, port)).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the connection; its error reaches whoever waits for an answer.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Posts a JSON document and reads the answer.
    pub async fn post(&mut self, path: &str, json: String) -> anyhow::Result<Reply> {
        let request = Request::post(path)
            .header(HOST, "tidegate")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(json)))?;
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?;
        Ok(Reply { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}
