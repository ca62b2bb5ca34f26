//! One connection: who is at its other end, whether it is the one that counts, and whether what was sent arrives.

use std::collections::VecDeque;

use super::send::Outbox;
use super::sync::Incoming;
use super::{Now, Refusal};
use crate::id::ReplicaId;
use crate::planted::{self, PlantedBug};
use crate::time::SECOND;

/// For how long an acknowledgement may stand still before the peer is asked whether it has all that was sent.
const STALL_NS: u64 = 2 * SECOND;
/// What that grows to while sending again does not help (the peer refuses what it is sent).
const MAX_STALL_NS: u64 = 60 * SECOND;
/// Answers to pings that may be owed; the oldest go first.
const MAX_PONGS: usize = 4;

/// What a connection is good for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It is the connection of its node.
    Active,
    /// The node has another one, which is being asked whether it is alive.
    Waiting,
    /// To be closed.
    Closing(Refusal),
}

/// A ping on its way.
#[derive(Clone, Copy, Debug)]
struct Ping {
    token: u64,
    sent: bool,
    /// For a ping that asks whether everything has arrived: the cursor when it was asked.
    fence: Option<u64>,
    answered: bool,
}

/// How far the peer has acknowledged the chunks of this node's current life.
#[derive(Clone, Copy, Debug)]
struct Acked {
    seq: u64,
    /// Since when it stands still although there is more.
    since_mono_ns: u64,
    patience_ns: u64,
}

/// A connection whose hello was accepted.
#[derive(Debug)]
pub(super) struct Conn {
    /// Which life of which node is at the other end.
    pub peer: ReplicaId,
    /// Whether this node made the connection.
    pub dialed: bool,
    /// When it was accepted.
    pub made_mono_ns: u64,
    pub standing: Standing,
    pub out: Outbox,
    /// The state that is arriving.
    pub incoming: Option<Incoming>,
    pongs: VecDeque<u64>,
    ping: Option<Ping>,
    acked: Acked,
}

impl Conn {
    /// `acked` is what the hello said the peer holds of this node's current life.
    pub fn new(peer: ReplicaId, dialed: bool, standing: Standing, out: Outbox, acked: u64, now: &Now) -> Self {
        let acked = Acked { seq: acked, since_mono_ns: now.mono_ns, patience_ns: STALL_NS };
        let made_mono_ns = now.mono_ns;
        Self { peer, dialed, made_mono_ns, standing, out, incoming: None, pongs: VecDeque::new(), ping: None, acked }
    }

    /// From now on the connection is only there to be closed; the first reason stays.
    pub fn close(&mut self, why: Refusal) {
        if !matches!(self.standing, Standing::Closing(_)) {
            self.standing = Standing::Closing(why);
        }
    }

    /// The last seq of this node's current life that the peer has acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked.seq
    }

    /// A ping came, which is to be answered.
    pub fn owe_pong(&mut self, token: u64) {
        if self.pongs.len() >= MAX_PONGS {
            self.pongs.pop_front();
        }
        self.pongs.push_back(token);
    }

    /// The answer to send.
    pub fn next_pong(&mut self) -> Option<u64> {
        self.pongs.pop_front()
    }

    /// The ping to send.
    pub fn next_ping(&mut self) -> Option<u64> {
        let ping = self.ping.as_mut().filter(|ping| !ping.sent)?;
        ping.sent = true;
        Some(ping.token)
    }

    /// Asks whether the peer is alive. Only the answer to the last ping counts.
    pub fn probe(&mut self, token: u64) {
        self.ping = Some(Ping { token, sent: false, fence: None, answered: false });
    }

    /// A pong came. Whether it answers the last ping.
    pub fn take_pong(&mut self, token: u64) -> bool {
        let Some(ping) = self.ping.as_mut().filter(|ping| ping.token == token && ping.sent) else { return false };
        ping.answered = true;
        if ping.fence.is_none() {
            self.ping = None;
        }
        true
    }

    /// Asks the peer for a pong when its acknowledgements stand still. The stream is ordered: once the pong is there the
    /// peer has seen all that was sent before the ping, and what its next beat then does not acknowledge it has not.
    pub fn notice_stall(&mut self, own: &ReplicaId, last_token: &mut u64, now: &Now) {
        let Some(cursor) = self.out.chunks_sent(own).filter(|sent| *sent > self.acked.seq) else {
            self.acked.since_mono_ns = now.mono_ns;
            return;
        };
        let still_ns = now.mono_ns.saturating_sub(self.acked.since_mono_ns);
        if self.ping.is_none() && still_ns >= self.acked.patience_ns {
            *last_token += 1;
            self.ping = Some(Ping { token: *last_token, sent: false, fence: Some(cursor), answered: false });
        }
    }

    /// A beat acknowledged `seq` of this node's current life.
    pub fn take_ack(&mut self, own: &ReplicaId, seq: u64, now: &Now) {
        let seq = if planted::has(PlantedBug::AcksKept) { seq.max(self.acked.seq) } else { seq };
        let risen = seq > self.acked.seq;
        self.acked.seq = seq;
        let fenced = self.ping.filter(|ping| ping.answered).and_then(|ping| ping.fence);
        if risen {
            self.acked = Acked { seq, since_mono_ns: now.mono_ns, patience_ns: STALL_NS };
        } else if fenced.is_some_and(|sent| sent > seq) {
            self.out.send_again(own, seq);
            self.acked.since_mono_ns = now.mono_ns;
            self.acked.patience_ns = (2 * self.acked.patience_ns).min(MAX_STALL_NS);
        }
        if fenced.is_some() {
            self.ping = None;
        }
    }
}
