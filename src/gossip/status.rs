//! What is remembered and told of the peers, and how limits are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::conn::Conn;
use super::lives::Newcomer;
use super::{ConnId, DUPLICATE_REPORTED_NS, Gossip, Now, PeerStatus};
use crate::codec::{Hello, LimitDigest};
use crate::id::{NodeName, ReplicaId};
use crate::limits::{Limit, LimitSet, LimitSpec};

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
    limits: Option<BTreeMap<String, u64>>,
    /// Those of its file.
    of_file: BTreeSet<String>,
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
            of_file: BTreeSet::new(),
            limits_differ: Vec::new(),
        }
    }

    /// It told its limits.
    pub fn take_limits(&mut self, limits: Vec<LimitDigest>, ours: &Limits) {
        let of_file = limits.iter().filter(|limit| limit.of_file).map(|limit| limit.name.clone());
        self.of_file = of_file.collect();
        self.limits = Some(limits.into_iter().map(|limit| (limit.name, limit.hash)).collect());
        self.compare_limits(ours);
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
    of_file: BTreeSet<String>,
    version: u64,
}

impl Limits {
    /// Takes over new definitions; `file`: those of them that this node's file has.
    pub fn set(&mut self, limits: &LimitSet, file: &LimitSet) {
        let named = |limit: &Arc<Limit>| (limit.name.as_str().to_owned(), LimitSpec::fingerprint(limit));
        let hashes = limits.iter().map(named).collect();
        let of_file = file.iter().map(|limit| limit.name.as_str().to_owned()).collect();
        if self.version == 0 || self.hashes != hashes || self.of_file != of_file {
            (self.hashes, self.of_file) = (hashes, of_file);
            self.version += 1;
        }
    }

    /// Counts the changes; 0 before any limits were set.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What to tell a peer that was told the version `said`; None when that is still so.
    pub fn newer_than(&self, said: u64) -> Option<Vec<LimitDigest>> {
        let digest = |(name, hash): (&String, &u64)| LimitDigest {
            name: name.clone(),
            hash: *hash,
            of_file: self.of_file.contains(name),
        };
        (self.version > said).then(|| self.hashes.iter().map(digest).collect())
    }
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

    /// A node whose file defines this limit: this node, or one that is or was connected.
    pub fn defined_in_file_of(&self, limit: &str) -> Option<&NodeName> {
        if self.limits.of_file.contains(limit) {
            return Some(&self.own.node);
        }
        self.peers.iter().find(|(_, peer)| peer.of_file.contains(limit)).map(|(name, _)| name)
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
