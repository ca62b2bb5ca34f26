//! What a run came to, in figures: one line of a table, or one JSON document.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::keys::{self, KeyFigures};
use super::kinds::{self, Kind};
use super::promises::{self, Held};
use super::two;
use crate::checks::{self, Breach};
use crate::run::{Run, Tier};

/// A run in figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// In which tier.
    pub tier: Tier,
    /// Which scenario.
    pub scenario: String,
    /// Which seed.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// How many regions they are in.
    pub regions: usize,
    /// From one node to another in the mean, milliseconds.
    pub mean_one_way_ms: u64,
    /// What was wrong in it; empty: nothing.
    pub faults: BTreeSet<Kind>,
    /// Tokens asked for while the load lasted.
    pub offered: u64,
    /// Tokens admitted.
    pub admitted: u64,
    /// Tokens that one limiter which hears of everything at once would have admitted of the same requests.
    pub allowed: u64,
    /// Admitted beyond allowed, per cent of allowed; negative when less was admitted.
    pub over_pct: f64,
    /// The most that was ever used beyond a limit at one instant, per cent of that limit.
    pub worst_pct: f64,
    /// The most that `(1 - sum of squared shares) * load * tau` comes to for a key, per cent of its limit, tau being as it
    /// is without faults.
    pub predicted_pct: f64,
    /// Denials that an omniscient node of the same clock would not have made.
    pub false_denials: u64,
    /// How long after load and faults the last node held all that was spent, milliseconds; None: never.
    pub converge_ms: Option<u64>,
    /// How long after the last fault ended every node held all that had been spent by then, milliseconds; None: never.
    pub heal_ms: Option<u64>,
    /// `converge_ms` and its bound, of a run without faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Held>,
    /// `heal_ms` and its bound, of a run with faults after which one is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caught_up: Option<Held>,
    /// UDP packets between the nodes; in the protocol tier frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The smallest share of what was admitted that a node got, over a fair share of it by its load.
    pub least_share: f64,
    /// The largest.
    pub most_share: f64,
    /// Virtual time, milliseconds.
    pub simulated_ms: u64,
    /// Over everything that happened.
    pub trace_hash: String,
    /// Key by key.
    pub keys: Vec<KeyFigures>,
    /// The properties that do not hold.
    #[serde(default, skip_deserializing)]
    pub broken: Vec<Breach>,
}

impl Report {
    /// The figures of a run.
    pub fn of(run: &Run) -> Self {
        let history = &run.history;
        let keys: Vec<KeyFigures> = (0..history.schedule.keys.len()).map(|key| keys::figures(history, key)).collect();
        let sum = |of: fn(&KeyFigures) -> u64| keys.iter().map(of).sum::<u64>();
        let (admitted, allowed) = (sum(|key| key.admitted), sum(|key| key.allowed));
        let largest = |of: fn(&KeyFigures) -> f64| keys.iter().map(of).fold(0.0, f64::max);
        let shares = keys::shares(history);
        let links = &history.schedule.links;
        let mut regions: Vec<&str> = history.schedule.nodes.iter().map(|node| region(&node.name)).collect();
        regions.sort_unstable();
        regions.dedup();
        let (converge_ms, heal_ms) = (checks::time_to_converge_ms(history), checks::time_to_heal_ms(history));
        Self {
            tier: run.tier,
            scenario: history.schedule.scenario.clone(),
            seed: history.schedule.seed,
            nodes: history.schedule.nodes.len(),
            regions: regions.len(),
            mean_one_way_ms: links.iter().map(|link| link.one_way_ms).sum::<u64>() / links.len().max(1) as u64,
            faults: kinds::of(&history.schedule),
            offered: sum(|key| key.offered),
            admitted,
            allowed,
            over_pct: two(keys::over_pct(admitted, allowed)),
            worst_pct: largest(|key| key.worst_pct),
            predicted_pct: largest(|key| key.predicted_pct),
            false_denials: sum(|key| key.false_denials),
            converge_ms,
            heal_ms,
            known: promises::known(history, converge_ms),
            caught_up: promises::caught_up(history, heal_ms),
            packets: run.traffic.packets,
            bytes: run.traffic.bytes,
            least_share: two(shares.iter().copied().fold(f64::INFINITY, f64::min)),
            most_share: two(shares.iter().copied().fold(0.0, f64::max)),
            simulated_ms: run.simulated_ms,
            trace_hash: run.trace_hash.clone(),
            broken: checks::broken(history),
            keys,
        }
    }

    /// The heading of [`Report::row`].
    pub fn heading() -> String {
        format!(
            "{:>10} {:>6} {:>5} {:>7} {:>8} {:>7} {:>6} {:>6} {:>8} {:>6} {:>8} {:>8} {:>7} {:>8} {:>11}  {}",
            "scenario",
            "seed",
            "nodes",
            "offered",
            "admitted",
            "allowed",
            "over%",
            "worst%",
            "predict%",
            "falsed",
            "converge",
            "heal",
            "packets",
            "bytes",
            "share",
            "trace hash"
        )
    }

    /// One line of a table.
    pub fn row(&self) -> String {
        let time = |ms: Option<u64>| ms.map_or("never".to_owned(), |ms| format!("{ms}ms"));
        let (converge, heal) = (time(self.converge_ms), time(self.heal_ms));
        let share = format!("{:.2}-{:.2}", self.least_share, self.most_share);
        format!(
            "{:>10} {:>6} {:>5} {:>7} {:>8} {:>7} {:>6.1} {:>6.1} {:>8.1} {:>6} {converge:>8} {heal:>8} {:>7} {:>8} {share:>11}  {}",
            self.scenario,
            self.seed,
            self.nodes,
            self.offered,
            self.admitted,
            self.allowed,
            self.over_pct,
            self.worst_pct,
            self.predicted_pct,
            self.false_denials,
            self.packets,
            self.bytes,
            self.trace_hash
        )
    }
}

/// The region of a node's name: several of one region are numbered.
fn region(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((region, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => region,
        _ => name,
    }
}

/// What several runs came to: means and extremes.
pub fn summary(reports: &[Report]) -> String {
    let figures = |of: fn(&Report) -> f64| {
        let all = reports.iter().map(of);
        (all.clone().sum::<f64>() / reports.len().max(1) as f64, all.fold(f64::NEG_INFINITY, f64::max))
    };
    let (over, worst) = (figures(|r| r.over_pct), figures(|r| r.worst_pct));
    let converge = figures(|r| r.converge_ms.map_or(f64::INFINITY, |ms| ms as f64));
    let least_share = reports.iter().map(|r| r.least_share).fold(f64::INFINITY, f64::min);
    format!(
        "{} seeds, {} with a broken property; mean/max: over {:.1}/{:.1} %, worst instant {:.1}/{:.1} %, converged in \
         {:.0}/{:.0} ms; {} false denials; the smallest share of a node {least_share:.2} of a fair one",
        reports.len(),
        reports.iter().filter(|r| !r.broken.is_empty()).count(),
        over.0,
        over.1,
        worst.0,
        worst.1,
        converge.0,
        converge.1,
        reports.iter().map(|r| r.false_denials).sum::<u64>(),
    )
}
