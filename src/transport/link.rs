//! One connection: the hellos, then frames in both directions until one side ends it.
//!
//! A frame is its length, four bytes little-endian, and its bytes. The dialer opens the one stream and says hello first;
//! the other side answers when it has read that, and so not before the dialer's certificate was verified.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connecting, Connection, Incoming, ReadExactError, RecvStream, SendStream};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Shared;
use super::close::End;
use super::tls::valid_for;
use super::window::least_rtt;
use crate::codec::MAX_FRAME_BYTES;
use crate::gossip::{ConnId, Next};
use crate::id::NodeName;

/// A TLS handshake is given up after this time.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// After the TLS handshake, the peer's hello must be there within this time.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// After so many frames a direction lets the other one have its turn.
const FRAMES_PER_TURN: u32 = 16;

/// A connection that the hub accepted.
pub(super) struct Link {
    accepted: Accepted,
    conn: Connection,
    send: SendStream,
    recv: RecvStream,
}

/// Tells the hub of the end: once, however the connection's task ends.
struct Accepted {
    shared: Arc<Shared>,
    id: ConnId,
    name: NodeName,
    why: String,
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.shared.hub.closed(self.id, &self.why);
        self.shared.ended.send_modify(|count| *count += 1);
    }
}

impl Link {
    /// Completes a connection that this node makes.
    pub(super) async fn dial(shared: &Arc<Shared>, connecting: Connecting) -> Result<Self, End> {
        let handshake = timeout(HANDSHAKE_TIMEOUT, connecting).await;
        let conn = handshake.map_err(|_| End::NoAnswer(HANDSHAKE_TIMEOUT))??;
        let greeting = timeout(HELLO_TIMEOUT, greet(shared, conn.clone())).await;
        introduced(shared, &conn, greeting.unwrap_or(Err(End::NoHello(HELLO_TIMEOUT))))
    }

    /// Completes a connection that a peer makes.
    pub(super) async fn answer(shared: &Arc<Shared>, incoming: Incoming) -> Result<Self, End> {
        let handshake = timeout(HANDSHAKE_TIMEOUT, incoming.into_future()).await;
        let conn = handshake.map_err(|_| End::NoAnswer(HANDSHAKE_TIMEOUT))??;
        let greeting = timeout(HELLO_TIMEOUT, greet_back(shared, conn.clone())).await;
        introduced(shared, &conn, greeting.unwrap_or(Err(End::NoHello(HELLO_TIMEOUT))))
    }

    /// The peer.
    pub(super) fn name(&self) -> &NodeName {
        &self.accepted.name
    }

    /// Carries frames until the end.
    pub(super) async fn run(mut self) {
        let (shared, id) = (self.accepted.shared.clone(), self.accepted.id);
        let mut end = tokio::select! {
            biased;
            end = read(&shared, id, &self.conn, &mut self.recv) => end,
            end = write(&shared, id, &self.conn, &mut self.send) => end,
        };
        if *shared.stopping.borrow() && matches!(end, End::Lost(_)) {
            end = End::Stopping;
        }
        self.conn.close(end.code(), &end.reason(&shared.own));
        self.accepted.why = end.to_string();
        if end.duplicate() {
            shared.reject(self.conn.remote_address(), &self.accepted.why);
        }
        if end.outlived() {
            shared.hub.outlived(&self.accepted.name);
        }
    }
}

/// A peer that is not accepted is told why.
fn introduced(shared: &Shared, conn: &Connection, greeting: Result<Link, End>) -> Result<Link, End> {
    if let Err(end) = &greeting {
        conn.close(end.code(), &end.reason(&shared.own));
    }
    greeting
}

async fn greet(shared: &Arc<Shared>, conn: Connection) -> Result<Link, End> {
    let (mut send, mut recv) = conn.open_bi().await?;
    write_frame(&mut send, shared.hub.hello()).await?;
    let hello = read_hello(&mut recv).await?;
    let accepted = accept(shared, &conn, true, &hello)?;
    Ok(Link { accepted, conn, send, recv })
}

async fn greet_back(shared: &Arc<Shared>, conn: Connection) -> Result<Link, End> {
    let (mut send, mut recv) = conn.accept_bi().await?;
    let hello = read_hello(&mut recv).await?;
    let accepted = accept(shared, &conn, false, &hello)?;
    write_frame(&mut send, shared.hub.hello()).await?;
    Ok(Link { accepted, conn, send, recv })
}

/// Asks the hub about a peer's hello.
fn accept(shared: &Arc<Shared>, conn: &Connection, dialed: bool, hello: &[u8]) -> Result<Accepted, End> {
    let certificates = conn.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let leaf = certificates.and_then(|all| all.into_iter().next());
    let vouched = |name: &NodeName| leaf.as_ref().is_some_and(|leaf| valid_for(leaf, name.as_str()));
    let id = shared.next_conn();
    let name = shared.hub.accept(id, dialed, hello, &vouched, rtt_ns(conn))?;
    Ok(Accepted { shared: shared.clone(), id, name, why: "its task was cut off".to_owned() })
}

async fn read(shared: &Shared, id: ConnId, conn: &Connection, recv: &mut RecvStream) -> End {
    let mut frame = Vec::new();
    loop {
        for _ in 0..FRAMES_PER_TURN {
            match read_frame(recv, &mut frame).await {
                Ok(true) => {}
                Ok(false) => return End::Finished,
                Err(end) => return end,
            }
            if let Err(refusal) = shared.hub.receive(id, &frame, rtt_ns(conn)) {
                return End::Refused(refusal);
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Fetches the next frame only when the last one is written: what a slow peer has not taken waits in the hub, where it
/// is one copy for all peers, and not here.
async fn write(shared: &Shared, id: ConnId, conn: &Connection, send: &mut SendStream) -> End {
    let (mut changes, mut stopping) = (shared.hub.changes(), shared.stopping.subscribe());
    loop {
        for _ in 0..FRAMES_PER_TURN {
            // Seen before polling, so that what changes in between wakes this task.
            changes.mark_unchanged();
            match shared.hub.poll(id) {
                Next::Frame(frame) => {
                    if let Err(end) = write_frame(send, frame).await {
                        return end;
                    }
                }
                Next::Close(refusal) => return End::Refused(refusal),
                Next::Idle if *stopping.borrow_and_update() => return finish(conn, send).await,
                Next::Idle => {
                    if let Err(end) = changed(&mut changes, &mut stopping).await {
                        return end;
                    }
                }
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until there may be something to send or to stop.
async fn changed(changes: &mut watch::Receiver<u64>, stopping: &mut watch::Receiver<bool>) -> Result<(), End> {
    let wake = tokio::select! {
        biased;
        wake = stopping.changed() => wake,
        wake = changes.changed() => wake,
    };
    wake.map_err(|_| End::Orphaned)
}

/// All is said: the peer reads it to the end and closes the connection then. Closing it here would throw away what is
/// still under way.
async fn finish(conn: &Connection, send: &mut SendStream) -> End {
    // It can only fail when the stream or the connection is gone, and then there is nothing to wait for.
    let _ = send.finish();
    End::Lost(conn.closed().await)
}

async fn write_frame(send: &mut SendStream, frame: Vec<u8>) -> Result<(), End> {
    if frame.len() > MAX_FRAME_BYTES {
        return Err(End::TooLarge { len: frame.len() });
    }
    let len = (frame.len() as u32).to_le_bytes();
    Ok(send.write_all_chunks(&mut [Bytes::copy_from_slice(&len), Bytes::from(frame)]).await?)
}

async fn read_hello(recv: &mut RecvStream) -> Result<Vec<u8>, End> {
    let mut hello = Vec::new();
    if read_frame(recv, &mut hello).await? { Ok(hello) } else { Err(End::Cut) }
}

/// Reads one frame into `frame`. False: the stream ended before it.
async fn read_frame(recv: &mut RecvStream, frame: &mut Vec<u8>) -> Result<bool, End> {
    let mut len = [0u8; 4];
    match recv.read_exact(&mut len).await {
        Err(ReadExactError::FinishedEarly(0)) => return Ok(false),
        read => read?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_FRAME_BYTES {
        return Err(End::TooLarge { len });
    }
    frame.resize(len, 0);
    recv.read_exact(frame).await?;
    Ok(true)
}

fn rtt_ns(conn: &Connection) -> u64 {
    u64::try_from(least_rtt(conn).as_nanos()).unwrap_or(u64::MAX)
}
