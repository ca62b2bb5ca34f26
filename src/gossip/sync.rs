//! State instead of chunks, for a peer that is new or lags behind the ring: the sender's own `have` as a claim, read
//! before the first cell; live cells, marks and bases; the end, at which the claim holds for the receiver.
//!
//! Chunks go on meanwhile, from claim+1. The receiver remembers their run, gapless only, and joins it at the end.

use std::collections::{BTreeMap, VecDeque};

use super::Now;
use super::have::HaveTable;
use crate::codec::{Chunk, Frame};
use crate::engine::{Engine, ExportCursor};
use crate::id::ReplicaId;

/// Looks at the engine for one frame. A table in which little is of the replicas that are asked for would else be walked
/// through as a whole while everybody waits.
const LOOKS_A_FRAME: usize = 8;

/// A state that is being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    sync: u64,
    /// None: everything.
    of: Option<Vec<ReplicaId>>,
    begun: bool,
    /// None: everything was looked at.
    cursor: Option<ExportCursor>,
    /// Pieces of the last look.
    ready: VecDeque<Vec<u8>>,
    /// For a claim that comes too late.
    #[cfg(feature = "planted")]
    collected_at_mono_ns: Option<u64>,
}

/// What comes next of a state.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A frame.
    Frame(Frame),
    /// Nothing was found yet: look again.
    NotYet,
    /// The last frame.
    Last(Frame),
}

impl Outgoing {
    /// The state of `of`, or of everything.
    pub fn new(sync: u64, of: Option<Vec<ReplicaId>>) -> Self {
        Self {
            sync,
            of,
            begun: false,
            cursor: Some(ExportCursor::default()),
            ready: VecDeque::new(),
            #[cfg(feature = "planted")]
            collected_at_mono_ns: None,
        }
    }

    /// The next frame. The first one claims what this node holds now, before the first cell: what is taken in later may
    /// belong to a part of the state that was sent already.
    pub fn next(&mut self, have: &HaveTable, now: &Now, engine: &Engine) -> Piece {
        let sync = self.sync;
        if !std::mem::replace(&mut self.begun, true) {
            let mut claims = have.list();
            if let Some(of) = &self.of {
                claims.retain(|(replica, _)| of.contains(replica));
            }
            return Piece::Frame(Frame::StateBegin { sync, claims });
        }
        for _ in 0..LOOKS_A_FRAME {
            if let Some(chunk) = self.ready.pop_front() {
                return Piece::Frame(Frame::State { sync, chunk });
            }
            let Some(cursor) = self.cursor else { return Piece::Last(Frame::StateEnd { sync }) };
            self.look(cursor, now, engine);
        }
        Piece::NotYet
    }

    fn look(&mut self, from: ExportCursor, now: &Now, engine: &Engine) {
        let export = engine.export(now.slot_ns, from, self.of.as_deref());
        self.cursor = export.next;
        self.ready.extend(export.parts.into_iter().map(|(replica, part)| {
            let (stamp_ns, expires_ns) = (now.wall_ns, part.expires_ns);
            Chunk { replica, seq: 0, stamp_ns, complete_to_ns: 0, expires_ns, groups: part.groups }.encode()
        }));
    }

    /// Collects all cells. True for a second after that, in which nothing may be claimed yet.
    #[cfg(feature = "planted")]
    pub fn claims_late(&mut self, now: &Now, engine: &Engine) -> bool {
        while let Some(cursor) = self.cursor {
            self.look(cursor, now, engine);
        }
        let collected_at_mono_ns = *self.collected_at_mono_ns.get_or_insert(now.mono_ns);
        now.mono_ns.saturating_sub(collected_at_mono_ns) < crate::time::SECOND
    }
}

/// What is known of a replica while its state arrives.
#[derive(Debug)]
struct Claim {
    /// The claim, and after it the chunks that came without a gap.
    run: u64,
    /// When the last cell seen of it expires.
    expires_ns: u64,
}

/// A state that is arriving.
#[derive(Debug)]
pub(super) struct Incoming {
    pub sync: u64,
    claims: BTreeMap<ReplicaId, Claim>,
    /// Something was refused: whatever the peer claims, this node does not hold it.
    unsound: bool,
}

impl Incoming {
    /// A state begins.
    pub fn new(sync: u64, claims: Vec<(ReplicaId, u64)>) -> Self {
        let claims = claims.into_iter().map(|(replica, run)| (replica, Claim { run, expires_ns: 0 })).collect();
        Self { sync, claims, unsound: false }
    }

    /// A piece was taken in, in part only when `refused`.
    pub fn piece(&mut self, replica: &ReplicaId, expires_ns: u64, refused: bool) {
        self.unsound |= refused;
        if let Some(claim) = self.claims.get_mut(replica) {
            claim.expires_ns = claim.expires_ns.max(expires_ns);
        }
    }

    /// A chunk was taken in whole. Its seq is not 0.
    pub fn chunk(&mut self, replica: &ReplicaId, seq: u64, expires_ns: u64) {
        if let Some(claim) = self.claims.get_mut(replica).filter(|claim| seq - 1 == claim.run) {
            claim.run = seq;
            claim.expires_ns = claim.expires_ns.max(expires_ns);
        }
    }

    /// The state has ended: (replica, everything up to which seq, when the last of that expires).
    pub fn end(self) -> impl Iterator<Item = (ReplicaId, u64, u64)> {
        let sound = if self.unsound { BTreeMap::new() } else { self.claims };
        sound.into_iter().map(|(replica, claim)| (replica, claim.run, claim.expires_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeName;

    fn replica(name: &str) -> ReplicaId {
        ReplicaId { node: NodeName::new(name).unwrap(), generation: 1, nonce: 1 }
    }

    #[test]
    fn runs_are_joined_without_gaps_only() {
        let (a, b) = (replica("a"), replica("b"));
        let mut incoming = Incoming::new(1, vec![(a.clone(), 10), (b.clone(), 3)]);
        for seq in [11, 12, 14, 15] {
            incoming.chunk(&a, seq, 100 + seq);
        }
        incoming.chunk(&b, 5, 100);
        incoming.piece(&b, 70, false);
        assert_eq!(incoming.end().collect::<Vec<_>>(), vec![(a, 12, 112), (b, 3, 70)]);
    }

    #[test]
    fn what_was_refused_in_part_claims_nothing() {
        let mut incoming = Incoming::new(1, vec![(replica("a"), 10)]);
        incoming.piece(&replica("c"), 70, true);
        assert_eq!(incoming.end().count(), 0);
    }
}
