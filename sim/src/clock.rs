//! The clocks of a simulated machine: virtual time, and a system clock that is off, drifts and steps.

use tidegate::time::Clock;

/// The system clock of one machine, as a function of true time. The monotonic clock is true time: what makes nodes
/// disagree is what they believe the time of day to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SimClock {
    /// True time at the start of the run, nanoseconds since the Unix epoch.
    pub epoch_ns: u64,
    /// How far ahead of true time this clock is at the start, nanoseconds.
    pub offset_ns: i64,
    /// How much faster than true time it runs, parts per million.
    pub drift_ppm: i64,
    /// (when, in nanoseconds of the run; by how many nanoseconds it jumps then).
    pub steps: Vec<(u64, i64)>,
}

impl SimClock {
    /// What the system clock shows `elapsed_ns` after the start of the run.
    pub fn system_at(&self, elapsed_ns: u64) -> u64 {
        let drifted = i128::from(elapsed_ns) * i128::from(self.drift_ppm) / 1_000_000;
        let stepped = self.steps.iter().filter(|step| step.0 <= elapsed_ns).map(|step| i128::from(step.1));
        let off = i128::from(self.offset_ns) + drifted + stepped.sum::<i128>();
        let now = i128::from(self.epoch_ns) + i128::from(elapsed_ns) + off;
        u64::try_from(now.max(0)).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds since the start of the run. Only on a simulated host.
pub fn elapsed_ns() -> u64 {
    let elapsed = turmoil::sim_elapsed().expect("virtual time is read on simulated hosts only");
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

impl Clock for SimClock {
    fn monotonic_ns(&self) -> u64 {
        elapsed_ns()
    }

    fn system_ns(&self) -> u64 {
        self.system_at(elapsed_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn offset_drift_and_steps_add_up() {
        let (epoch_ns, steps) = (100 * SECOND, vec![(5 * SECOND, -2_000_000_000), (9 * SECOND, 7)]);
        let clock = SimClock { epoch_ns, offset_ns: -500, drift_ppm: -200, steps };
        assert_eq!(clock.system_at(0), 100 * SECOND - 500);
        assert_eq!(clock.system_at(4 * SECOND), 104 * SECOND - 500 - 4 * 200_000);
        assert_eq!(clock.system_at(5 * SECOND), 103 * SECOND - 500 - 5 * 200_000);
        assert_eq!(clock.system_at(10 * SECOND), 108 * SECOND - 500 - 10 * 200_000 + 7);
    }

    #[test]
    fn a_clock_before_the_epoch_stands_at_it() {
        assert_eq!(SimClock { offset_ns: -5, ..SimClock::default() }.system_at(3), 0);
    }
}
