//! What a sweep came to, as a file keeps it.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::Report;
use crate::run::Tier;
use crate::states::States;

/// A sweep in figures. Keys that were not asked for more than their limit are left out of its runs: nothing could go over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// In which tier.
    pub tier: Tier,
    /// The first seed.
    pub first_seed: u64,
    /// How many, one after the other.
    pub seeds: u64,
    /// Whether all faults were allowed and every seed was run.
    pub whole: bool,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Seeds a minute.
    pub per_minute: f64,
    /// Which states were reached.
    pub states: Vec<StateCount>,
    /// Which runs failed.
    pub failures: Vec<Failed>,
    /// Every run that came to its end.
    pub runs: Vec<Report>,
}

/// How often a state was reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateCount {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Whether the tier can reach it.
    pub reachable: bool,
    /// How often.
    pub count: u64,
}

/// A run that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// Which scenario.
    pub scenario: String,
    /// Which seed.
    pub seed: u64,
    /// The properties that broke.
    pub checks: Vec<String>,
}

impl Document {
    /// From a file that `sweep --json` wrote.
    ///
    /// # Errors
    /// When it cannot be read, or is something else.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let of = || format!("{}: this is no document of `tidegate-sim sweep --json` of this version", path.display());
        serde_json::from_slice(&text).with_context(of)
    }

    /// The states as a document has them.
    pub fn states(states: &States, tier: Tier) -> Vec<StateCount> {
        let count = |(state, count): (crate::states::State, u64)| StateCount {
            name: state.name.to_owned(),
            about: state.about.to_owned(),
            reachable: state.tiers.contains(&tier),
            count,
        };
        states.iter().map(count).collect()
    }

    /// A run without what a document does not keep.
    pub fn kept(mut run: Report) -> Report {
        run.keys.retain(|key| key.offered > key.capacity);
        run.broken.clear();
        run
    }

    /// The seeds, for people.
    pub fn seeds(&self) -> String {
        format!("{} to {}", self.first_seed, self.first_seed + self.seeds.max(1) - 1)
    }
}
