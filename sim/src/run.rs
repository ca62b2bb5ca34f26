//! What both tiers have in common: a schedule goes in, a run comes out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::schedule::Schedule;
use crate::trace::Trace;

/// True time when a run begins: any instant will do, but always the same.
pub const EPOCH: Duration = Duration::from_secs(1_800_000_000);

/// Which parts of a run are real.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Nodes without tasks and sockets, on an event queue of our own: thousands of seeds a minute.
    Protocol,
    /// Whole nodes with their API over real QUIC: tens of seeds a minute.
    Node,
}

/// What went over the wire between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// UDP packets sent, lost ones too; in the protocol tier frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    /// In which tier it ran.
    pub tier: Tier,
    /// For the checks.
    pub history: History,
    /// Between the nodes, of all of them.
    pub traffic: Traffic,
    /// The trace hash.
    pub trace_hash: String,
    /// How much was simulated, milliseconds.
    pub simulated_ms: u64,
}

impl Tier {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Node => "node",
        }
    }

    /// Runs a schedule to its end.
    ///
    /// # Errors
    /// When a node does not start, an answer cannot be read, or the run does not come to an end: a failed run, like a
    /// broken property.
    pub fn run(self, schedule: Schedule, trace: Trace) -> anyhow::Result<Run> {
        let mut run = match self {
            Self::Protocol => crate::protocol::run(schedule, trace),
            Self::Node => crate::node::run(schedule, trace),
        }?;
        run.history.tell_states();
        Ok(run)
    }
}
