//! Waits as they are told to callers.

use crate::time::{MS, SECOND, SLEW_PPM};

const MILLION: u64 = 1_000_000;

/// Turns waits in slot-clock time into waits by the caller's clock: longer while the slot clock is slewed down, and
/// rounded up, so that whoever waits as told is never too early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    slewing: u64,
    held_ns: u64,
}

impl Waits {
    /// `slewing`: how many parts of the slot clock are slewed down, as it says itself.
    pub(super) fn new(slewing: u64) -> Self {
        Self { slewing, held_ns: 0 }
    }

    /// The same for an answer that was held for so much of its delay already.
    pub(super) fn after(self, held_ns: u64) -> Self {
        Self { held_ns, ..self }
    }

    /// What is left of a delay, milliseconds.
    pub(super) fn delay_ms(self, ns: u64) -> u64 {
        self.ms(ns.saturating_sub(self.held_ns))
    }

    pub(super) fn told_ns(self, ns: u64) -> u64 {
        if self.slewing == 0 {
            return ns;
        }
        // The clock runs at 1 - slewing * 500 ppm.
        let rate = MILLION.saturating_sub(self.slewing.saturating_mul(SLEW_PPM)).max(1);
        u64::try_from((u128::from(ns) * u128::from(MILLION)).div_ceil(u128::from(rate))).unwrap_or(u64::MAX)
    }

    /// Milliseconds.
    pub(super) fn ms(self, ns: u64) -> u64 {
        self.told_ns(ns).div_ceil(MS)
    }

    /// Seconds.
    pub(super) fn seconds(self, ns: u64) -> u64 {
        self.told_ns(ns).div_ceil(SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_up_and_longer_while_slewing() {
        let still = Waits::new(0);
        assert_eq!((still.ms(0), still.ms(1), still.ms(MS), still.ms(MS + 1)), (0, 1, 1, 2));
        assert_eq!((still.seconds(SECOND), still.seconds(SECOND + 1)), (1, 2));
        assert_eq!(Waits::new(1).ms(1_000 * SECOND), 1_000_501);
        assert_eq!(Waits::new(2).ms(1_000 * SECOND), 1_001_002);
        assert_eq!(Waits::new(2).ms(u64::MAX), u64::MAX.div_ceil(MS));
        // What the caller waits is enough for the slowed clock.
        for ns in [1, 999, MS, 7 * SECOND, 3_600 * SECOND + 1] {
            let waited = u128::from(Waits::new(2).told_ns(ns));
            assert!(waited - waited * 1_000 / 1_000_000 >= u128::from(ns));
        }
    }
}
