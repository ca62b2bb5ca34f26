//! Writing and reading the parts that every encoding is made of: integers as bincode's variable-length ones, raw bytes,
//! lists with a bound. A length is believed only as far as the bytes that are there could bear it.

use bincode::config::{self, Configuration, Limit, LittleEndian, Varint};
use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use bincode::{Decode, Encode};

use super::CodecError;
use crate::id::{NodeName, ReplicaId};

/// The most that reading one integer may claim: no integer is longer.
const INTEGER_BYTES: usize = 16;
const INTEGERS: Configuration<LittleEndian, Varint, Limit<INTEGER_BYTES>> =
    config::standard().with_limit::<INTEGER_BYTES>();

/// Bytes being written.
#[derive(Default)]
pub(super) struct Out(pub Vec<u8>);

impl Writer for Out {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

impl Out {
    /// An integer, short when it is small.
    pub fn int(&mut self, value: impl Encode) {
        bincode::encode_into_writer(value, self, INTEGERS).expect("a vector takes every integer");
    }

    /// A count of things or bytes.
    pub fn count(&mut self, count: usize) {
        self.int(count as u64);
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A text with its length.
    pub fn text(&mut self, text: &str) {
        self.count(text.len());
        self.raw(text.as_bytes());
    }

    /// A replica.
    pub fn replica(&mut self, replica: &ReplicaId) {
        self.text(replica.node.as_str());
        self.int(replica.generation);
        self.int(replica.nonce);
    }
}

/// Bytes left to be read.
pub(super) struct In<'a>(pub &'a [u8]);

impl<'a> In<'a> {
    /// An integer. A longer form than needed is not refused here: whoever reads a whole message compares it with what
    /// writing it again gives.
    pub fn int<T: Decode<()>>(&mut self, what: &'static str) -> Result<T, CodecError> {
        let (value, used) = bincode::decode_from_slice(self.0, INTEGERS).map_err(|_| CodecError::Truncated(what))?;
        self.0 = &self.0[used..];
        Ok(value)
    }

    /// A seq.
    pub fn seq(&mut self) -> Result<u64, CodecError> {
        let (what, most) = ("a seq", super::MAX_SEQ);
        match self.int(what)? {
            len if len > most => Err(CodecError::TooLong { what, len, most }),
            seq => Ok(seq),
        }
    }

    /// The next `len` bytes.
    pub fn raw(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(CodecError::Truncated(what))?;
        self.0 = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CodecError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(CodecError::Truncated(what))?;
        self.0 = rest;
        Ok(*head)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// How many things follow: at most `most`, and no more than fit the bytes left when each takes at least `least`.
    pub fn count(&mut self, most: usize, least: usize, what: &'static str) -> Result<usize, CodecError> {
        let count: u64 = self.int(what)?;
        let fits = most.min(self.0.len() / least);
        match usize::try_from(count) {
            Ok(count) if count <= fits => Ok(count),
            Ok(count) if count <= most => Err(CodecError::Truncated(what)),
            _ => Err(CodecError::TooLong { what, len: count, most: most as u64 }),
        }
    }

    /// A text of at most `most` bytes.
    pub fn text(&mut self, most: usize, what: &'static str) -> Result<&'a str, CodecError> {
        let len = self.count(most, 1, what)?;
        std::str::from_utf8(self.raw(len, what)?).map_err(|_| CodecError::Invalid { what, problem: "not UTF-8".into() })
    }

    /// A node's name.
    pub fn node(&mut self) -> Result<NodeName, CodecError> {
        let name = self.text(super::MAX_NAME_BYTES, "a node name")?;
        NodeName::new(name).map_err(|bad| CodecError::Invalid { what: "a node name", problem: bad.to_string() })
    }

    /// A replica.
    pub fn replica(&mut self) -> Result<ReplicaId, CodecError> {
        Ok(ReplicaId { node: self.node()?, generation: self.int("a generation")?, nonce: self.int("a nonce")? })
    }

    /// A list of at most `most` things, each of at least `least` bytes.
    pub fn list<T>(
        &mut self,
        most: usize,
        least: usize,
        what: &'static str,
        mut one: impl FnMut(&mut Self) -> Result<T, CodecError>,
    ) -> Result<Vec<T>, CodecError> {
        let count = self.count(most, least, what)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(one(self)?);
        }
        Ok(list)
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<(), CodecError> {
        match self.0.len() {
            0 => Ok(()),
            trailing => Err(CodecError::Trailing(trailing)),
        }
    }
}
