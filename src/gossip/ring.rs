//! Recent chunks, to be sent to whoever lacks them. Any size is sound: what is not here is sent as state.

use std::collections::{BTreeMap, VecDeque};

use crate::id::ReplicaId;

/// What a chunk takes beside its bytes, about.
const OVERHEAD_BYTES: usize = 128;

/// Chunks by replica and seq, bounded in bytes; the oldest go first.
#[derive(Debug)]
pub(super) struct Ring {
    chunks: BTreeMap<(ReplicaId, u64), Box<[u8]>>,
    /// In the order in which they came.
    order: VecDeque<(ReplicaId, u64)>,
    bytes: usize,
    most_bytes: usize,
}

impl Ring {
    /// A ring of nothing.
    pub fn new(most_bytes: usize) -> Self {
        Self { chunks: BTreeMap::new(), order: VecDeque::new(), bytes: 0, most_bytes }
    }

    /// A chunk's bytes, while they are kept.
    pub fn chunk(&self, replica: &ReplicaId, seq: u64) -> Option<&[u8]> {
        self.chunks.get(&(replica.clone(), seq)).map(|bytes| &**bytes)
    }

    /// Bytes held, each chunk's own overhead included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a chunk. One that is kept already stays as it is: a chunk never changes.
    pub fn insert(&mut self, replica: &ReplicaId, seq: u64, bytes: &[u8]) {
        let key = (replica.clone(), seq);
        if self.chunks.contains_key(&key) {
            return;
        }
        self.bytes += bytes.len() + OVERHEAD_BYTES;
        self.order.push_back(key.clone());
        self.chunks.insert(key, bytes.into());
        while self.bytes > self.most_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            let gone = self.chunks.remove(&oldest).map_or(0, |bytes| bytes.len());
            self.bytes -= gone + OVERHEAD_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeName;

    #[test]
    fn the_oldest_go_first_and_the_bound_holds() {
        let replica = |name| ReplicaId { node: NodeName::new(name).unwrap(), generation: 1, nonce: 1 };
        let (a, b) = (replica("a"), replica("b"));
        let mut ring = Ring::new(4 * (OVERHEAD_BYTES + 100));
        for seq in 1..=3 {
            ring.insert(&a, seq, &[seq as u8; 100]);
            ring.insert(&b, seq, &[seq as u8; 100]);
        }
        let held = |ring: &Ring, replica: &ReplicaId| (1..=3).filter(|seq| ring.chunk(replica, *seq).is_some()).count();
        assert_eq!((held(&ring, &a), held(&ring, &b)), (2, 2));
        assert_eq!(ring.chunk(&a, 1), None);
        ring.insert(&a, 2, &[9; 50]);
        assert_eq!(ring.chunk(&a, 2), Some(&[2; 100][..]));
        ring.insert(&a, 9, &[0; 10_000]);
        assert_eq!((held(&ring, &a), ring.bytes, ring.order.len()), (0, 0, 0));
    }
}
