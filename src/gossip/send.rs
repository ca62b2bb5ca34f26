//! What is written next on a connection. Nothing is queued for a peer: there are cursors into the ring, and a frame is
//! made when the connection can take one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::conn::{Conn, Standing};
use super::have::HaveTable;
use super::ring::Ring;
use super::status::Limits;
use super::sync::{Outgoing, Piece};
use super::{ConnId, Gossip, HAVE_EVERY_NS, MAX_SYNCS, Next, Now, Refusal};
use crate::codec::{Frame, MAX_DEFINITIONS};
use crate::crdt::{Registry, Written};
use crate::engine::Engine;
use crate::id::ReplicaId;
#[cfg(feature = "planted")]
use crate::planted::{self, PlantedBug};

/// After so many flushes a beat no longer waits until all chunks are sent: acknowledgements must not starve.
const BEATS_THAT_WAIT: u32 = 2;

/// Names and definitions in one frame, unless a single one is larger: with stamps it stays below the largest frame.
const DEFINITIONS_BYTES: usize = 256 * 1024;

/// Where a peer stands with one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    /// The next seq to send.
    next: u64,
    /// What it lacked at the connect ends here.
    goal: u64,
    /// A life of this node: goes on for ever. Others end at the goal.
    follows: bool,
}

/// What is to be sent on one connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Flushes since the last beat.
    pub beats_due: u32,
    cursors: BTreeMap<ReplicaId, Cursor>,
    /// Whose chunk went last: the next one's turn is after it.
    served: Option<ReplicaId>,
    /// Whose chunks the ring lacks: their state is to be sent.
    wanted: BTreeSet<ReplicaId>,
    /// The peer is new: everything is to be sent.
    wants_all: bool,
    outgoing: Option<Outgoing>,
    syncs: u64,
    /// State and the rest take turns.
    state_went: bool,
    have_said: u64,
    have_said_at_mono_ns: u64,
    limits_said: u64,
    definitions_said: u64,
    caught_up_said: bool,
}

/// What a node sends from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub own: &'a ReplicaId,
    pub have: &'a HaveTable,
    pub ring: &'a Ring,
    pub limits: &'a Limits,
    pub definitions: &'a Registry,
    /// Whether another state may begin.
    pub sync_free: bool,
}

impl Gossip {
    /// What to write next. At most one frame of at most [`crate::codec::MAX_FRAME_BYTES`]; nothing is queued here beyond
    /// the ring.
    pub fn poll(&mut self, conn: ConnId, now: &Now, engine: &Engine) -> Next {
        let sync_free = self.conns.values().filter(|conn| conn.out.outgoing.is_some()).count() < MAX_SYNCS;
        let Some(conn) = self.conns.get_mut(&conn) else {
            return Next::Close(Refusal::Malformed("it was not accepted".into()));
        };
        match &conn.standing {
            Standing::Closing(why) => return Next::Close(why.clone()),
            Standing::Waiting => return Next::Idle,
            Standing::Active => {}
        }
        let from = Source {
            own: &self.own,
            have: &self.have,
            ring: &self.ring,
            limits: &self.limits,
            definitions: &self.definitions,
            sync_free,
        };
        match conn.next_frame(&from, now, engine) {
            Some(frame) => Next::Frame(frame.encode()),
            None => Next::Idle,
        }
    }
}

impl Conn {
    fn next_frame(&mut self, from: &Source<'_>, now: &Now, engine: &Engine) -> Option<Frame> {
        if let Some(token) = self.next_pong() {
            return Some(Frame::Pong(token));
        }
        if let Some(token) = self.next_ping() {
            return Some(Frame::Ping(token));
        }
        self.out.follow_own_lives(from);
        self.out.next(&self.peer, from, now, engine)
    }
}

impl Outbox {
    /// What a peer with this `have` lacks.
    pub fn new(have: &[(ReplicaId, u64)], from: &Source<'_>, now: &Now) -> Self {
        let theirs: BTreeMap<_, _> = have.iter().map(|(replica, seq)| (replica, *seq)).collect();
        let ours = from.have.list();
        let mut out = Self { have_said_at_mono_ns: now.mono_ns, ..Self::default() };
        // To a peer that shares nothing with this node chunks would not do: what was dropped before lives in bases only.
        out.wants_all = !ours.is_empty() && !ours.iter().any(|(replica, _)| theirs.contains_key(replica));
        for (replica, seq) in &ours {
            let held = theirs.get(replica).copied().unwrap_or(0);
            let follows = replica.node == from.own.node;
            if follows && out.wants_all {
                out.follow(replica, *seq, *seq);
            } else if follows {
                // A peer that claims more of the current life than there is has heard a clone of this process.
                let held = if replica == from.own { held.min(*seq) } else { held };
                out.follow(replica, held, *seq);
            } else if held < *seq && !out.wants_all {
                out.cursors.insert(replica.clone(), Cursor { next: held + 1, goal: *seq, follows });
            }
        }
        let unknown = have.iter().filter(|(replica, _)| replica.node == from.own.node && !from.have.knows(replica));
        for (replica, seq) in unknown {
            out.follow(replica, *seq, 0);
        }
        out
    }

    fn follow(&mut self, replica: &ReplicaId, held: u64, goal: u64) {
        let next = held.saturating_add(1);
        self.cursors.insert(replica.clone(), Cursor { next, goal, follows: true });
    }

    /// Lives of this node that came to be known after the connect.
    fn follow_own_lives(&mut self, from: &Source<'_>) {
        for life in from.have.lives(&from.own.node) {
            if !self.cursors.contains_key(life) {
                self.follow(life, 0, 0);
            }
        }
    }

    /// The last seq of `replica` that was sent as a chunk and is not claimed by a state still on its way.
    pub fn chunks_sent(&self, replica: &ReplicaId) -> Option<u64> {
        let state_on_its_way = self.outgoing.is_some() || self.wants_all || self.wanted.contains(replica);
        let cursor = self.cursors.get(replica).filter(|_| !state_on_its_way)?;
        Some(cursor.next - 1)
    }

    /// The peer turned out to hold no more than `held`: chunks go on from there, or state where the ring is too short.
    pub fn send_again(&mut self, replica: &ReplicaId, held: u64) {
        if let Some(cursor) = self.cursors.get_mut(replica) {
            cursor.next = cursor.next.min(held.saturating_add(1));
        }
    }

    /// The peer has heard this much from others: it need not be sent.
    pub fn skip_to(&mut self, replica: &ReplicaId, held: u64, from: &Source<'_>) {
        let held = if replica == from.own { held.min(from.have.seq(from.own)) } else { held };
        if let Some(cursor) = self.cursors.get_mut(replica) {
            cursor.next = cursor.next.max(held.saturating_add(1));
        }
        if held >= from.have.seq(replica) {
            self.wanted.remove(replica);
        }
    }

    /// Deltas must not wait behind a state, nor a state behind deltas: they take turns.
    fn next(&mut self, peer: &ReplicaId, from: &Source<'_>, now: &Now, engine: &Engine) -> Option<Frame> {
        self.begin_state(from);
        if !std::mem::take(&mut self.state_went)
            && let Some(frame) = self.next_state(peer, from, now, engine)
        {
            self.state_went = true;
            return Some(frame);
        }
        self.next_delta(peer, from, now).or_else(|| {
            // The search for a chunk may just have found out that state is wanted.
            self.begin_state(from);
            self.next_state(peer, from, now, engine)
        })
    }

    fn next_delta(&mut self, peer: &ReplicaId, from: &Source<'_>, now: &Now) -> Option<Frame> {
        if self.beats_due > BEATS_THAT_WAIT {
            return Some(self.beat(peer, from, now));
        }
        if let Some(limits) = from.limits.newer_than(self.limits_said) {
            self.limits_said = from.limits.version();
            return Some(Frame::Limits(limits));
        }
        if let Some(definitions) = self.next_definitions(from.definitions) {
            return Some(Frame::Definitions(definitions));
        }
        let have_due = now.mono_ns.saturating_sub(self.have_said_at_mono_ns) >= HAVE_EVERY_NS;
        if have_due && from.have.moves_after(self.have_said) {
            let (moved, said) = from.have.moved_since(self.have_said);
            (self.have_said, self.have_said_at_mono_ns) = (said, now.mono_ns);
            return Some(Frame::Have(moved));
        }
        if let Some(chunk) = self.next_chunk(from) {
            return Some(Frame::Chunk(chunk));
        }
        if self.beats_due > 0 {
            return Some(self.beat(peer, from, now));
        }
        if !self.caught_up_said && self.caught_up() {
            self.caught_up_said = true;
            return Some(Frame::CaughtUp);
        }
        None
    }

    /// What came to be known since the peer was last told, as much as goes into a frame. Before chunks: what they count
    /// is counted under it.
    fn next_definitions(&mut self, from: &Registry) -> Option<Vec<(String, Written)>> {
        let (mut some, mut bytes) = (Vec::new(), 0);
        for (version, name, written) in from.since(self.definitions_said) {
            bytes += name.len() + written.value.as_ref().map_or(0, |value| value.len());
            if some.len() == MAX_DEFINITIONS || (!some.is_empty() && bytes > DEFINITIONS_BYTES) {
                break;
            }
            self.definitions_said = version;
            some.push((name.to_owned(), written.clone()));
        }
        (!some.is_empty()).then_some(some)
    }

    fn beat(&mut self, peer: &ReplicaId, from: &Source<'_>, now: &Now) -> Frame {
        self.beats_due = 0;
        Frame::Beat {
            stamp_ns: now.wall_ns,
            seq: from.have.seq(from.own),
            complete_to_ns: from.have.upto_ns(from.own).unwrap_or(0),
            ack: from.have.seq(peer),
        }
    }

    /// The next chunk of the replica whose turn it is. Where the ring is too short, state is wanted instead.
    fn next_chunk(&mut self, from: &Source<'_>) -> Option<Vec<u8>> {
        while let Some(replica) = self.whose_turn(from) {
            self.served = Some(replica.clone());
            let cursor = self.cursors.get_mut(&replica)?;
            let chunk = from.ring.chunk(&replica, cursor.next).map(<[u8]>::to_vec);
            if chunk.is_some() {
                cursor.next += 1;
            } else {
                // Chunks that are made while the state waits for its turn go on at once: merging them does no harm.
                cursor.next = from.have.seq(&replica).max(cursor.goal) + 1;
                self.wanted.insert(replica.clone());
            }
            if !cursor.follows && cursor.next > cursor.goal {
                self.cursors.remove(&replica);
            }
            if chunk.is_some() {
                return chunk;
            }
        }
        None
    }

    fn whose_turn(&self, from: &Source<'_>) -> Option<ReplicaId> {
        let behind = |(replica, cursor): &(&ReplicaId, &Cursor)| {
            cursor.next <= if cursor.follows { from.have.seq(replica) } else { cursor.goal }
        };
        let after = match &self.served {
            Some(served) => (Excluded(served), Unbounded),
            None => (Unbounded, Unbounded),
        };
        let mut turns = self.cursors.range::<ReplicaId, _>(after).chain(&self.cursors);
        turns.find(behind).map(|(replica, _)| replica.clone())
    }

    fn begin_state(&mut self, from: &Source<'_>) {
        let wanted = self.wants_all || !self.wanted.is_empty();
        if !wanted || self.outgoing.is_some() || !from.sync_free {
            return;
        }
        self.syncs += 1;
        let wanted = std::mem::take(&mut self.wanted);
        let of = (!std::mem::take(&mut self.wants_all)).then(|| wanted.into_iter().collect());
        self.outgoing = Some(Outgoing::new(self.syncs, of));
    }

    fn next_state(&mut self, peer: &ReplicaId, from: &Source<'_>, now: &Now, engine: &Engine) -> Option<Frame> {
        let outgoing = self.outgoing.as_mut()?;
        #[cfg(feature = "planted")]
        if planted::has(PlantedBug::ClaimAtEnd) && outgoing.claims_late(now, engine) {
            return None;
        }
        match outgoing.next(from.have, now, engine) {
            Piece::Frame(frame) => Some(frame),
            Piece::Last(frame) => {
                self.outgoing = None;
                Some(frame)
            }
            // A frame that does no harm, so that the writer comes again and others get a turn at the lock.
            Piece::NotYet => Some(self.beat(peer, from, now)),
        }
    }

    /// Whether everything was sent that the peer lacked at the connect.
    fn caught_up(&self) -> bool {
        let state = self.wants_all || !self.wanted.is_empty() || self.outgoing.is_some();
        !state && self.cursors.values().all(|cursor| cursor.next > cursor.goal)
    }
}
