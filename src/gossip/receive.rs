//! What an arriving frame comes to.

use super::conn::Standing;
use super::send::Source;
use super::sync::Incoming;
use super::{ConnId, Gossip, Now, Received, Record, Refusal};
use crate::codec::{Chunk, CodecError, Frame};
use crate::engine::{Engine, Merge};
use crate::id::{NodeName, ReplicaId};
use crate::planted::{self, PlantedBug};

impl Gossip {
    /// Any frame after the hello. An error means: close the connection.
    pub fn receive(&mut self, conn: ConnId, frame: &[u8], now: &Now, engine: &Engine) -> Result<Received, Refusal> {
        let standing = self.conns.get(&conn).map(|conn| &conn.standing);
        match standing {
            None => return Err(malformed("a frame on a connection that was not accepted")),
            Some(Standing::Closing(why)) => return Err(why.clone()),
            // What a newcomer tells is true whichever of the two stays: it was really spent.
            Some(Standing::Active | Standing::Waiting) => {}
        }
        let frame = Frame::decode(frame).map_err(damaged)?;
        match frame {
            Frame::Chunk(bytes) => self.take_chunk(conn, bytes, now, engine),
            Frame::StateBegin { sync, claims } => self.begin_state(conn, sync, claims),
            Frame::State { sync, chunk } => self.take_piece(conn, sync, chunk, now, engine),
            Frame::StateEnd { sync } => self.end_state(conn, sync),
            Frame::Beat { stamp_ns, seq, complete_to_ns, ack } => {
                self.take_beat(conn, seq, complete_to_ns, ack, now);
                Ok(Received { stamp_ns: Some(stamp_ns), ..Received::default() })
            }
            Frame::Have(have) => {
                self.take_have(conn, &have);
                Ok(Received::default())
            }
            Frame::Limits(limits) => {
                let name = self.name_of(conn);
                if let Some(peer) = name.and_then(|name| self.peers.get_mut(&name)) {
                    peer.take_limits(limits, &self.limits);
                }
                Ok(Received::default())
            }
            Frame::Definitions(definitions) => Ok(self.take_definitions(&definitions)),
            Frame::CaughtUp => {
                let name = self.name_of(conn);
                if let Some(peer) = name.and_then(|name| self.peers.get_mut(&name)) {
                    peer.caught_up = true;
                }
                self.look_whether_synced();
                Ok(Received::default())
            }
            Frame::Ping(token) => {
                self.conns.entry(conn).and_modify(|conn| conn.owe_pong(token));
                Ok(Received { wake: true, ..Received::default() })
            }
            Frame::Pong(token) => {
                let answers = self.conns.get_mut(&conn).is_some_and(|conn| conn.take_pong(token));
                if let Some(name) = self.name_of(conn).filter(|_| answers) {
                    self.old_one_lives(&name, now);
                }
                Ok(Received { wake: answers, ..Received::default() })
            }
        }
    }

    fn name_of(&self, conn: ConnId) -> Option<NodeName> {
        self.conns.get(&conn).map(|conn| conn.peer.node.clone())
    }

    /// Values may always be merged; what is then held moves by the next seq only.
    fn take_chunk(&mut self, conn: ConnId, bytes: Vec<u8>, now: &Now, engine: &Engine) -> Result<Received, Refusal> {
        let chunk = Chunk::decode(&bytes).map_err(damaged)?;
        if chunk.seq == 0 {
            return Err(malformed("a chunk without a seq"));
        }
        let Some(merge) = self.merge(conn, &chunk, now, engine) else { return Ok(Received::default()) };
        if chunk.replica == self.own {
            return Ok(Received { own_above: merge.own_above, ..Received::default() });
        }
        let mut moved = false;
        if merge.refused == 0 {
            let (replica, seq, expires_ns) = (&chunk.replica, chunk.seq, chunk.expires_ns);
            if let Some(incoming) = self.conns.get_mut(&conn).and_then(|conn| conn.incoming.as_mut()) {
                incoming.chunk(replica, seq, expires_ns);
            }
            let follows = seq - 1 == self.have.seq(replica) || planted::has(PlantedBug::AckOverGap);
            moved = follows && self.have.advance(replica, seq, expires_ns);
            self.have.complete(replica, seq, chunk.complete_to_ns);
            self.ring.insert(replica, seq, &bytes);
        }
        let keep = moved || merge.changed > 0;
        let records = if keep { vec![Record { expires_ns: chunk.expires_ns, bytes }] } else { Vec::new() };
        // Other peers follow this node's own lives.
        let wake = moved && chunk.replica.node == self.own.node;
        Ok(Received { records, wake, ..Received::default() })
    }

    /// None when the chunk is too far in the future: then nothing of it was taken, and it is not acknowledged.
    fn merge(&mut self, conn: ConnId, chunk: &Chunk, now: &Now, engine: &Engine) -> Option<Merge> {
        let merge = engine.merge(now.slot_ns, &chunk.replica, &chunk.groups);
        let name = self.name_of(conn);
        let peer = name.and_then(|name| self.peers.get_mut(&name))?;
        match merge {
            Ok(merge) if planted::has(PlantedBug::DroppedAcked) => Some(Merge { refused: 0, ..merge }),
            Ok(merge) => Some(merge),
            Err(_) => {
                peer.refused_ahead += 1;
                planted::has(PlantedBug::DroppedAcked).then(Merge::default)
            }
        }
    }

    fn begin_state(&mut self, conn: ConnId, sync: u64, claims: Vec<(ReplicaId, u64)>) -> Result<Received, Refusal> {
        let conn = self.conns.get_mut(&conn).filter(|conn| conn.incoming.is_none());
        let conn = conn.ok_or_else(|| malformed("a state within a state"))?;
        conn.incoming = Some(Incoming::new(sync, claims));
        Ok(Received::default())
    }

    fn take_piece(
        &mut self,
        conn: ConnId,
        sync: u64,
        bytes: Vec<u8>,
        now: &Now,
        engine: &Engine,
    ) -> Result<Received, Refusal> {
        let chunk = Chunk::decode(&bytes).map_err(damaged)?;
        if chunk.seq != 0 {
            return Err(malformed("a piece of state with a seq"));
        }
        if self.incoming(conn, sync).is_none() {
            return Err(malformed("a piece of a state that did not begin"));
        }
        let merge = self.merge(conn, &chunk, now, engine);
        let refused = merge.is_none_or(|merge| merge.refused > 0);
        if let Some(incoming) = self.incoming(conn, sync) {
            incoming.piece(&chunk.replica, chunk.expires_ns, refused);
        }
        let Some(merge) = merge else { return Ok(Received::default()) };
        let records = match merge.changed {
            0 => Vec::new(),
            _ => vec![Record { expires_ns: chunk.expires_ns, bytes }],
        };
        Ok(Received { records, own_above: merge.own_above, ..Received::default() })
    }

    fn incoming(&mut self, conn: ConnId, sync: u64) -> Option<&mut Incoming> {
        self.conns.get_mut(&conn)?.incoming.as_mut().filter(|incoming| incoming.sync == sync)
    }

    /// Now, and only now, what the sender claimed holds for this node.
    fn end_state(&mut self, conn: ConnId, sync: u64) -> Result<Received, Refusal> {
        if self.incoming(conn, sync).is_none() {
            return Err(malformed("the end of a state that did not begin"));
        }
        let ended = self.conns.get_mut(&conn).and_then(|conn| conn.incoming.take());
        let mut wake = false;
        for (replica, seq, expires_ns) in ended.into_iter().flat_map(Incoming::end) {
            // A replica of which nothing is alive is not entered again once it was forgotten.
            let lives = expires_ns > 0 || self.have.knows(&replica) || self.is_connected(&replica);
            if replica != self.own && lives {
                wake |= self.have.advance(&replica, seq, expires_ns) && replica.node == self.own.node;
            }
        }
        Ok(Received { wake, ..Received::default() })
    }

    fn is_connected(&self, replica: &ReplicaId) -> bool {
        self.conns.values().any(|conn| conn.peer == *replica)
    }

    fn take_beat(&mut self, conn: ConnId, seq: u64, complete_to_ns: u64, ack: u64, now: &Now) {
        let Some(conn) = self.conns.get_mut(&conn) else { return };
        if planted::has(PlantedBug::BeatBelieved) {
            self.have.advance(&conn.peer, seq, 0);
        }
        self.have.complete(&conn.peer, seq, complete_to_ns);
        conn.take_ack(&self.own, ack.min(self.have.seq(&self.own)), now);
    }

    fn take_have(&mut self, conn: ConnId, have: &[(ReplicaId, u64)]) {
        let Some(conn) = self.conns.get_mut(&conn) else { return };
        let from = Source {
            own: &self.own,
            have: &self.have,
            ring: &self.ring,
            limits: &self.limits,
            definitions: &self.definitions,
            sync_free: false,
        };
        for (replica, seq) in have {
            conn.out.skip_to(replica, *seq, &from);
        }
    }
}

fn malformed(what: &str) -> Refusal {
    Refusal::Malformed(what.to_owned())
}

fn damaged(error: CodecError) -> Refusal {
    Refusal::Malformed(error.to_string())
}
