//! What a node tells of itself and its cluster.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::shared::Shared;
use crate::api::{Figures, LimitDifference, Member, NodeView};
use crate::gossip::{DUPLICATE_REPORTED_NS, PeerStatus};
use crate::id::{NodeName, ReplicaId};
use crate::time::{MS, SECOND};

impl Shared {
    fn peers(&self) -> Vec<PeerStatus> {
        self.core.lock().gossip.peers(&self.now())
    }

    fn member(&self, peer: PeerStatus) -> Member {
        let name = &peer.replica.node;
        let rtt_ns = self.links.lock().values().find(|link| link.peer == *name).map(|link| link.rtt_ns);
        let state = match (peer.connected, self.slot_clock.beyond_skew(name)) {
            (true, true) => "clock_beyond_skew",
            (true, false) => "connected",
            (false, _) => "unreachable",
        };
        Member {
            name: name.as_str().to_owned(),
            region: peer.region.clone(),
            generation: peer.replica.generation,
            state,
            rtt_ms: rtt_ns.filter(|ns| *ns > 0).map(|ns| ns.div_ceil(MS)),
            lag_ms: lag_ms(&peer),
            clock_offset_ms: self.slot_clock.offset_of(name).map(|ns| ns / MS as i64),
            backlog: peer.backlog,
        }
    }
}

/// None while nothing complete was heard of it.
fn lag_ms(peer: &PeerStatus) -> Option<u64> {
    (peer.lag_ns != u64::MAX).then(|| peer.lag_ns.div_ceil(MS))
}

impl NodeView for Shared {
    fn members(&self) -> Vec<Member> {
        let own = self.engine.own();
        let this = Member {
            name: own.node.as_str().to_owned(),
            region: self.region.clone(),
            generation: own.generation,
            state: "self",
            rtt_ms: None,
            lag_ms: Some(0),
            clock_offset_ms: Some(0),
            backlog: 0,
        };
        let peers = self.peers().into_iter().map(|peer| self.member(peer));
        std::iter::once(this).chain(peers).collect()
    }

    fn limits_differ(&self) -> Vec<LimitDifference> {
        let mut by_limit: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for peer in self.peers() {
            for limit in peer.limits_differ {
                by_limit.entry(limit).or_default().push(peer.replica.node.as_str().to_owned());
            }
        }
        by_limit.into_iter().map(|(limit, nodes)| LimitDifference { limit, nodes }).collect()
    }

    fn degraded(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        reasons.extend(self.journal.degraded().map(|why| format!("the journal does not store: {why}")));
        reasons.extend(self.config_problem.lock().clone());
        if self.damaged > 0 {
            reasons.push(format!("{} damaged records of the journal were skipped at the start", self.damaged));
        }
        {
            let core = self.core.lock();
            reasons.extend(core.definitions.problems());
            let refused = core.gossip.definitions_refused();
            if refused > 0 {
                reasons.push(format!("no room for limits made at run time elsewhere: {refused} were not taken"));
            }
        }
        let expires_s = self.certificate_expires_s.load(Ordering::Relaxed);
        if expires_s > 0 && (self.clock.system_ns() / SECOND) as i64 >= expires_s {
            reasons.push("this node's certificate has expired: peers refuse it".to_owned());
        }
        for seed in self.silent_seeds.lock().iter() {
            reasons.push(format!("the seed {seed} has not answered since the start"));
        }
        for peer in self.peers().into_iter().filter(|peer| peer.duplicate) {
            let name = &peer.replica.node;
            reasons.push(format!("a second process calls itself {name}; it is refused while the first one answers"));
        }
        let recent = |at_ns: &u64| self.clock.monotonic_ns().saturating_sub(*at_ns) <= DUPLICATE_REPORTED_NS;
        if let Some((by, _)) = self.outlived.lock().as_ref().filter(|(_, at_ns)| recent(at_ns)) {
            let name = self.engine.own().node;
            reasons.push(format!("another process calls itself {name} and is alive: {by} refuses this one"));
        }
        for member in self.members() {
            match member.state {
                "unreachable" => reasons.push(format!("{} is not connected", member.name)),
                "clock_beyond_skew" => reasons.push(format!(
                    "the clock of {} differs by {} ms, more than gossip.max_skew",
                    member.name,
                    member.clock_offset_ms.unwrap_or(0)
                )),
                _ => {}
            }
        }
        let stats = self.engine.stats();
        if stats.own_keys >= self.max_keys {
            let answered = stats.full_allowed + stats.full_denied;
            reasons.push(format!("the table of keys is full (max_keys); {answered} checks were answered by on_full"));
        }
        for limit in self.engine.full_limits() {
            reasons.push(format!("the limit \"{limit}\" has all the keys it may have (its max_keys)"));
        }
        if stats.cells >= self.max_cells {
            reasons
                .push(format!("the table of cells is full (max_cells); {} of peers were refused", stats.refused_cells));
        }
        reasons
    }

    fn not_ready(&self) -> Option<String> {
        self.why_not_ready()
    }

    fn region_of(&self, node: &NodeName) -> Option<String> {
        if self.engine.own().node == *node {
            return Some(self.region.clone());
        }
        self.peers().into_iter().find(|peer| peer.replica.node == *node).map(|peer| peer.region)
    }

    fn stale_ms(&self, replica: &ReplicaId) -> Option<u64> {
        let own = self.engine.own();
        if own == *replica {
            return Some(0);
        }
        self.peers().into_iter().find(|peer| peer.replica == *replica).and_then(|peer| lag_ms(&peer))
    }

    fn figures(&self) -> Figures {
        let expires_s = self.certificate_expires_s.load(Ordering::Relaxed);
        let journal_queued_bytes = self.core.lock().pending.bytes() as u64;
        Figures {
            journal_failing: self.journal.degraded().is_some(),
            journal_queued_bytes,
            journal_damaged: self.damaged,
            peers_chunks_ahead: self.peers().iter().map(|peer| peer.refused_ahead).sum(),
            connections_rejected: self.rejected.load(Ordering::Relaxed),
            certificate_expires_unix_s: (expires_s > 0).then_some(expires_s),
        }
    }
}
