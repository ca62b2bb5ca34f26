//! What is asked of the engine, and what it answers.

use std::sync::Arc;

use crate::algorithms::Verdict;
use crate::crdt::{ReplicaIx, SlotCell};
use crate::id::ReplicaId;
use crate::limits::{DescriptorError, Limit, Shape};

/// What is to be done with each (limit, key, cost).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Decide, and take the cost of all when all admit.
    Check,
    /// Decide as check would, take nothing.
    Peek,
    /// Take the cost whatever the state.
    Debit,
    /// Give the cost back, as far as it counts now, newest slot first.
    Refund,
    /// Give the key its full allowance back, everywhere. Costs are ignored.
    Reset,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Check, Self::Peek, Self::Debit, Self::Refund, Self::Reset];

    /// As requests, metrics and paths name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Debit => "debit",
            Self::Refund => "refund",
            Self::Reset => "reset",
        }
    }
}

/// One part of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask<'a> {
    /// The limit's name.
    pub limit: &'a str,
    /// The key, not empty, at most [`super::MAX_KEY_BYTES`].
    pub key: &'a str,
    /// Tokens.
    pub cost: u32,
}

impl Ask<'_> {
    /// Whether this may be the part `index` of a request, whatever limits there are.
    pub fn well_formed(&self, index: usize) -> Result<(), AskError> {
        match self.key.len() {
            1..=super::MAX_KEY_BYTES => Ok(()),
            len => Err(AskError::BadKey { index, len }),
        }
    }

    /// Whether a request may have so many parts.
    pub fn right_count(count: usize) -> Result<(), AskError> {
        if (1..=super::MAX_ASKS).contains(&count) { Ok(()) } else { Err(AskError::BadCount { count }) }
    }
}

/// Why something was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Too much was used.
    Quota,
    /// The cost is above the capacity: never.
    CostOverLimit,
    /// The table of keys is full and `on_full` says deny.
    TableFull,
}

impl Reason {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Quota, Self::CostOverLimit, Self::TableFull];

    /// As answers have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::CostOverLimit => "cost_over_limit",
            Self::TableFull => "table_full",
        }
    }
}

/// One limit's own answer, as things stand after the request.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The limit, with the allowance of this key.
    pub limit: Arc<Limit>,
    /// The key it was counted under, where that is not the one the request names.
    pub counted_as: Option<String>,
    /// This limit's own decision: it may have admitted although another denied the request and nothing was taken.
    pub verdict: Verdict,
    /// None when it admitted.
    pub reason: Option<Reason>,
    /// Tokens used, whole.
    pub used: u64,
    /// How many requests of cost 1 would be admitted at this instant.
    pub remaining: u64,
    /// The least wait until nothing counts any more, nanoseconds.
    pub reset_after_ns: u64,
    /// The least wait until `remaining` rises, nanoseconds; 0 when it is full.
    pub next_after_ns: u64,
}

impl Outcome {
    /// Whether this limit admitted. Of a limit in shadow mode: whether it would have.
    pub fn allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Admitted(_))
    }

    /// Whether this limit denies the request.
    pub fn denies(&self) -> bool {
        !self.allowed() && !self.limit.is_shadow()
    }

    /// How long the caller is to wait for its turn, nanoseconds.
    pub fn delay_ns(&self) -> u64 {
        if let Verdict::Admitted(delay_ns) = self.verdict { delay_ns } else { 0 }
    }
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it was admitted. True for debit, refund and reset.
    pub allowed: bool,
    /// The result that speaks for all: of the denials the one with the longest wait (never is longest), else the one
    /// with the fewest remaining; ties go to the first named. An index into `results`; None when no limit applies, or all
    /// are in shadow mode, which never speak for a request.
    pub summary: Option<usize>,
    /// One a part, in request order; of a request that says only what it is, one a limit that applies, by name.
    pub results: Vec<Outcome>,
    /// A key's unsent spend has become large: flush now rather than at the next interval.
    pub urgent: bool,
}

impl Answer {
    /// How long an admitted caller is to wait for its turn, nanoseconds.
    pub fn delay_ns(&self) -> u64 {
        let enforced = self.results.iter().filter(|outcome| !outcome.limit.is_shadow());
        if self.allowed { enforced.map(Outcome::delay_ns).max().unwrap_or(0) } else { 0 }
    }

    /// What speaks for all.
    pub fn summary(&self) -> Option<&Outcome> {
        self.results.get(self.summary?)
    }
}

/// What one replica adds to a key's usage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaUsage {
    /// Who.
    pub replica: ReplicaId,
    /// What its cells add to the slots that count, weighted as the limit weighs them; a bucket's `spent` in the slots
    /// held. These need not sum to the key's `used`.
    pub used: u64,
}

/// What is known of a key.
#[derive(Clone, Debug)]
pub struct Usage {
    /// The limit, with the allowance of this key.
    pub limit: Arc<Limit>,
    /// The key it is counted under, where that is not the one asked for.
    pub counted_as: Option<String>,
    /// Tokens used, whole.
    pub used: u64,
    /// Requests of cost 1 that would be admitted now.
    pub remaining: u64,
    /// By replica, this node's own first where it has spent.
    pub replicas: Vec<ReplicaUsage>,
}

/// All cells held of a key.
#[derive(Clone, Debug)]
pub struct KeyCells {
    /// What gives their numbers a meaning.
    pub shape: Shape,
    /// By slot, then replica.
    pub cells: Vec<SlotCell>,
    /// Who is behind the numbers.
    pub replicas: Vec<(ReplicaIx, ReplicaId)>,
}

/// A request that cannot be decided. Nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No limit has this name.
    #[error("no limit is called {limit:?}")]
    UnknownLimit {
        /// Which of the parts, from 0.
        index: usize,
        /// What it named.
        limit: String,
    },
    /// The key is empty or too long.
    #[error("a key has 1 to {max} bytes, this one {len}", max = super::MAX_KEY_BYTES)]
    BadKey {
        /// Which of the parts, from 0.
        index: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// The limit counts addresses, and the key is none.
    #[error("{problem}")]
    NoAddress {
        /// Which of the parts, from 0.
        index: usize,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A field of a request that says what it is.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// The key that a limit makes of what a request says is too long.
    #[error("the key it makes for the limit {limit:?} has {len} bytes: at most {max}", max = super::MAX_KEY_BYTES)]
    LongKey {
        /// The limit.
        limit: String,
        /// The length in bytes.
        len: usize,
    },
    /// More limits apply than a request may have checks.
    #[error("more than {max} limits apply to it: give some of them conditions in `when`", max = super::MAX_ASKS)]
    TooManyMatch,
    /// No part or too many.
    #[error("a request has 1 to {max} checks, this one {count}", max = super::MAX_ASKS)]
    BadCount {
        /// How many it had.
        count: usize,
    },
}

impl AskError {
    /// The field that is wrong, as JSON requests have it; `listed`: the parts stand in a list.
    pub fn field(&self, listed: bool) -> String {
        let place = |index: &usize| if listed { format!("checks[{index}].") } else { String::new() };
        match self {
            Self::UnknownLimit { index, .. } => format!("{}limit", place(index)),
            Self::BadKey { index, .. } | Self::NoAddress { index, .. } => format!("{}key", place(index)),
            Self::Descriptor(error) => format!("descriptors.{}", error.field),
            Self::LongKey { .. } | Self::TooManyMatch => "descriptors".to_owned(),
            Self::BadCount { .. } => "checks".to_owned(),
        }
    }
}
