//! The bytes of hellos and frames.
//!
//! A hello begins with [`MAGIC`] and the protocol's version, two bytes, little-endian. That never changes, so that a
//! peer of any version can be told from a stranger and told its version. What follows does.

use super::bytes::{In, Out};
use super::{
    CodecError, Frame, Hello, LimitDigest, MAX_DEFINITION_BYTES, MAX_DEFINITIONS, MAX_FRAME_BYTES, MAX_HAVE,
    MAX_LIMIT_NAME_BYTES, MAX_REGION_BYTES, PROTOCOL_VERSION,
};
use crate::crdt::{MAX_STAMP_NS, Stamp, Written};
use crate::id::{ClusterId, ReplicaId};
use crate::limits::MAX_LIMITS;

/// What every hello of every version begins with.
pub const MAGIC: [u8; 4] = *b"tide";

/// The fewest bytes of an entry in a list: a replica with its seq, a limit's digest, a definition.
const LEAST_HAVE: usize = 5;
const LEAST_LIMIT: usize = 4;
const LEAST_DEFINITION: usize = 6;

const CHUNK: u8 = 1;
const BEAT: u8 = 2;
const HAVE: u8 = 3;
const STATE_BEGIN: u8 = 4;
const STATE: u8 = 5;
const STATE_END: u8 = 6;
const CAUGHT_UP: u8 = 7;
const LIMITS: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const DEFINITIONS: u8 = 11;

impl Hello {
    /// The hello's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.raw(&MAGIC);
        out.raw(&PROTOCOL_VERSION.to_le_bytes());
        out.raw(&self.cluster.0);
        out.replica(&self.replica);
        out.text(&self.region);
        out.int(self.stamp_ns);
        out.int(self.expected_nodes);
        put_have(&mut out, &self.have);
        out.0
    }

    /// Reads a hello. Another version is told whatever the rest looks like.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut from = In(bounded(bytes)?);
        if from.array("a hello")? != MAGIC {
            return Err(CodecError::Invalid { what: "a hello", problem: "it is not one of tidegate".into() });
        }
        let theirs = u16::from_le_bytes(from.array("a version")?);
        if theirs != PROTOCOL_VERSION {
            return Err(CodecError::Version { what: "protocol", ours: PROTOCOL_VERSION, theirs });
        }
        let hello = Self {
            cluster: ClusterId(from.array("a cluster")?),
            replica: from.replica()?,
            region: from.text(MAX_REGION_BYTES, "a region")?.to_owned(),
            stamp_ns: from.int("a stamp")?,
            expected_nodes: from.int("expected nodes")?,
            have: take_have(&mut from)?,
        };
        from.end()?;
        if hello.encode() == bytes { Ok(hello) } else { Err(CodecError::NotCanonical) }
    }
}

impl Frame {
    /// The frame's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Self::Chunk(chunk) => {
                out.raw(&[CHUNK]);
                out.raw(chunk);
            }
            Self::Beat { stamp_ns, seq, complete_to_ns, ack } => {
                out.raw(&[BEAT]);
                for number in [*stamp_ns, *seq, *complete_to_ns, *ack] {
                    out.int(number);
                }
            }
            Self::Have(have) => {
                out.raw(&[HAVE]);
                put_have(&mut out, have);
            }
            Self::StateBegin { sync, claims } => {
                out.raw(&[STATE_BEGIN]);
                out.int(*sync);
                put_have(&mut out, claims);
            }
            Self::State { sync, chunk } => {
                out.raw(&[STATE]);
                out.int(*sync);
                out.raw(chunk);
            }
            Self::StateEnd { sync } => {
                out.raw(&[STATE_END]);
                out.int(*sync);
            }
            Self::CaughtUp => out.raw(&[CAUGHT_UP]),
            Self::Limits(limits) => {
                out.raw(&[LIMITS]);
                out.count(limits.len());
                for LimitDigest { name, hash, of_file } in limits {
                    out.text(name);
                    out.int(*hash);
                    out.int(u8::from(*of_file));
                }
            }
            Self::Definitions(definitions) => {
                out.raw(&[DEFINITIONS]);
                put_definitions(&mut out, definitions);
            }
            Self::Ping(token) => {
                out.raw(&[PING]);
                out.int(*token);
            }
            Self::Pong(token) => {
                out.raw(&[PONG]);
                out.int(*token);
            }
        }
        out.0
    }

    /// Reads a frame. A chunk in it is not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut from = In(bounded(bytes)?);
        let [kind] = from.array("a frame")?;
        let frame = match kind {
            CHUNK => Self::Chunk(from.rest().to_vec()),
            BEAT => Self::Beat {
                stamp_ns: from.int("a stamp")?,
                seq: from.seq()?,
                complete_to_ns: from.int("a complete_to")?,
                ack: from.seq()?,
            },
            HAVE => Self::Have(take_have(&mut from)?),
            STATE_BEGIN => Self::StateBegin { sync: from.int("a sync")?, claims: take_have(&mut from)? },
            STATE => Self::State { sync: from.int("a sync")?, chunk: from.rest().to_vec() },
            STATE_END => Self::StateEnd { sync: from.int("a sync")? },
            CAUGHT_UP => Self::CaughtUp,
            LIMITS => Self::Limits(from.list(MAX_LIMITS, LEAST_LIMIT, "limits", |from| {
                let name = from.text(MAX_LIMIT_NAME_BYTES, "a limit's name")?.to_owned();
                Ok(LimitDigest { name, hash: from.int("a hash")?, of_file: take_flag(from, "of_file")? })
            })?),
            DEFINITIONS => Self::Definitions(take_definitions(&mut from)?),
            PING => Self::Ping(from.int("a token")?),
            PONG => Self::Pong(from.int("a token")?),
            other => {
                return Err(CodecError::Invalid {
                    what: "a frame",
                    problem: format!("no kind has the number {other}"),
                });
            }
        };
        from.end()?;
        if frame.encode() == bytes { Ok(frame) } else { Err(CodecError::NotCanonical) }
    }
}

fn bounded(bytes: &[u8]) -> Result<&[u8], CodecError> {
    match bytes.len() {
        len if len > MAX_FRAME_BYTES => {
            Err(CodecError::TooLong { what: "a frame", len: len as u64, most: MAX_FRAME_BYTES as u64 })
        }
        _ => Ok(bytes),
    }
}

fn put_have(out: &mut Out, have: &[(ReplicaId, u64)]) {
    out.count(have.len());
    for (replica, seq) in have {
        out.replica(replica);
        out.int(*seq);
    }
}

fn take_have(from: &mut In<'_>) -> Result<Vec<(ReplicaId, u64)>, CodecError> {
    from.list(MAX_HAVE, LEAST_HAVE, "replicas", |from| Ok((from.replica()?, from.seq()?)))
}

fn put_definitions(out: &mut Out, definitions: &[(String, Written)]) {
    out.count(definitions.len());
    for (name, Written { stamp, value }) in definitions {
        out.text(name);
        out.int(stamp.at_ns);
        out.text(stamp.by.as_str());
        out.int(u8::from(value.is_some()));
        if let Some(value) = value {
            out.text(value);
        }
    }
}

fn take_definitions(from: &mut In<'_>) -> Result<Vec<(String, Written)>, CodecError> {
    from.list(MAX_DEFINITIONS, LEAST_DEFINITION, "definitions", |from| {
        let name = from.text(MAX_LIMIT_NAME_BYTES, "a limit's name")?.to_owned();
        let stamp = Stamp { at_ns: from.int("a stamp")?, by: from.node()? };
        if stamp.at_ns > MAX_STAMP_NS {
            return Err(CodecError::Invalid { what: "a stamp", problem: "it is beyond the year 2262".into() });
        }
        let value = match take_flag(from, "a deletion")? {
            true => Some(from.text(MAX_DEFINITION_BYTES, "a definition")?.into()),
            false => None,
        };
        Ok((name, Written { stamp, value }))
    })
}

fn take_flag(from: &mut In<'_>, what: &'static str) -> Result<bool, CodecError> {
    match from.int::<u8>(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(CodecError::Invalid { what, problem: format!("{other} is neither 0 nor 1") }),
    }
}
