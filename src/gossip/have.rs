//! What this node holds, by replica.

use std::collections::BTreeMap;

use crate::codec::MAX_HAVE;
use crate::id::{NodeName, ReplicaId};
use crate::time::SECOND;

/// How long a replica of which the journal told only the number is kept in the table when nothing is heard of it. To
/// drop one is always sound: its state is asked for again.
const RECOVERED_KEPT_NS: u64 = 3600 * SECOND;

#[derive(Debug)]
struct Held {
    /// All live cells of seqs 1..=seq are held.
    seq: u64,
    /// Every spend up to this slot-clock time is in those; 0 while unknown.
    upto_ns: u64,
    /// When the last cell heard of has expired; None: not known.
    until_ns: Option<u64>,
    /// The move that brought it here.
    moved: u64,
}

/// The table. It has at most [`MAX_HAVE`] entries.
#[derive(Debug, Default)]
pub(super) struct HaveTable {
    held: BTreeMap<ReplicaId, Held>,
    /// Counts the moves, so that what moved since one of them can be told.
    moves: u64,
}

impl HaveTable {
    /// What the journal told.
    pub fn recovered(have: Vec<(ReplicaId, u64)>) -> Self {
        let mut table = Self::default();
        for (replica, seq) in have.into_iter().take(MAX_HAVE) {
            table.moves += 1;
            table.held.insert(replica, Held { seq, upto_ns: 0, until_ns: None, moved: table.moves });
        }
        table
    }

    /// Enters this node's own life: there is always room for it.
    pub fn enter_own(&mut self, own: &ReplicaId) {
        if self.held.len() >= MAX_HAVE {
            let soonest = self.held.iter().min_by_key(|(_, held)| held.until_ns).map(|(replica, _)| replica.clone());
            soonest.map(|replica| self.held.remove(&replica));
        }
        self.entry(own);
    }

    /// 0 when nothing is held of it.
    pub fn seq(&self, replica: &ReplicaId) -> u64 {
        self.held.get(replica).map_or(0, |held| held.seq)
    }

    /// Up to when everything is known that the replica spent; None when that is not known.
    pub fn upto_ns(&self, replica: &ReplicaId) -> Option<u64> {
        self.held.get(replica).map(|held| held.upto_ns).filter(|upto| *upto > 0)
    }

    /// Every replica with [`HaveTable::upto_ns`], where that is known.
    pub fn complete_to(&self) -> Vec<(ReplicaId, u64)> {
        let known = self.held.iter().filter(|(_, held)| held.upto_ns > 0);
        known.map(|(replica, held)| (replica.clone(), held.upto_ns)).collect()
    }

    /// How many replicas are in the table.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether the replica is in the table.
    pub fn knows(&self, replica: &ReplicaId) -> bool {
        self.held.contains_key(replica)
    }

    /// Everything held.
    pub fn list(&self) -> Vec<(ReplicaId, u64)> {
        self.moved_since(0).0
    }

    /// What moved after the move numbered `since`, and the number of the last one.
    pub fn moved_since(&self, since: u64) -> (Vec<(ReplicaId, u64)>, u64) {
        let moved = self.held.iter().filter(|(_, held)| held.seq > 0 && held.moved > since);
        (moved.map(|(replica, held)| (replica.clone(), held.seq)).collect(), self.moves)
    }

    /// Whether anything moved after the move numbered `since`.
    pub fn moves_after(&self, since: u64) -> bool {
        self.moves > since
    }

    /// All lives of a node.
    pub fn lives<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = &'a ReplicaId> + use<'a> {
        let first = ReplicaId { node: node.clone(), generation: 0, nonce: 0 };
        let last = ReplicaId { node: node.clone(), generation: u64::MAX, nonce: u32::MAX };
        self.held.range(first..=last).map(|(replica, _)| replica)
    }

    /// The names of all nodes, a name for each of its lives.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.held.keys().map(|replica| &replica.node)
    }

    /// Everything up to `seq` is held, of which the last expires at `expires_ns`. The caller knows it, by seq n+1 or by a
    /// claim. False when the table has no room or knew it already.
    pub fn advance(&mut self, replica: &ReplicaId, seq: u64, expires_ns: u64) -> bool {
        let Some(held) = self.entry(replica) else { return false };
        held.until_ns = Some(held.until_ns.unwrap_or(0).max(expires_ns));
        if seq <= held.seq {
            return false;
        }
        held.seq = seq;
        self.moves += 1;
        let moves = self.moves;
        self.entry(replica).map(|held| held.moved = moves).is_some()
    }

    /// The replica says that all its spends up to `complete_to_ns` are in seqs up to `seq`.
    pub fn complete(&mut self, replica: &ReplicaId, seq: u64, complete_to_ns: u64) {
        if let Some(held) = self.entry(replica).filter(|held| seq <= held.seq) {
            held.upto_ns = held.upto_ns.max(complete_to_ns);
        }
    }

    fn entry(&mut self, replica: &ReplicaId) -> Option<&mut Held> {
        if self.held.len() >= MAX_HAVE && !self.held.contains_key(replica) {
            return None;
        }
        let new = Held { seq: 0, upto_ns: 0, until_ns: Some(0), moved: 0 };
        Some(self.held.entry(replica.clone()).or_insert(new))
    }

    /// Forgets replicas of which every cell has expired, but those of `keep`.
    pub fn prune(&mut self, now_ns: u64, keep: impl Fn(&ReplicaId) -> bool) {
        self.held.retain(|replica, held| {
            let until_ns = *held.until_ns.get_or_insert(now_ns.saturating_add(RECOVERED_KEPT_NS));
            until_ns > now_ns || keep(replica)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(name: &str, generation: u64) -> ReplicaId {
        ReplicaId { node: NodeName::new(name).unwrap(), generation, nonce: 7 }
    }

    #[test]
    fn tells_what_moved_since() {
        let mut have = HaveTable::recovered(vec![(life("a", 1), 5)]);
        let (all, said) = have.moved_since(0);
        assert_eq!(all, vec![(life("a", 1), 5)]);
        assert!(have.advance(&life("b", 1), 3, 100) && !have.advance(&life("b", 1), 3, 100));
        assert!(have.moves_after(said));
        assert_eq!(have.moved_since(said).0, vec![(life("b", 1), 3)]);
        assert!(!have.moves_after(have.moved_since(said).1));
        assert_eq!(have.lives(&NodeName::new("a").unwrap()).count(), 1);
    }

    #[test]
    fn complete_only_up_to_what_is_held() {
        let mut have = HaveTable::default();
        have.complete(&life("a", 1), 0, 50);
        have.complete(&life("a", 1), 1, 60);
        assert_eq!(have.upto_ns(&life("a", 1)), Some(50));
        have.advance(&life("a", 1), 1, 100);
        have.complete(&life("a", 1), 1, 60);
        assert_eq!(have.upto_ns(&life("a", 1)), Some(60));
        assert_eq!(have.list(), vec![(life("a", 1), 1)]);
    }

    #[test]
    fn forgets_what_has_expired_and_is_not_wanted() {
        let mut have = HaveTable::recovered(vec![(life("r", 1), 5)]);
        have.advance(&life("a", 1), 1, 100);
        have.advance(&life("b", 1), 1, 100);
        have.prune(100, |replica| *replica == life("b", 1));
        assert_eq!(have.list(), vec![(life("b", 1), 1), (life("r", 1), 5)]);
        have.prune(100 + RECOVERED_KEPT_NS, |_| false);
        assert_eq!(have.list(), vec![]);
    }

    #[test]
    fn has_a_bound() {
        let mut have = HaveTable::default();
        assert!((0..MAX_HAVE as u64).all(|generation| have.advance(&life("a", generation), 1, 1)));
        assert!(!have.advance(&life("b", 1), 1, 1));
        assert!(have.advance(&life("a", 1), 2, 1));
        have.enter_own(&life("own", 1));
        assert!(have.advance(&life("own", 1), 1, 1));
        assert_eq!(have.list().len(), MAX_HAVE);
    }
}
