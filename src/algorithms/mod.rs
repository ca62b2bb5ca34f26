//! One file per algorithm: a pure read of cells and time. Integers only: two nodes given the same state and time
//! answer the same on every platform.
//!
//! Every algorithm comes down to a [`Level`]: how many tokens count against the capacity now, and when that will have
//! fallen to a given number if nothing else arrives. [`decide`] makes a decision of it.

pub mod bucket;
pub mod calendar;
mod sliding;
mod whole;
pub mod window;

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is admitted, and is to wait this many nanoseconds for its turn: 0 without a queue.
    Admitted(u64),
    /// It would be admitted after this many nanoseconds, at the least 1.
    After(u64),
    /// Its cost can never fit.
    Never,
}

/// What counts against a key's capacity at one instant.
pub trait Level {
    /// Tokens used, rounded up to whole tokens (windows round their estimate down, as their definition has it).
    fn used(&self) -> u64;

    /// The least wait, in nanoseconds, after which `used` is at most `tokens` if nothing else arrives; 0 when it is so
    /// already; saturates at `u64::MAX`.
    fn wait_until_at_most(&self, tokens: u64) -> u64;
}

/// Whether a cost fits, now or within `queue_ns`, and if not, when.
pub fn decide(level: &impl Level, capacity: u64, queue_ns: u64, cost: u64) -> Verdict {
    if cost == 0 {
        return Verdict::Admitted(0);
    }
    let Some(room) = capacity.checked_sub(cost) else { return Verdict::Never };
    if level.used() <= room {
        return Verdict::Admitted(0);
    }
    match level.wait_until_at_most(room).max(1) {
        wait_ns if wait_ns <= queue_ns => Verdict::Admitted(wait_ns),
        wait_ns => Verdict::After(wait_ns - queue_ns),
    }
}

/// `ceil(a / b)`, saturated to u64. `b` is above 0.
pub(crate) fn div_ceil_saturating(a: u128, b: u128) -> u64 {
    match (u64::try_from(a), u64::try_from(b)) {
        // The common case by far; a 128-bit division costs several times as much.
        (Ok(a), Ok(b)) => a.div_ceil(b),
        _ => u64::try_from(a.div_ceil(b)).unwrap_or(u64::MAX),
    }
}
