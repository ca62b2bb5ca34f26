//! Makes a failing schedule smaller: leaves events out as long as the same property still breaks.
//!
//! This is delta debugging (Zeller and Hildebrandt, 2002): halves first, then smaller and smaller pieces. What is left is
//! small in that no single event can be left out any more, unless the tries ran out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checks;
use crate::reach::Reach;
use crate::run::Tier;
use crate::schedule::{Event, Schedule, What};
use crate::trace::Trace;

/// Runs that a shrinking takes at most.
pub const MOST_TRIES: usize = 600;
/// How long after the last fault is got over all must be settled at the earliest, milliseconds.
const AFTER_MS: u64 = 1_000;
/// The name under which a run that panics or does not come to its end counts as broken.
pub const NO_END: &str = "no end";

/// A schedule made smaller.
#[derive(Debug)]
pub struct Shrunk {
    /// What is left.
    pub schedule: Schedule,
    /// How many runs it took.
    pub tries: usize,
}

/// Leaves out of a schedule what is not needed to break `check` in the protocol tier.
pub fn shrink(schedule: &Schedule, check: &str) -> Shrunk {
    let mut shrinking = Shrinking { best: schedule.clone(), check, tries: 0 };
    // Faults first: they are few, and most are not needed.
    shrinking.pieces(|event| !matches!(event.what, What::Ask(_)));
    shrinking.pieces(|event| matches!(event.what, What::Ask(_)));
    shrinking.pieces(|_| true);
    shrinking.keys();
    Shrunk { schedule: shrinking.best, tries: shrinking.tries }
}

struct Shrinking<'a> {
    best: Schedule,
    check: &'a str,
    tries: usize,
}

impl Shrinking<'_> {
    /// Leaves out pieces of the events that `of` picks.
    fn pieces(&mut self, of: impl Fn(&Event) -> bool) {
        let mut pieces = 2;
        loop {
            let picked: Vec<usize> = (0..self.best.events.len()).filter(|at| of(&self.best.events[*at])).collect();
            if picked.is_empty() || self.tries >= MOST_TRIES {
                return;
            }
            let len = picked.len().div_ceil(pieces).max(1);
            let smaller = picked.chunks(len).find_map(|left_out| self.without(left_out));
            match smaller {
                Some(smaller) => {
                    self.best = smaller;
                    pieces = (pieces - 1).max(2);
                }
                None if len == 1 => return,
                None => pieces = (2 * pieces).min(picked.len()),
            }
        }
    }

    /// Does not try keys of which nothing is asked.
    fn keys(&mut self) {
        for key in 0..self.best.keys.len() {
            let mut smaller = self.best.clone();
            smaller.keys[key].tried_at = None;
            smaller.until_expired = false;
            if self.breaks(&smaller) {
                self.best = smaller;
            }
        }
    }

    /// The schedule without these events, if it still breaks.
    fn without(&mut self, left_out: &[usize]) -> Option<Schedule> {
        let mut smaller = self.best.clone();
        let mut at = 0;
        smaller.events.retain(|_| {
            at += 1;
            left_out.binary_search(&(at - 1)).is_err()
        });
        // What was to end a fault may be gone: it then ends when all is to be calm, and takes its time.
        let over_ms = Reach::new(&smaller).over_ms();
        smaller.settle_ms = smaller.settle_ms.max((over_ms + AFTER_MS).saturating_sub(smaller.calm_ms));
        self.breaks(&smaller).then_some(smaller)
    }

    fn breaks(&mut self, schedule: &Schedule) -> bool {
        self.tries += 1;
        self.tries <= MOST_TRIES && breaks(schedule, self.check)
    }
}

/// Whether a schedule breaks a property in the protocol tier.
pub fn breaks(schedule: &Schedule, check: &str) -> bool {
    let run = catch_unwind(AssertUnwindSafe(|| Tier::Protocol.run(schedule.clone(), Trace::new())));
    match run {
        Ok(Ok(run)) => !checks::holds(&run.history, check),
        Ok(Err(_)) | Err(_) => check == NO_END,
    }
}
