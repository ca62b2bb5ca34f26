//! A schedule: all that is to happen in a run, as data. A seed draws it, both tiers carry it out, a file keeps it, and
//! what fails is made smaller by leaving events out.
//!
//! Whatever is still wrong when the run is to be calm ends by itself at [`Schedule::calm_ms`]: every schedule from which
//! events were left out is a schedule.

mod drawing;
mod file;
mod topology;

use serde::{Deserialize, Serialize};
use tidegate::limits::{Limit, LimitSpec, SpecError};

pub use drawing::{Drawing, FAULTS_FROM_MS, LOAD_FROM_MS};
pub use file::{FileError, VERSION, read, write};
pub use topology::{ROUND_TRIPS, draw_regions};

/// One run. All times are milliseconds of the run, in which true time passes from 0.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// [`VERSION`].
    pub version: u32,
    /// Which scenario drew it.
    pub scenario: String,
    /// From which seed.
    pub seed: u64,
    /// One node a region, or several.
    pub nodes: Vec<NodePlan>,
    /// Every pair of nodes, by index.
    pub links: Vec<Link>,
    /// How the nodes are set up.
    pub setup: Setup,
    /// The limits that all nodes have at first.
    pub limits: Vec<LimitSpec>,
    /// What is counted.
    pub keys: Vec<KeyPlan>,
    /// When the load ends: nothing is asked at or after this.
    pub load_until_ms: u64,
    /// When everything is well again, at the latest: links, weather, disks, processes.
    pub calm_ms: u64,
    /// How long after that the nodes may take to agree.
    pub settle_ms: u64,
    /// Whether the run goes on until all has expired, to see that memory is free again (protocol tier).
    pub until_expired: bool,
    /// In the order of time.
    pub events: Vec<Event>,
}

/// A node and its clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePlan {
    /// Its name; a region's, numbered where there are several of one.
    pub name: String,
    /// Microseconds ahead of true time at the start.
    pub clock_offset_us: i64,
    /// Parts per million.
    pub clock_drift_ppm: i64,
}

/// How far apart two nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The one.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// Milliseconds from the one to the other.
    pub one_way_ms: u64,
    /// Milliseconds from the other to the one.
    pub back_ms: u64,
}

/// What all nodes have in their configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// `gossip.interval`.
    pub interval_ms: u64,
    /// Recent chunks kept for peers.
    pub ring_bytes: usize,
    /// `node.max_keys`.
    pub max_keys: u64,
    /// `node.max_cells`.
    pub max_cells: u64,
}

/// A key of a limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPlan {
    /// Index of the limit.
    pub limit: usize,
    /// The key.
    pub key: String,
    /// Where `remaining` and `retry_after` are tried once all is quiet; None: nowhere.
    pub tried_at: Option<usize>,
}

/// Something that happens.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happens.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum What {
    /// A client asks a node.
    Ask(Ask),
    /// Nothing passes from one node to another; what is under way the other way does.
    Cut {
        /// From which.
        from: usize,
        /// To which.
        to: usize,
    },
    /// It passes again.
    Heal {
        /// From which.
        from: usize,
        /// To which.
        to: usize,
    },
    /// The weather changes, everywhere.
    Weather(Weather),
    /// The process dies: what it held in memory is gone, and what its disk had not made durable.
    Crash {
        /// Which.
        node: usize,
    },
    /// It is started again.
    Start {
        /// Which.
        node: usize,
        /// On which disk.
        disk: DiskState,
    },
    /// A copy of its disk is put aside.
    Copy {
        /// Which.
        node: usize,
    },
    /// Something is wrong with its disk, or right again.
    Disk {
        /// Which.
        node: usize,
        /// What; None: nothing.
        fault: Option<DiskTrouble>,
    },
    /// Some of its records rot.
    Damage {
        /// Which.
        node: usize,
        /// How many.
        records: usize,
    },
    /// Its system clock jumps.
    Step {
        /// Which.
        node: usize,
        /// By how much.
        by_ms: i64,
    },
    /// The whole machine stands still; its monotonic clock with it, its system clock not.
    Pause {
        /// Which.
        node: usize,
    },
    /// It goes on.
    Resume {
        /// Which.
        node: usize,
    },
    /// Its configuration changes one limit.
    Limit {
        /// Which node.
        node: usize,
        /// Index of the limit.
        limit: usize,
        /// What it is from now on.
        spec: Box<LimitSpec>,
    },
    /// Someone who does not belong to the cluster, or speaks otherwise, connects.
    Stranger {
        /// To which node.
        node: usize,
        /// Who.
        who: Stranger,
    },
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// Whom.
    pub node: usize,
    /// Index of the key.
    pub key: usize,
    /// Tokens.
    pub cost: u32,
    /// What for.
    #[serde(default, skip_serializing_if = "Operation::is_check")]
    pub op: Operation,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Decide and take.
    #[default]
    Check,
    /// Take whatever the state.
    Debit,
    /// The full allowance back.
    Reset,
}

impl Operation {
    fn is_check(&self) -> bool {
        *self == Self::Check
    }
}

/// The disk that a process is started on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskState {
    /// As the crash left it.
    Kept,
    /// Empty.
    Empty,
    /// The copy that was put aside; empty when none was.
    Copy,
}

/// What is wrong with a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskTrouble {
    /// Nothing can be written.
    Full,
    /// Writes fail, and may be there all the same.
    Failing,
    /// Writes seem to work, and a crash tears them off.
    Lying,
    /// A round of the journal takes as long as the trouble lasts (protocol tier).
    Slow,
}

/// Who connects without belonging there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stranger {
    /// A node of another cluster.
    ForeignCluster,
    /// A node of another protocol version.
    UnknownVersion,
    /// One whose certificate does not bear its name.
    WrongName,
    /// One that sends rubbish.
    Rubbish,
}

/// What single packets or frames suffer: how many of a million.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Weather {
    /// Packets lost.
    pub loss_ppm: u32,
    /// Packets arriving twice.
    pub duplicate_ppm: u32,
    /// Packets late, by up to `late_ms`, and so behind later ones.
    pub late_ppm: u32,
    /// Milliseconds.
    pub late_ms: u64,
    /// Packets whose bytes change on the way.
    pub corrupt_ppm: u32,
    /// Frames that vanish, come twice or out of order although the stream goes on: more than QUIC ever does, and what the
    /// protocol must bear all the same (protocol tier).
    pub gap_ppm: u32,
}

impl Weather {
    /// Whether nothing is suffered.
    pub fn is_fair(&self) -> bool {
        *self == Self::default()
    }
}

impl Schedule {
    /// The limits as the product reads them.
    ///
    /// # Errors
    /// When one is not valid.
    pub fn checked_limits(&self) -> Result<Vec<Limit>, SpecError> {
        self.limits.iter().map(LimitSpec::check).collect()
    }

    /// Milliseconds from one node to another.
    pub fn one_way_ms(&self, a: usize, b: usize) -> u64 {
        let there = self.links.iter().find(|link| (link.a, link.b) == (a, b)).map(|link| link.one_way_ms);
        let back = || self.links.iter().find(|link| (link.b, link.a) == (a, b)).map(|link| link.back_ms);
        there.or_else(back).unwrap_or(0)
    }

    /// By how much a stamp may seem ahead because its way was shorter than half the round trip, at most, microseconds.
    pub fn asymmetry_us(&self) -> u64 {
        self.links.iter().map(|link| link.one_way_ms.abs_diff(link.back_ms) * 500).max().unwrap_or(0)
    }

    /// When all must be settled.
    pub fn settled_ms(&self) -> u64 {
        self.calm_ms + self.settle_ms
    }

    /// The requests, in order.
    pub fn asks(&self) -> impl Iterator<Item = (u64, &Ask)> {
        self.events.iter().filter_map(|event| match &event.what {
            What::Ask(ask) => Some((event.at_ms, ask)),
            _ => None,
        })
    }

    /// Everything that is no request.
    pub fn troubles(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| !matches!(event.what, What::Ask(_)))
    }

    /// Every other node.
    pub fn others(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.nodes.len()).filter(move |other| *other != node)
    }

    /// The worst weather of the run, each figure by itself.
    pub fn worst_weather(&self) -> Weather {
        self.events.iter().fold(Weather::default(), |worst, event| match event.what {
            What::Weather(w) => Weather {
                loss_ppm: worst.loss_ppm.max(w.loss_ppm),
                duplicate_ppm: worst.duplicate_ppm.max(w.duplicate_ppm),
                late_ppm: worst.late_ppm.max(w.late_ppm),
                late_ms: worst.late_ms.max(w.late_ms),
                corrupt_ppm: worst.corrupt_ppm.max(w.corrupt_ppm),
                gap_ppm: worst.gap_ppm.max(w.gap_ppm),
            },
            _ => worst,
        })
    }

    /// Puts the events in the order of time; those of one time keep their order.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.at_ms);
    }
}
