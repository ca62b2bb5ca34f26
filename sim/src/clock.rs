//! The system clock of a simulated machine: off, drifting, stepping.

use crate::schedule::{Schedule, What};

/// A system clock as a function of true time.
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
    /// The clock of a node.
    pub fn of(schedule: &Schedule, node: usize, epoch_ns: u64) -> Self {
        let step = |event: &crate::schedule::Event| match event.what {
            What::Step { node: n, by_ms } if n == node => Some((event.at_ms * 1_000_000, by_ms * 1_000_000)),
            _ => None,
        };
        let plan = &schedule.nodes[node];
        Self {
            epoch_ns,
            offset_ns: plan.clock_offset_us * 1_000,
            drift_ppm: plan.clock_drift_ppm,
            steps: schedule.events.iter().filter_map(step).collect(),
        }
    }

    /// What the system clock shows `elapsed_ns` after the start of the run.
    pub fn system_at(&self, elapsed_ns: u64) -> u64 {
        let drifted = i128::from(elapsed_ns) * i128::from(self.drift_ppm) / 1_000_000;
        let stepped = self.steps.iter().filter(|step| step.0 <= elapsed_ns).map(|step| i128::from(step.1));
        let off = i128::from(self.offset_ns) + drifted + stepped.sum::<i128>();
        let now = i128::from(self.epoch_ns) + i128::from(elapsed_ns) + off;
        u64::try_from(now.max(0)).unwrap_or(u64::MAX)
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
