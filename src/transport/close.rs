//! How connections end, and how the other side is told: a code for the program, a reason for its log.

use std::fmt;
use std::time::Duration;

use quinn::{ConnectionError, ReadError, ReadExactError, VarInt, WriteError};

use crate::codec::MAX_FRAME_BYTES;
use crate::gossip::Refusal;
use crate::id::NodeName;

/// The longest reason that is sent, or shown of what a peer sent, bytes.
pub const MAX_REASON_BYTES: usize = 512;

/// What the application codes of QUIC's CONNECTION_CLOSE mean between nodes.
mod code {
    pub(super) const STOPPING: u32 = 1;
    pub(super) const FINISHED: u32 = 2;
    pub(super) const NO_HELLO: u32 = 3;
    pub(super) const MALFORMED: u32 = 4;
    pub(super) const VERSION: u32 = 5;
    pub(super) const CLUSTER: u32 = 6;
    pub(super) const CERTIFICATE: u32 = 7;
    pub(super) const OWN_NAME: u32 = 8;
    pub(super) const DUPLICATE: u32 = 9;
    /// The reason is the name of the node that sends it: its peer need not dial while connected to that.
    pub(super) const ALREADY_CONNECTED: u32 = 10;
    pub(super) const REPLACED: u32 = 11;
    pub(super) const FULL: u32 = 12;
}

/// Why a connection ended or never came to be.
#[derive(Debug)]
pub(super) enum End {
    /// The hub refused the peer.
    Refused(Refusal),
    /// A length prefix above what is taken: nothing was allocated for it.
    TooLarge { len: usize },
    /// The other side sent no hello in time.
    NoHello(Duration),
    /// No handshake in time.
    NoAnswer(Duration),
    /// The stream ended within a frame, or was reset.
    Cut,
    /// The peer has sent all it had: it is stopping.
    Finished,
    /// This node is stopping.
    Stopping,
    /// The node let go of the hub.
    Orphaned,
    /// The connection was closed by the peer, or is gone.
    Lost(ConnectionError),
    /// The address cannot be dialed.
    Undialable(quinn::ConnectError),
}

impl End {
    /// The application code.
    pub(super) fn code(&self) -> VarInt {
        VarInt::from_u32(match self {
            Self::Refused(refusal) => match refusal {
                Refusal::Version { .. } => code::VERSION,
                Refusal::Cluster => code::CLUSTER,
                Refusal::Certificate(_) => code::CERTIFICATE,
                Refusal::OwnName(_) => code::OWN_NAME,
                Refusal::Duplicate(_) => code::DUPLICATE,
                Refusal::AlreadyConnected(_) => code::ALREADY_CONNECTED,
                Refusal::Replaced | Refusal::NewLife => code::REPLACED,
                Refusal::Full { .. } => code::FULL,
                Refusal::Malformed(_) => code::MALFORMED,
            },
            Self::TooLarge { .. } | Self::Cut => code::MALFORMED,
            Self::NoHello(_) | Self::NoAnswer(_) => code::NO_HELLO,
            Self::Finished => code::FINISHED,
            Self::Stopping | Self::Orphaned | Self::Lost(_) | Self::Undialable(_) => code::STOPPING,
        })
    }

    /// The reason, as the node `own` tells it to its peer.
    pub(super) fn reason(&self, own: &NodeName) -> Vec<u8> {
        let mut reason = match self {
            Self::Refused(Refusal::AlreadyConnected(_)) => own.to_string(),
            end => end.to_string(),
        }
        .into_bytes();
        reason.truncate(MAX_REASON_BYTES);
        reason
    }

    /// The peer's name where it, or this node, said that the two are connected already.
    pub(super) fn already_connected(&self) -> Option<NodeName> {
        match self {
            Self::Refused(Refusal::AlreadyConnected(name)) => Some(name.clone()),
            Self::Lost(ConnectionError::ApplicationClosed(close))
                if close.error_code == VarInt::from_u32(code::ALREADY_CONNECTED) =>
            {
                NodeName::new(std::str::from_utf8(&close.reason).ok()?).ok()
            }
            _ => None,
        }
    }

    /// Whether one of two processes of one name was turned away: the peer by this node, or this node by the peer.
    pub(super) fn duplicate(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Duplicate(_))) || self.outlived()
    }

    /// Whether the peer turned this node away because another process of its name is alive.
    pub(super) fn outlived(&self) -> bool {
        matches!(self, Self::Lost(ConnectionError::ApplicationClosed(close))
            if close.error_code == VarInt::from_u32(code::DUPLICATE))
    }

    /// Whether it is in the order of things and nobody need be told.
    pub(super) fn benign(&self) -> bool {
        let expected = matches!(self, Self::Finished | Self::Stopping | Self::Orphaned);
        expected || matches!(self, Self::Refused(Refusal::Replaced)) || self.already_connected().is_some()
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::TooLarge { len } => write!(f, "a frame of {len} bytes, at most {MAX_FRAME_BYTES} are taken here"),
            Self::NoHello(within) => write!(f, "no hello within {within:?}"),
            Self::NoAnswer(within) => write!(f, "no answer within {within:?}"),
            Self::Cut => f.write_str("the stream ended within a frame"),
            Self::Finished => f.write_str("the peer is stopping"),
            Self::Stopping => f.write_str("this node is stopping"),
            Self::Orphaned => f.write_str("nobody sends on it any more"),
            Self::Lost(ConnectionError::ApplicationClosed(_)) if self.already_connected().is_some() => {
                f.write_str("the peer closed it: the two are connected already")
            }
            Self::Lost(ConnectionError::ApplicationClosed(close)) => {
                write!(f, "the peer closed it: {}", printable(&close.reason))
            }
            Self::Lost(ConnectionError::ConnectionClosed(close)) => {
                write!(f, "the peer closed it: {}: {}", close.error_code, printable(&close.reason))
            }
            Self::Lost(ConnectionError::Reset) => f.write_str("the peer lost it, most likely by a restart"),
            Self::Lost(ConnectionError::TimedOut) => f.write_str("nothing is heard of the peer: timed out"),
            Self::Lost(lost) => lost.fmt(f),
            Self::Undialable(problem) => problem.fmt(f),
        }
    }
}

/// What a peer wrote, safe for a log line.
fn printable(reason: &[u8]) -> String {
    let reason = &reason[..reason.len().min(MAX_REASON_BYTES)];
    String::from_utf8_lossy(reason).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl From<ConnectionError> for End {
    fn from(lost: ConnectionError) -> Self {
        Self::Lost(lost)
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ReadExactError> for End {
    fn from(e: ReadExactError) -> Self {
        match e {
            ReadExactError::ReadError(ReadError::ConnectionLost(lost)) => Self::Lost(lost),
            _ => Self::Cut,
        }
    }
}

impl From<WriteError> for End {
    fn from(e: WriteError) -> Self {
        match e {
            WriteError::ConnectionLost(lost) => Self::Lost(lost),
            _ => Self::Cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn::ApplicationClose;

    fn closed_by_peer(end: &End, own: &NodeName) -> End {
        let close = ApplicationClose { error_code: end.code(), reason: end.reason(own).into() };
        End::Lost(ConnectionError::ApplicationClosed(close))
    }

    #[test]
    fn the_other_side_reads_the_reason() {
        let (a, b) = (NodeName::new("a").unwrap(), NodeName::new("b").unwrap());
        let seen = closed_by_peer(&End::Refused(Refusal::Version { ours: 1, theirs: 2 }), &a);
        assert_eq!(seen.to_string(), "the peer closed it: protocol version 2, this node speaks 1");
        assert!(!seen.benign());
        let refused = End::Refused(Refusal::Duplicate(a.clone()));
        let seen = closed_by_peer(&refused, &b);
        assert!(refused.duplicate() && !refused.outlived() && seen.duplicate() && seen.outlived());
        // b was told by a that a has a connection to b: b learns a's name.
        let seen = closed_by_peer(&End::Refused(Refusal::AlreadyConnected(b)), &a);
        assert_eq!(seen.already_connected(), Some(a));
        assert_eq!(seen.to_string(), "the peer closed it: the two are connected already");
        assert!(seen.benign());
    }

    #[test]
    fn what_a_peer_writes_is_bounded_and_cannot_break_the_log() {
        let a = NodeName::new("a").unwrap();
        let end = End::Refused(Refusal::Malformed(format!("x\n{}", "y".repeat(9000))));
        assert_eq!(end.reason(&a).len(), MAX_REASON_BYTES);
        let seen = closed_by_peer(&end, &a).to_string();
        assert!(seen.starts_with("the peer closed it: malformed: x?yyy") && seen.len() < 600, "{seen}");
    }
}
