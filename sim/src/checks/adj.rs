//! Good clocks do not drive each other forward: no slot clock runs ahead of the furthest system clock by more than what
//! packets that come late make a peer's clock seem to be ahead.

use crate::history::{History, Probe};
use crate::scenario::Scenario;

/// The simulated network's latencies are whole milliseconds.
const ROUNDING_NS: i64 = 2_000_000;

pub fn broken(history: &History) -> Vec<String> {
    let late_ns = (history.scenario.weather.late_ms * 1_000_000) as i64;
    let too_far = history
        .probes
        .iter()
        .filter(|probe| lead_ns(history, probe) > furthest_ns(&history.scenario, probe.at_ns) + late_ns + ROUNDING_NS);
    let tell = |probe: &Probe| {
        format!(
            "the slot clock of {} was {} us ahead of true time at {} ms, the furthest clock {} us",
            history.node_name(probe.life.node),
            lead_ns(history, probe) / 1_000,
            probe.at_ns / 1_000_000,
            furthest_ns(&history.scenario, probe.at_ns) / 1_000
        )
    };
    too_far.map(tell).collect()
}

/// How far a slot clock is ahead of true time.
fn lead_ns(history: &History, probe: &Probe) -> i64 {
    probe.slot_now_ns as i64 - (history.epoch_ns + probe.at_ns) as i64
}

/// How far ahead of true time the furthest system clock has been by then.
fn furthest_ns(scenario: &Scenario, at_ns: u64) -> i64 {
    let ahead = |drifted: i64, offset_us: i64| offset_us * 1_000 + drifted.max(0);
    let nodes = scenario.nodes.iter();
    nodes.map(|n| ahead(at_ns as i64 * n.clock_drift_ppm / 1_000_000, n.clock_offset_us)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{MS, probe, quiet};

    #[test]
    fn a_clock_that_was_driven_ahead() {
        let mut history = quiet();
        for node in &mut history.scenario.nodes {
            (node.clock_offset_us, node.clock_drift_ppm) = (0, 0);
        }
        history.scenario.nodes[1].clock_offset_us = 7_000;
        history.probes = vec![probe(0, 20, &[])];
        history.probes[0].slot_now_ns += 9 * MS;
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes[0].slot_now_ns += 1;
        assert_eq!(broken(&history).len(), 1);
    }
}
