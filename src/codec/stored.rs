//! What the journal keeps beside chunks: how far it reaches, the limits in force, the definitions made at run time, and
//! whose it is.
//!
//! All four values are `version (1 byte), CRC-32 of the body (4 bytes, little endian), body (bincode)`. They are small and
//! few: a damaged one is told from a good one, never repaired.

use bincode::{Decode, Encode};

use crate::crdt::{Registry, Stamp, Written};
use crate::id::{NodeName, ReplicaId, Secret};
use crate::limits::{LimitSet, LimitSpec};

/// The first byte of each.
const STORED_VERSION: u8 = 2;
/// Version and checksum.
const HEADER_BYTES: usize = 5;
/// The longest body that is read: `have` of some ten thousand replicas, or as many limits and keys with their own.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// How far the chunks of the journal reach. Written in one batch with the chunks that made it so.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredHave {
    /// For every replica: all live cells of its seqs 1..=n are in the journal.
    pub have: Vec<(ReplicaId, u64)>,
    /// The slot clock when the batch was cut, nanoseconds.
    pub slot_clock_ns: u64,
    /// The generation of the life that wrote it; 0 when it did not say.
    pub generation: u64,
}

/// Whose journal it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredMeta {
    /// The node.
    pub node: NodeName,
    /// The last generation it began; 0 before the first.
    pub generation: u64,
    /// The hash secret of a node without a cluster.
    pub secret: Option<Secret>,
}

/// The limits in force, whose shapes the chunks are of: a bucket that was changed while the node was down is carried
/// over like any other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredLimits(pub LimitSet);

/// The limits defined and deleted at run time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredDefinitions(pub Registry);

/// Bytes that are none of the four.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoredError {
    /// Written by another version.
    #[error("version {theirs}, this tidegate reads {ours}", ours = STORED_VERSION)]
    Version {
        /// The version it has.
        theirs: u8,
    },
    /// Cut short, or not what was written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

#[derive(Encode, Decode)]
struct HaveBody {
    have: Vec<HaveEntry>,
    slot_clock_ns: u64,
    generation: u64,
}

#[derive(Encode, Decode)]
struct HaveEntry {
    node: String,
    generation: u64,
    nonce: u32,
    seq: u64,
}

#[derive(Encode, Decode)]
struct DefinitionEntry {
    name: String,
    at_ns: u64,
    by: String,
    value: Option<String>,
}

#[derive(Encode, Decode)]
struct MetaBody {
    node: String,
    generation: u64,
    secret: Option<[u8; 32]>,
}

impl StoredHave {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let entry = |(replica, seq): &(ReplicaId, u64)| HaveEntry {
            node: replica.node.as_str().to_owned(),
            generation: replica.generation,
            nonce: replica.nonce,
            seq: *seq,
        };
        seal(HaveBody {
            have: self.have.iter().map(entry).collect(),
            slot_clock_ns: self.slot_clock_ns,
            generation: self.generation,
        })
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoredError> {
        let body: HaveBody = open(bytes)?;
        let have = body.have.into_iter().map(|entry| {
            let node = name(&entry.node)?;
            Ok((ReplicaId { node, generation: entry.generation, nonce: entry.nonce }, entry.seq))
        });
        Ok(Self {
            have: have.collect::<Result<_, StoredError>>()?,
            slot_clock_ns: body.slot_clock_ns,
            generation: body.generation,
        })
    }
}

impl StoredLimits {
    /// As bytes: each limit as it would be written.
    pub fn encode(&self) -> Vec<u8> {
        seal(self.0.iter().map(|limit| LimitSpec::canonical(limit)).collect::<Vec<_>>())
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoredError> {
        let written: Vec<String> = open(bytes)?;
        let limit = |text: String| {
            let spec: LimitSpec = serde_json::from_str(&text).ok()?;
            spec.check().ok()
        };
        let limits: Option<Vec<_>> = written.into_iter().map(limit).collect();
        let limits = limits.ok_or(StoredError::Damaged("a limit in it is none"))?;
        let set = LimitSet::new(limits).map_err(|_| StoredError::Damaged("a limit stands in it twice"))?;
        Ok(Self(set))
    }
}

impl StoredDefinitions {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let entry = |(name, Written { stamp, value }): (&str, &Written)| DefinitionEntry {
            name: name.to_owned(),
            at_ns: stamp.at_ns,
            by: stamp.by.as_str().to_owned(),
            value: value.as_deref().map(str::to_owned),
        };
        seal(self.0.iter().map(entry).collect::<Vec<_>>())
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoredError> {
        let entries: Vec<DefinitionEntry> = open(bytes)?;
        let mut registry = Registry::default();
        for DefinitionEntry { name: limit, at_ns, by, value } in entries {
            let written = Written { stamp: Stamp { at_ns, by: name(&by)? }, value: value.map(Into::into) };
            registry.merge(&limit, &written).map_err(|_| StoredError::Damaged("it is more than fits"))?;
        }
        Ok(Self(registry))
    }
}

impl StoredMeta {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        seal(MetaBody {
            node: self.node.as_str().to_owned(),
            generation: self.generation,
            secret: self.secret.as_ref().map(|secret| secret.0),
        })
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoredError> {
        let body: MetaBody = open(bytes)?;
        Ok(Self { node: name(&body.node)?, generation: body.generation, secret: body.secret.map(Secret) })
    }
}

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MAX_BODY_BYTES>()
}

fn seal(body: impl Encode) -> Vec<u8> {
    let body = bincode::encode_to_vec(body, config()).expect("strings, numbers and arrays always encode into memory");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.push(STORED_VERSION);
    bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

fn open<T: Decode<()>>(bytes: &[u8]) -> Result<T, StoredError> {
    let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(StoredError::Damaged("too short"));
    };
    if header[0] != STORED_VERSION {
        return Err(StoredError::Version { theirs: header[0] });
    }
    if header[1..] != crc32fast::hash(body).to_le_bytes() {
        return Err(StoredError::Damaged("its checksum does not fit"));
    }
    match bincode::decode_from_slice(body, config()) {
        Ok((value, read)) if read == body.len() => Ok(value),
        Ok(_) => Err(StoredError::Damaged("bytes are left over")),
        Err(_) => Err(StoredError::Damaged("it does not decode")),
    }
}

fn name(text: &str) -> Result<NodeName, StoredError> {
    NodeName::new(text).map_err(|_| StoredError::Damaged("what stands for a node name is none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> StoredHave {
        let replica = |name: &str, generation| ReplicaId { node: NodeName::new(name).unwrap(), generation, nonce: 7 };
        StoredHave {
            have: vec![(replica("eu-1", 1_700_000_000_000), 42), (replica("us-1", u64::MAX), u64::MAX)],
            slot_clock_ns: 1_700_000_000_000_000_000,
            generation: 3,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(StoredHave::decode(&sample().encode()), Ok(sample()));
        assert_eq!(StoredHave::decode(&StoredHave::default().encode()), Ok(StoredHave::default()));
        for secret in [None, Some(Secret([9; 32]))] {
            let meta = StoredMeta { node: NodeName::new("eu-1").unwrap(), generation: 5, secret };
            assert_eq!(StoredMeta::decode(&meta.encode()), Ok(meta));
        }
    }

    #[test]
    fn limits_are_read_as_they_were() {
        let limit = |name: &str, algorithm: &str, window: &str, burst| LimitSpec {
            name: name.into(),
            algorithm: Some(algorithm.into()),
            limit: Some(5),
            window: Some(window.into()),
            burst,
            ..LimitSpec::default()
        };
        let specs = [limit("a", "fixed_window", "1500ms", None), limit("b", "token_bucket", "1d", Some(7))];
        let set = LimitSet::new(specs.iter().map(|spec| spec.check().unwrap())).unwrap();
        let bytes = StoredLimits(set.clone()).encode();
        assert_eq!(StoredLimits::decode(&bytes), Ok(StoredLimits(set)));
        let good = r#"{"name":"a","limit":1,"window":"1s"}"#;
        let stored = |texts: &[&str]| seal(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        for bad in [&[r#"{"name":"a","limit":1,"window":"0s"}"#][..], &["{"], &[good, good]] {
            assert!(matches!(StoredLimits::decode(&stored(bad)), Err(StoredError::Damaged(_))));
        }
        assert!(StoredLimits::decode(&stored(&[good])).is_ok());
    }

    #[test]
    fn definitions_are_read_as_they_were() {
        let mut registry = Registry::default();
        for (limit, value) in [("a", Some("{}".into())), ("b", None)] {
            let stamp = Stamp { at_ns: 5, by: NodeName::new("eu-1").unwrap() };
            registry.merge(limit, &Written { stamp, value }).unwrap();
        }
        let bytes = StoredDefinitions(registry.clone()).encode();
        assert_eq!(StoredDefinitions::decode(&bytes), Ok(StoredDefinitions(registry)));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = sample().encode();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(StoredHave::decode(&bad).is_err(), "byte {at} bit {bit}");
            }
            assert!(StoredHave::decode(&good[..at]).is_err(), "cut at {at}");
        }
        let mut other = good;
        other[0] = 9;
        assert_eq!(StoredHave::decode(&other), Err(StoredError::Version { theirs: 9 }));
    }
}
