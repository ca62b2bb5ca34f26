//! What is remembered and told of the peers, and how limits are compared.

use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::conn::Conn;
use super::lives::Newcomer;
use super::{ConnId, DUPLICATE_REPORTED_NS, Gossip, Now, PeerStatus};
use crate::codec::Hello;
use crate::id::{NodeName, ReplicaId};
use crate::limits::{Limit, LimitSet, LimitSpec};

/// The key of the hash by which definitions are compared: the same on every node of every version.
const DEFINITION_KEY: [u8; 16] = *b"tidegate limit 1";

/// A node that was connected at some time.
#[derive(Debug)]
pub(super) struct Peer {
    pub replica: ReplicaId,
    pub region: String,
    pub expected_nodes: u32,
    /// The connection that speaks for it.
    pub conn: Option<ConnId>,
    pub newcomer: Option<Newcomer>,
    /// It has sent everything that it had to send at some connect.
    pub caught_up: bool,
    /// What it had acknowledged when it was last connected.
    pub acked: u64,
    pub lost_at_mono_ns: u64,
    pub duplicate_at_mono_ns: Option<u64>,
    pub unreachable: bool,
    pub refused_ahead: u64,
    /// Names and hashes of its limits, once it told them.
    pub limits: Option<BTreeMap<String, u64>>,
    limits_differ: Vec<String>,
}

impl Peer {
    /// A peer that says hello for the first time.
    pub fn new(hello: &Hello) -> Self {
        Self {
            replica: hello.replica.clone(),
            region: hello.region.clone(),
            expected_nodes: hello.expected_nodes,
            conn: None,
            newcomer: None,
            caught_up: false,
            acked: 0,
            lost_at_mono_ns: 0,
            duplicate_at_mono_ns: None,
            unreachable: false,
            refused_ahead: 0,
            limits: None,
            limits_differ: Vec::new(),
        }
    }

    /// Finds the limits that differ.
    pub fn compare_limits(&mut self, ours: &Limits) {
        let Some(theirs) = &self.limits else { return };
        let here = ours.hashes.iter().filter(|(name, hash)| theirs.get(*name) != Some(*hash));
        let only_there = theirs.keys().filter(|name| !ours.hashes.contains_key(*name));
        self.limits_differ = here.map(|(name, _)| name).chain(only_there).cloned().collect();
        self.limits_differ.sort();
    }
}

/// This node's limits, as they are compared with those of others.
#[derive(Debug, Default)]
pub(super) struct Limits {
    hashes: BTreeMap<String, u64>,
    version: u64,
}

impl Limits {
    /// Takes over new definitions.
    pub fn set(&mut self, limits: &LimitSet) {
        let hashes = limits.iter().map(|limit| (limit.name.as_str().to_owned(), definition_hash(limit))).collect();
        if self.version == 0 || self.hashes != hashes {
            self.hashes = hashes;
            self.version += 1;
        }
    }

    /// Counts the changes; 0 before any limits were set.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What to tell a peer that was told the version `said`; None when that is still so.
    pub fn newer_than(&self, said: u64) -> Option<Vec<(String, u64)>> {
        let newer = self.version > said;
        newer.then(|| self.hashes.iter().map(|(name, hash)| (name.clone(), *hash)).collect())
    }
}

/// Equal for limits that decide alike, on every platform.
fn definition_hash(limit: &Limit) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&DEFINITION_KEY);
    hasher.write(LimitSpec::canonical(limit).as_bytes());
    hasher.finish()
}

impl Gossip {
    /// What is known of the peers.
    pub fn peers(&self, now: &Now) -> Vec<PeerStatus> {
        let status = |peer: &Peer| {
            let conn = peer.conn.and_then(|conn| self.conns.get(&conn));
            let upto_ns = self.have.upto_ns(&peer.replica);
            let recent = |at_mono_ns: u64| now.mono_ns.saturating_sub(at_mono_ns) <= DUPLICATE_REPORTED_NS;
            PeerStatus {
                replica: peer.replica.clone(),
                region: peer.region.clone(),
                connected: conn.is_some(),
                unreachable: peer.unreachable,
                lag_ns: upto_ns.map_or(u64::MAX, |upto_ns| now.slot_ns.saturating_sub(upto_ns)),
                backlog: self.have.seq(&self.own).saturating_sub(self.acked_by(peer)),
                limits_differ: peer.limits_differ.clone(),
                duplicate: peer.duplicate_at_mono_ns.is_some_and(recent),
                refused_ahead: peer.refused_ahead,
            }
        };
        self.peers.values().map(status).collect()
    }

    /// What a peer has acknowledged of this node's current life, or had when it was last connected.
    pub(super) fn acked_by(&self, peer: &Peer) -> u64 {
        let conn = peer.conn.and_then(|conn| self.conns.get(&conn));
        conn.map_or(peer.acked, Conn::acked)
    }

    /// A peer's clock is further away than can be worked with, or no longer is. It is reported, and nobody waits for it;
    /// what it sends is still taken as far as it is not in the future.
    pub fn set_unreachable(&mut self, name: &NodeName, unreachable: bool) {
        if let Some(peer) = self.peers.get_mut(name) {
            peer.unreachable = unreachable;
        }
    }

    /// M: the largest number of nodes expected by this node or a peer.
    pub fn expected_nodes(&self) -> u32 {
        self.peers.values().map(|peer| peer.expected_nodes).fold(self.settings.expected_nodes, u32::max)
    }

    /// M as `peer` and as this node has it configured, where the two differ.
    pub fn expected_otherwise(&self, peer: &NodeName) -> Option<(u32, u32)> {
        let (there, here) = (self.peers.get(peer)?.expected_nodes, self.settings.expected_nodes);
        (there != here).then_some((there, here))
    }

    /// N: nodes known, this one included; at least the seeds and this one.
    pub fn members(&self) -> u32 {
        let mut names: Vec<_> = self.have.nodes().chain(self.peers.keys()).chain([&self.own.node]).collect();
        names.sort();
        names.dedup();
        let known = u32::try_from(names.len()).unwrap_or(u32::MAX);
        known.max(self.settings.seeds.saturating_add(1))
    }

    /// Whether a peer has answered, and every one that did has completed what it sends at connect. Once so, it stays so.
    pub fn synced(&self) -> bool {
        self.synced
    }

    pub(super) fn look_whether_synced(&mut self) {
        let mut waited_for = self.peers.values().filter(|peer| !peer.unreachable).peekable();
        self.synced |= waited_for.peek().is_some() && waited_for.all(|peer| peer.caught_up);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn limit(change: impl Fn(&mut LimitSpec)) -> Limit {
        let mut spec =
            LimitSpec { name: "a".into(), limit: Some(5), window: Some("1s".into()), ..LimitSpec::default() };
        change(&mut spec);
        spec.check().unwrap()
    }

    #[test]
    fn definitions_are_equal_when_they_decide_alike() {
        let bucket = |burst| limit(|spec| (spec.algorithm, spec.burst) = (Some("token_bucket".into()), burst));
        assert_eq!(definition_hash(&bucket(None)), definition_hash(&bucket(Some(5))));
        let different = [
            limit(|_| {}),
            limit(|spec| spec.limit = Some(6)),
            limit(|spec| spec.window = Some("2s".into())),
            limit(|spec| spec.algorithm = Some("fixed_window".into())),
            limit(|spec| spec.max_keys = Some(5)),
            limit(|spec| spec.on_full = Some("deny".into())),
            limit(|spec| spec.on_full = Some("allow".into())),
            bucket(None),
            bucket(Some(6)),
        ];
        let hashes: BTreeSet<_> = different.iter().map(definition_hash).collect();
        assert_eq!(hashes.len(), different.len());
        // Never changes, whatever the platform: peers of other versions compare it.
        assert_eq!(definition_hash(&limit(|_| {})), 8_483_459_211_822_626_861);
    }
}
