//! Which connection speaks for a node. There is one at a time; a second one of the same name waits while the old one is
//! asked whether it is alive, and takes its place when no answer comes in time.

use super::conn::{Conn, Standing};
use super::send::{Outbox, Source};
use super::status::Peer;
use super::{ConnId, Gossip, MAX_CONNS, MAX_PEERS, Now, PROBE_NS, Refusal};
use crate::codec::{CodecError, Hello};
use crate::engine::Engine;
use crate::id::{NodeName, ReplicaId};
use crate::planted::{self, PlantedBug};
use crate::time::MS;

/// Two connections of which the second comes within this time after the first were made at once: the longest round trips
/// are shorter, and a dial that is sent again is later. The sides may judge otherwise by as much as the way between them
/// takes: then one of them closes a connection, and the other goes on with the one that is left.
pub const AT_ONCE_NS: u64 = 400 * MS;

/// A connection that waits for the old one to answer or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    pub conn: ConnId,
    since_mono_ns: u64,
    /// It is of another life than the old one: both cannot be right.
    other_life: bool,
}

impl Gossip {
    /// A peer's first frame on a connection. `dialed`: this node made the connection. `vouched` says whether the peer's
    /// certificate bears a name. Afterwards [`Gossip::poll`] tells what to write. Returns the peer's name and the
    /// wall-clock stamp of its hello.
    pub fn accept(
        &mut self,
        conn: ConnId,
        dialed: bool,
        hello: &[u8],
        vouched: impl Fn(&NodeName) -> bool,
        now: &Now,
        engine: &Engine,
    ) -> Result<(NodeName, u64), Refusal> {
        let mut hello = self.check(hello, vouched)?;
        if planted::has(PlantedBug::AcksKept)
            && let Some(peer) = self.peers.get(&hello.replica.node)
            && let acked @ 1.. = self.acked_by(peer)
        {
            hello.have.retain(|(replica, _)| *replica != self.own);
            hello.have.push((self.own.clone(), acked));
        }
        let standing = self.seat(conn, dialed, &hello.replica, now)?;
        let name = hello.replica.node.clone();

        let (own, have) = (&self.own, &self.have);
        let from = Source {
            own,
            have,
            ring: &self.ring,
            limits: &self.limits,
            definitions: &self.definitions,
            sync_free: false,
        };
        let out = Outbox::new(&hello.have, &from, now);
        let held = hello.have.iter().find(|(replica, _)| replica == own);
        // More than there is was heard of a clone; its chunks will tell.
        let acked = held.map_or(0, |(_, seq)| (*seq).min(have.seq(own)));
        self.conns.insert(conn, Conn::new(hello.replica.clone(), dialed, standing.clone(), out, acked, now));

        let peer = self.peers.entry(name.clone()).or_insert_with(|| Peer::new(&hello));
        peer.region = hello.region;
        peer.expected_nodes = hello.expected_nodes;
        if standing == Standing::Active {
            self.give_seat(&name, conn);
        }
        engine.set_members(self.members());
        engine.set_expected_nodes(self.expected_nodes());
        Ok((name, hello.stamp_ns))
    }

    /// What must hold of a hello by itself.
    fn check(&self, hello: &[u8], vouched: impl Fn(&NodeName) -> bool) -> Result<Hello, Refusal> {
        let hello = Hello::decode(hello).map_err(|error| match error {
            CodecError::Version { ours, theirs, .. } => Refusal::Version { ours, theirs },
            other => Refusal::Malformed(other.to_string()),
        })?;
        let name = &hello.replica.node;
        if hello.cluster != self.settings.cluster {
            return Err(Refusal::Cluster);
        }
        if !vouched(name) {
            return Err(Refusal::Certificate(name.clone()));
        }
        if *name == self.own.node {
            return Err(Refusal::OwnName(name.clone()));
        }
        Ok(hello)
    }

    /// Whether a new connection may speak for its node at once.
    fn seat(&mut self, conn: ConnId, dialed: bool, life: &ReplicaId, now: &Now) -> Result<Standing, Refusal> {
        if self.conns.len() >= MAX_CONNS || self.conns.contains_key(&conn) {
            return Err(Refusal::Full { what: "connections", most: MAX_CONNS });
        }
        let name = &life.node;
        if !self.peers.contains_key(name) {
            self.make_room_for_a_peer()?;
        }
        let Some(peer) = self.peers.get_mut(name) else { return Ok(Standing::Active) };
        if peer.newcomer.is_some() {
            return Err(Refusal::AlreadyConnected(name.clone()));
        }
        let Some(old) = peer.conn.and_then(|old| self.conns.get_mut(&old)) else { return Ok(Standing::Active) };
        let same_life = old.peer == *life;
        // Made at once, one by each side. A dial may also have been on its way for seconds, while the other side's got
        // through: what is under way on that connection would have to be sent again.
        let at_once = old.dialed != dialed && now.mono_ns.saturating_sub(old.made_mono_ns) < AT_ONCE_NS;
        if same_life && at_once && dialed_by_the_smaller(&self.own.node, name, dialed) {
            return Ok(Standing::Active);
        }
        self.last_token += 1;
        old.probe(self.last_token);
        peer.newcomer = Some(Newcomer { conn, since_mono_ns: now.mono_ns, other_life: !same_life });
        Ok(Standing::Waiting)
    }

    /// Forgets the peer that was lost first when there are as many as may be.
    fn make_room_for_a_peer(&mut self) -> Result<(), Refusal> {
        if self.peers.len() < MAX_PEERS {
            return Ok(());
        }
        let lost = self.peers.iter().filter(|(_, peer)| peer.conn.is_none());
        let gone = lost.min_by_key(|(_, peer)| peer.lost_at_mono_ns).map(|(name, _)| name.clone());
        let gone = gone.ok_or(Refusal::Full { what: "peers", most: MAX_PEERS })?;
        self.peers.remove(&gone);
        Ok(())
    }

    /// From now on `conn` speaks for the node; the old connection is to be closed.
    fn give_seat(&mut self, name: &NodeName, conn: ConnId) {
        let (Some(peer), Some(new)) = (self.peers.get_mut(name), self.conns.get_mut(&conn)) else { return };
        new.standing = Standing::Active;
        peer.replica = new.peer.clone();
        peer.newcomer = None;
        let old = peer.conn.replace(conn);
        if let Some(old) = old.and_then(|old| self.conns.get_mut(&old)) {
            old.close(Refusal::Replaced);
        }
    }

    /// The old connection of `name` answered: a newcomer is not let in.
    pub(super) fn old_one_lives(&mut self, name: &NodeName, now: &Now) {
        let Some(peer) = self.peers.get_mut(name) else { return };
        let Some(newcomer) = peer.newcomer.take() else { return };
        let why = if newcomer.other_life {
            peer.duplicate_at_mono_ns = Some(now.mono_ns);
            Refusal::Duplicate(name.clone())
        } else {
            Refusal::AlreadyConnected(name.clone())
        };
        if let Some(conn) = self.conns.get_mut(&newcomer.conn) {
            conn.close(why);
        }
    }

    /// Newcomers whose old connection did not answer take its place.
    pub(super) fn settle_newcomers(&mut self, now: &Now) {
        let overdue = |newcomer: &Newcomer| now.mono_ns.saturating_sub(newcomer.since_mono_ns) >= PROBE_NS;
        let waiting = self
            .peers
            .iter()
            .filter_map(|(name, peer)| peer.newcomer.filter(overdue).map(|newcomer| (name.clone(), newcomer.conn)));
        for (name, conn) in waiting.collect::<Vec<_>>() {
            self.give_seat(&name, conn);
        }
    }

    /// The connection is gone.
    pub fn closed(&mut self, conn: ConnId, now: &Now) {
        let Some(gone) = self.conns.remove(&conn) else { return };
        let name = gone.peer.node.clone();
        let Some(peer) = self.peers.get_mut(&name) else { return };
        if peer.newcomer.is_some_and(|newcomer| newcomer.conn == conn) {
            peer.newcomer = None;
        }
        if peer.conn == Some(conn) {
            peer.conn = None;
            peer.acked = gone.acked();
            peer.lost_at_mono_ns = now.mono_ns;
            if let Some(newcomer) = peer.newcomer {
                self.give_seat(&name, newcomer.conn);
            }
        }
    }
}

/// Of two connections that were made at once, one by each side, the one stays that the smaller name dialed.
fn dialed_by_the_smaller(own: &NodeName, peer: &NodeName, dialed: bool) -> bool {
    dialed == (own < peer)
}
