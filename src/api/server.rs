//! Serving the routes on a listener: HTTP/1.1, and no connection that costs a file descriptor for ever.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;

/// How long a connection may take to send the head of a request, from when it is opened or the last answer was sent.
/// Longer than what clients' pools keep an idle connection (90 s in Go and in hyper), so that they, not this side, close
/// it: a request sent into a closing connection fails.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves until `stopping` is done and the requests in flight are answered. A connection that has not sent the head of a
/// request `within` this time is closed.
pub async fn serve<L: Listener>(mut listener: L, router: Router, stopping: impl Future<Output = ()>, within: Duration) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(within);
    let connections = GracefulShutdown::new();
    let mut stopping = pin!(stopping);
    loop {
        let (stream, _) = tokio::select! {
            biased;
            () = &mut stopping => break,
            accepted = listener.accept() => accepted,
        };
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // Who hung up, was too slow or spoke no HTTP is not this node's trouble.
            let _ = connection.await;
        });
    }
    drop(listener);
    connections.shutdown().await;
}
