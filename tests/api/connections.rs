//! Connections: slow ones are closed, a stop waits for requests and not for idle ones.

use std::time::Duration;

use tidegate::api::{HEAD_TIMEOUT, router, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::server::{service, settings};

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(30);

const HEAD: &str = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n";
const BODY: &str = "{\"limit\":\"hourly\",\"key\":\"k\"}";

/// A server whose connections have a head `within` this time.
struct Running {
    listener: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(within: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        let addr = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, router(service(settings()).0), stopped, within));
        Self { listener: addr, stop, task }
    }

    /// A connection on which `sent` was written.
    async fn connect(&self, sent: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.listener).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream
    }
}

/// Reads one answer, which has a body of a few hundred bytes; its status line.
async fn status(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    while !answer.ends_with('}') {
        let mut bytes = [0; 4096];
        let many = timeout(DEADLINE, stream.read(&mut bytes)).await.expect("an answer").unwrap();
        assert_ne!(many, 0, "closed after {answer:?}");
        answer.push_str(std::str::from_utf8(&bytes[..many]).unwrap());
    }
    answer.lines().next().unwrap().to_owned()
}

/// Waits until the other side closes without a word.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("the connection is closed");
    assert_eq!(String::from_utf8_lossy(&rest), "");
}

#[tokio::test]
async fn who_sends_no_head_is_closed() {
    let server = Running::start(Duration::from_millis(50)).await;
    for begun in ["", "P", "POST /v1/check HTTP/1.1\r\nHost: a\r\nX-Slow: "] {
        closed(&mut server.connect(begun).await).await;
    }
    // One that was answered and then is silent.
    let mut idle = server.connect(&format!("{HEAD}{BODY}")).await;
    assert_eq!(status(&mut idle).await, "HTTP/1.1 200 OK");
    closed(&mut idle).await;
}

#[tokio::test]
async fn a_body_may_take_longer_than_a_head() {
    let within = Duration::from_millis(50);
    let server = Running::start(within).await;
    let mut slow = server.connect(HEAD).await;
    // The silent one was opened later and is closed: the time has passed.
    closed(&mut server.connect("").await).await;
    slow.write_all(BODY.as_bytes()).await.unwrap();
    assert_eq!(status(&mut slow).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_stop_answers_what_is_in_flight_and_closes_what_is_idle() {
    let server = Running::start(HEAD_TIMEOUT).await;
    let mut silent = server.connect("").await;
    let mut idle = server.connect(&format!("{HEAD}{BODY}")).await;
    assert_eq!(status(&mut idle).await, "HTTP/1.1 200 OK");
    let mut in_flight = server.connect(&HEAD.replace("Host: a", "Host: a\r\nExpect: 100-continue")).await;
    let mut go_on = [0; 25];
    in_flight.read_exact(&mut go_on).await.unwrap();

    server.stop.send(()).unwrap();
    closed(&mut silent).await;
    closed(&mut idle).await;
    assert!(!server.task.is_finished(), "a request is in flight");
    in_flight.write_all(BODY.as_bytes()).await.unwrap();
    assert_eq!(status(&mut in_flight).await, "HTTP/1.1 200 OK");
    timeout(DEADLINE, server.task).await.expect("the server ends").unwrap();
    assert!(TcpStream::connect(server.listener).await.is_err(), "nobody listens any more");
}
