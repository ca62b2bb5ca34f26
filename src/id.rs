//! Who and what: names of nodes, ids of replicas, hashes of keys. Pure values; randomness comes from the caller.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};

/// The DNS name that every node certificate bears and that peers dial. No node may be called so.
pub const TLS_NAME: &str = "tidegate";

/// A node's name: `[a-z0-9-]{1,63}`, no hyphen at either end (it is also a DNS label in its certificate), and not
/// [`TLS_NAME`], which every certificate of the cluster bears.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);

/// A node name that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no node name: 1 to 63 of a-z, 0-9 and -, no - at either end, and not \"tidegate\"")]
pub struct BadNodeName(pub String);

impl NodeName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, BadNodeName> {
        let fits = (1..=63).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-')
            && name != TLS_NAME;
        if fits { Ok(Self(name.into())) } else { Err(BadNodeName(name.to_owned())) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = BadNodeName;
    fn try_from(name: String) -> Result<Self, BadNodeName> {
        Self::new(&name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// One life of one node: the single writer of its cells.
///
/// The generation, `max(stored + 1, unix milliseconds)`, says which life is newer. The random nonce makes the id unique
/// whatever the clock or the disk say (wiped, restored, cloned). A new one is drawn at every start and stored before
/// anything is admitted, so a node that lost unflushed increments never counts on top of its old cells.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ReplicaId {
    /// The node.
    pub node: NodeName,
    /// Which life of the node: a later one has a larger generation. Unix milliseconds at the least.
    pub generation: u64,
    /// Drawn at random with the generation.
    pub nonce: u32,
}

impl ReplicaId {
    /// The id of the life that starts at `unix_ms` after one of generation `stored` (0: none known).
    pub fn next_life(node: NodeName, stored: u64, unix_ms: u64, nonce: u32) -> Self {
        Self { node, generation: unix_ms.max(stored.saturating_add(1)), nonce }
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}-{:08x}", self.node, self.generation, self.nonce)
    }
}

/// The cluster's secret: keys the hash of every key, so that nobody outside can aim collisions.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A hash of the secret: tells clusters apart without giving the secret away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ClusterId(pub [u8; 16]);

impl Secret {
    fn hasher(&self, purpose: u8) -> SipHasher13 {
        let (low, high) = self.0.split_at(16);
        let mut key = [0u8; 16];
        key.copy_from_slice(low);
        let mut hasher = SipHasher13::new_with_key(&key);
        hasher.write(high);
        hasher.write_u8(purpose);
        hasher
    }

    /// The id of the cluster that holds this secret.
    pub fn cluster_id(&self) -> ClusterId {
        ClusterId(self.hasher(0).finish128().as_bytes())
    }

    /// The hasher for the keys of the limit `name`. Cheap to clone and to use.
    pub fn key_hasher(&self, name: &str) -> KeyHasher {
        let mut hasher = self.hasher(1);
        // The length first, so that no two pairs of name and key give the same bytes.
        hasher.write_u64(name.len() as u64);
        hasher.write(name.as_bytes());
        KeyHasher(hasher)
    }
}

/// Hashes the keys of one limit.
#[derive(Clone)]
pub struct KeyHasher(SipHasher13);

impl KeyHasher {
    /// The hash under which the state of `key` is held and travels.
    pub fn hash(&self, key: &str) -> KeyHash {
        let mut hasher = self.0;
        hasher.write(key.as_bytes());
        KeyHash(hasher.finish128().as_bytes())
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher(..)")
    }
}

/// 128 bits that stand for a (limit name, key) pair on the wire, on disk and in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 16]);

impl KeyHash {
    /// 64 of the bits, for tables. They are uniform already: no further hashing is needed.
    pub fn table_hash(self) -> u64 {
        let mut low = [0u8; 8];
        low.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(low)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "eu-1", "0", &"x".repeat(63)] {
            assert!(NodeName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "tidegate", &"x".repeat(64)] {
            assert!(NodeName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pairs_of_limit_and_key_do_not_collide_by_concatenation() {
        let secret = Secret([7; 32]);
        assert_ne!(secret.key_hasher("ab").hash("c"), secret.key_hasher("a").hash("bc"));
        assert_ne!(secret.key_hasher("a").hash("b"), Secret([8; 32]).key_hasher("a").hash("b"));
        let mut other_half = [7; 32];
        other_half[31] = 8;
        assert_ne!(secret.key_hasher("a").hash("b"), Secret(other_half).key_hasher("a").hash("b"));
    }

    #[test]
    fn a_new_life_is_newer_even_when_the_clock_is_behind() {
        let node = NodeName::new("a").unwrap();
        assert_eq!(ReplicaId::next_life(node.clone(), 900, 500, 1).generation, 901);
        assert_eq!(ReplicaId::next_life(node, 900, 5000, 1).generation, 5000);
    }
}
