//! A check that cannot fail is no check: bugs are planted in the product, one at a time, and each must be found by the
//! check that is there for it, within a stated number of seeds. Only with the feature `planted`.
//!
//! A new bug is a variant of [`PlantedBug`], a hook in the product, and a line in [`EXPECTED`].

use std::path::Path;

use tidegate::planted::{PlantedBug, plant};

/// Where what is left of schedules is kept, a file a bug.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schedules");

use crate::checks;
use crate::report::Report;
use crate::run::Tier;
use crate::scenarios::{SCENARIOS, Scenario, Switches, draw_with, find};
use crate::schedule::{Schedule, read};
use crate::shrink::{NO_END, shrink};
use crate::trace::Trace;

/// What is expected of the simulation with one bug planted.
pub struct Expected {
    /// The bug.
    pub bug: PlantedBug,
    /// The scenario whose seeds are tried, from 1 on; None: all in turn, as a sweep does.
    pub scenario: Option<&'static str>,
    /// The check that must find it.
    pub check: &'static str,
    /// Within so many seeds.
    pub within: u64,
}

/// What became of a planted bug.
pub struct Found {
    /// How many seeds it took.
    pub seeds: u64,
    /// The schedule that showed it.
    pub schedule: Schedule,
    /// All checks that broke in that run.
    pub broke: Vec<&'static str>,
    /// What the check said.
    pub told: String,
}

impl Expected {
    /// Which schedule the seed gives.
    fn schedule(&self, tier: Tier, seed: u64) -> Schedule {
        let in_turn = || &SCENARIOS[(seed % SCENARIOS.len() as u64) as usize];
        let scenario: &Scenario = self.scenario.and_then(find).unwrap_or_else(in_turn);
        draw_with(scenario, seed, &Switches { node_tier: tier == Tier::Node, ..Switches::default() })
    }

    /// Tries seeds until the check finds the bug; None: it does not.
    pub fn find(&self, tier: Tier) -> Option<Found> {
        (1..=self.within).find_map(|seed| {
            let schedule = self.schedule(tier, seed);
            let broken = with_bug(self.bug, || run(tier, &schedule));
            let breach = broken.iter().find(|breach| breach.0 == self.check)?;
            let (broke, told) = (broken.iter().map(|breach| breach.0).collect(), breach.1.clone());
            Some(Found { seeds: seed, schedule: schedule.clone(), broke, told })
        })
    }

    /// Whether the schedule that is kept of the bug still shows it; None: none is kept.
    pub fn kept_shows_it(&self) -> Option<bool> {
        let path = Path::new(KEPT).join(format!("{}.json", self.bug.name()));
        let schedule = read(&path).ok()?;
        let broken = with_bug(self.bug, || run(Tier::Protocol, &schedule));
        Some(broken.iter().any(|breach| breach.0 == self.check))
    }

    /// Makes the schedule smaller that showed the bug.
    pub fn shrink(&self, found: &Found) -> Schedule {
        with_bug(self.bug, || shrink(&found.schedule, self.check).schedule)
    }
}

/// Whether a schedule is clean without any bug.
pub fn is_clean(tier: Tier, schedule: &Schedule) -> bool {
    run(tier, schedule).is_empty()
}

/// The checks that a run breaks, and the first thing that each says.
fn run(tier: Tier, schedule: &Schedule) -> Vec<(&'static str, String)> {
    match std::panic::catch_unwind(|| tier.run(schedule.clone(), Trace::new())) {
        Ok(Ok(run)) => {
            let _figures_do_not_panic = Report::of(&run);
            let told = |breach: checks::Breach| (breach.check, breach.told.into_iter().next().unwrap_or_default());
            checks::broken(&run.history).into_iter().map(told).collect()
        }
        Ok(Err(error)) => vec![(NO_END, format!("{error:#}"))],
        Err(_) => vec![(NO_END, "a panic".to_owned())],
    }
}

/// Plants a bug in this thread for as long as `work` takes.
fn with_bug<T>(bug: PlantedBug, work: impl FnOnce() -> T) -> T {
    plant(Some(bug));
    let done = work();
    plant(None);
    done
}

const fn expected(bug: PlantedBug, scenario: Option<&'static str>, check: &'static str, within: u64) -> Expected {
    Expected { bug, scenario, check, within }
}

/// All bugs, and what finds them.
pub const EXPECTED: &[Expected] = &[
    expected(PlantedBug::MergeAdds, None, "phantom", 5),
    expected(PlantedBug::MergeOverwrites, Some("restart"), "monotone", 20),
    expected(PlantedBug::ResetInPlace, None, "phantom", 5),
    expected(PlantedBug::AckOverGap, Some("partition"), "complete", 10),
    expected(PlantedBug::GenerationReused, Some("restart"), "monotone", 20),
    expected(PlantedBug::CapIsCapacity, Some("skew"), "promise", 10),
    expected(PlantedBug::FinOfGlobalView, Some("wrong-boot"), "phantom", 60),
    expected(PlantedBug::SlotClockStamps, Some("clocks"), "adj", 10),
    expected(PlantedBug::AcksKept, Some("processes"), "settled", 60),
    expected(PlantedBug::ClaimAtEnd, Some("joins"), "known", 10),
    expected(PlantedBug::HaveAhead, Some("restart"), "complete", 20),
    expected(PlantedBug::EarlyComplete, None, "complete", 5),
    expected(PlantedBug::CompleteByFirst, Some("churn"), "complete", 40),
    expected(PlantedBug::ResetEpoch, Some("limits"), "promise", 100),
    expected(PlantedBug::DroppedAcked, Some("churn"), "complete", 20),
    expected(PlantedBug::BeatBelieved, Some("partition"), "complete", 10),
    expected(PlantedBug::BaseTooLate, Some("debts"), "promise", 60),
    expected(PlantedBug::SlotResurrected, Some("wrong-boot"), "dropped", 20),
    expected(PlantedBug::ResetIgnored, Some("limits"), "answers", 20),
    expected(PlantedBug::DebitsForgiven, Some("debts"), "promise", 40),
    expected(PlantedBug::AdjIgnored, Some("skew"), "adj", 5),
    expected(PlantedBug::ClockBackwards, Some("wrong-boot"), "clock", 40),
    expected(PlantedBug::CellsUnbounded, Some("churn"), "bounds", 40),
    expected(PlantedBug::NeverSwept, None, "expired", 40),
    expected(PlantedBug::ClaimsOfTheFuture, Some("wrong-boot"), "complete", 40),
    expected(PlantedBug::BaseTooSoon, Some("debts"), "promise", 200),
    expected(PlantedBug::RecoveredAsOfNow, Some("debts"), "promise", 100),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::CHECKS;

    #[test]
    fn every_bug_is_expected_by_a_check_and_a_scenario_that_there_are() {
        for bug in PlantedBug::ALL {
            assert_eq!(EXPECTED.iter().filter(|expected| expected.bug == *bug).count(), 1, "{}", bug.name());
        }
        for expected in EXPECTED {
            assert!(CHECKS.iter().any(|check| check.name == expected.check), "{}", expected.check);
            assert!(expected.scenario.is_none_or(|name| find(name).is_some()), "{:?}", expected.scenario);
        }
    }
}
