//! Good clocks do not drive each other forward: no slot clock runs further ahead of true time than the furthest system
//! clock has been, nor stays behind it, but for what packets that come late, and links that are longer one way than back, make a peer's clock
//! seem to be ahead.

use crate::clock::SimClock;
use crate::history::{History, Probe};

/// Latencies of the node tier are whole milliseconds.
const ROUNDING_NS: i64 = 2_000_000;

/// After this all have met and measured the ways between them, nanoseconds.
const MET_NS: u64 = 3_000_000_000;
/// What drift and a beat's interval make of a clock that is followed, nanoseconds.
const FOLLOWS_NS: i64 = 10_000_000;

pub fn broken(history: &History) -> Vec<String> {
    let asymmetry_ns = history.schedule.asymmetry_us() * 1_000;
    let late_ns = (history.schedule.worst_weather().late_ms * 1_000_000 + asymmetry_ns) as i64;
    let clocks: Vec<SimClock> =
        (0..history.schedule.nodes.len()).map(|node| SimClock::of(&history.schedule, node, history.epoch_ns)).collect();
    let mut found = Vec::new();
    let mut furthest_ns = i64::MIN;
    for probe in &history.probes {
        furthest_ns = furthest_ns.max(furthest_by(history, &clocks, probe.at_ns));
        let lead_ns = lead_ns(history, probe);
        if lead_ns > furthest_ns + late_ns + ROUNDING_NS {
            found.push(format!(
                "the slot clock of {} was {} us ahead of true time at {} ms, the furthest clock {} us",
                history.life_name(probe.life),
                lead_ns / 1_000,
                probe.at_ns / 1_000_000,
                furthest_ns / 1_000
            ));
        }
    }
    found.extend(behind(history, &clocks));
    found
}

/// A slow node follows the furthest of its peers: where nothing but offset and drift is wrong with clocks and nothing with
/// links, no slot clock stays behind the furthest system clock by more than that.
fn behind(history: &History, clocks: &[SimClock]) -> Vec<String> {
    let quiet = history.schedule.troubles().next().is_none();
    let least = clocks.iter().map(|clock| clock.offset_ns).min().unwrap_or(0);
    let most = clocks.iter().map(|clock| clock.offset_ns).max().unwrap_or(0);
    if !quiet || most - least > history.retention.max_skew_ns as i64 * 9 / 10 {
        return Vec::new();
    }
    let allowed_ns = (history.schedule.asymmetry_us() * 1_000) as i64 + FOLLOWS_NS;
    let late = history.probes.iter().filter(|probe| probe.at_ns > MET_NS);
    let behind = late.filter_map(|probe| {
        let now = clocks.iter().map(|clock| clock.system_at(probe.at_ns)).max()?;
        let by_ns = now as i64 - probe.slot_now_ns as i64;
        (by_ns > allowed_ns).then(|| {
            let (name, at_ms) = (history.life_name(probe.life), probe.at_ns / 1_000_000);
            format!("the slot clock of {name} was {} us behind the furthest clock at {at_ms} ms", by_ns / 1_000)
        })
    });
    behind.collect()
}

/// How far a slot clock is ahead of true time.
fn lead_ns(history: &History, probe: &Probe) -> i64 {
    probe.slot_now_ns as i64 - (history.epoch_ns + probe.at_ns) as i64
}

/// How far ahead of true time the furthest system clock is, or was right after a step before then.
fn furthest_by(history: &History, clocks: &[SimClock], at_ns: u64) -> i64 {
    let lead = |clock: &SimClock, at_ns: u64| clock.system_at(at_ns) as i64 - (history.epoch_ns + at_ns) as i64;
    let looked_at = |clock: &SimClock| {
        let steps = clock.steps.iter().map(|step| step.0).filter(|step| *step <= at_ns);
        steps.chain([0, at_ns]).map(|at_ns| lead(clock, at_ns)).max()
    };
    clocks.iter().filter_map(looked_at).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{MS, probe, quiet};
    use crate::schedule::{Event, What};

    #[test]
    fn a_clock_that_was_driven_ahead() {
        let mut history = quiet();
        history.schedule.nodes[1].clock_offset_us = 7_000;
        history.probes = vec![probe(0, 20, &[])];
        history.probes[0].slot_now_ns += 9 * MS;
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes[0].slot_now_ns += 1;
        assert_eq!(broken(&history).len(), 1);
        history.probes = vec![probe(0, 3_100, &[])];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.schedule.nodes[1].clock_offset_us = 11_000;
        assert_eq!(broken(&history).len(), 1);
        history.schedule.nodes[1].clock_offset_us = 7_000;
        history.probes = vec![probe(0, 20, &[])];
        history.probes[0].slot_now_ns += 9 * MS + 1;
        history.schedule.events = vec![Event { at_ms: 10, what: What::Step { node: 2, by_ms: 8 } }];
        assert_eq!(broken(&history), Vec::<String>::new());
    }
}
