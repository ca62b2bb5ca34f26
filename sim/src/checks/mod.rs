//! What must hold of every run: one file per property, each with a test on a bad history made by hand. A check reads a
//! [`History`] and says in words what broke; it knows nothing of how the history came about.

mod adj;
mod answers;
mod clock;
mod converged;
mod held;
mod monotone;
mod phantom;
mod promise;
mod waits;

#[cfg(test)]
mod hand;

use crate::history::History;

pub use converged::{time_to_converge_ms, time_to_heal_ms};
pub use phantom::false_denials;

/// How many breaches of one property are told; the rest are counted.
const TOLD: usize = 3;

/// A property and what it found.
type Check = (&'static str, fn(&History) -> Vec<String>);

const CHECKS: [Check; 9] = [
    ("answers", answers::broken),
    ("phantom", phantom::broken),
    ("converged", converged::broken),
    ("held", held::broken),
    ("promise", promise::broken),
    ("monotone", monotone::broken),
    ("clock", clock::broken),
    ("adj", adj::broken),
    ("waits", waits::broken),
];

/// Every property that does not hold, in words.
pub fn broken(history: &History) -> Vec<String> {
    let mut all = Vec::new();
    for (name, check) in CHECKS {
        let found = check(history);
        all.extend(found.iter().take(TOLD).map(|what| format!("{name}: {what}")));
        if found.len() > TOLD {
            all.push(format!("{name}: and {} more", found.len() - TOLD));
        }
    }
    all
}
