//! What must hold of every run: one file per property, each with a test on a bad history made by hand. A check reads a
//! [`History`] and says in words what broke; it knows nothing of how the history came about. Safety is held at every
//! step, faults or not; liveness once they are over.
//!
//! A new property is a file here and a line in [`CHECKS`].

mod adj;
mod answers;
mod bounds;
mod clock;
mod complete;
mod converged;
mod dropped;
mod expired;
mod held;
mod known;
mod monotone;
mod phantom;
mod places;
mod promise;
mod settled;
mod waits;

#[cfg(test)]
pub(crate) mod hand;

use crate::history::History;

pub use converged::{time_to_converge_ms, time_to_heal_ms};
pub use phantom::false_denials;
pub use promise::{due_ns, near};

/// How many breaches of one property are told; the rest are counted.
const TOLD: usize = 3;

/// A property.
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What must hold.
    pub about: &'static str,
    /// What broke it, in words.
    broken: fn(&History) -> Vec<String>,
}

const fn check(name: &'static str, about: &'static str, broken: fn(&History) -> Vec<String>) -> Check {
    Check { name, about, broken }
}

/// All properties.
pub const CHECKS: &[Check] = &[
    check("answers", "no answer contradicts itself, living nodes owe none, strangers are told why", answers::broken),
    check(
        "phantom",
        "no node holds more than was spent, or denies what all true spends leave room for",
        phantom::broken,
    ),
    check(
        "held",
        "no node admits what it had said it would deny, or what the cells it held leave no room for",
        held::broken,
    ),
    check(
        "promise",
        "an admission is over the limit by no more than what others spent too late to be known",
        promise::broken,
    ),
    check(
        "known",
        "a spend is known elsewhere in time, and after faults within what it takes to get over them",
        known::broken,
    ),
    check("complete", "a node that says it knows all up to a time does", complete::broken),
    check(
        "monotone",
        "within a life a node's count of anyone in a slot does not fall, nor go before it expired",
        monotone::broken,
    ),
    check("dropped", "a dropped slot does not come back", dropped::broken),
    check("clock", "a slot clock does not run backwards", clock::broken),
    check("adj", "slot clocks are not driven ahead of the furthest system clock", adj::broken),
    check("bounds", "every queue and map is within its bound", bounds::broken),
    check("converged", "once all is calm every node holds what was spent, and all the same", converged::broken),
    check(
        "settled",
        "then all are connected, caught up, ready, of one mind about limits; far clocks are told",
        settled::broken,
    ),
    check("waits", "then remaining and retry_after are true, to either side", waits::broken),
    check("expired", "once everything has expired nothing is held", expired::broken),
];

/// A property that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Breach {
    /// Which property.
    pub check: &'static str,
    /// What broke it: the first few.
    pub told: Vec<String>,
    /// How many breaches there were.
    pub count: usize,
}

/// Every property that does not hold.
pub fn broken(history: &History) -> Vec<Breach> {
    let breach = |check: &Check| {
        let mut told = (check.broken)(history);
        let count = told.len();
        told.truncate(TOLD);
        (count > 0).then_some(Breach { check: check.name, told, count })
    };
    CHECKS.iter().filter_map(breach).collect()
}

/// Whether one property holds.
pub fn holds(history: &History, name: &str) -> bool {
    CHECKS.iter().filter(|check| check.name == name).all(|check| (check.broken)(history).is_empty())
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let more = self.count - self.told.len();
        let more = if more > 0 { format!("\n  {}: and {more} more", self.check) } else { String::new() };
        let lines: Vec<String> = self.told.iter().map(|told| format!("  {}: {told}", self.check)).collect();
        write!(f, "{}{more}", lines.join("\n"))
    }
}
