//! What kinds of trouble a run has.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::schedule::{Operation, Schedule, What};

/// Clocks as they are without a fault: microseconds from true time, and parts per million.
const WELL: (u64, u64) = (1_000, 20);

/// What is troubled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Links are cut.
    Cut,
    /// Packets are lost, late, repeated, changed.
    Weather,
    /// Clocks are apart or jump; machines stand still.
    Clock,
    /// Processes die.
    Process,
    /// Disks take no writes, or lose them.
    Disk,
    /// Limits change.
    Limit,
    /// Keys are reset.
    Reset,
    /// Someone who does not belong connects.
    Stranger,
}

/// The kinds of trouble in a schedule; none: nothing is wrong in it.
pub fn of(schedule: &Schedule) -> BTreeSet<Kind> {
    let clocks = schedule.nodes.iter().filter_map(|node| {
        let well = node.clock_offset_us.unsigned_abs() <= WELL.0 && node.clock_drift_ppm.unsigned_abs() <= WELL.1;
        (!well).then_some(Kind::Clock)
    });
    schedule.events.iter().filter_map(|event| kind(&event.what)).chain(clocks).collect()
}

fn kind(what: &What) -> Option<Kind> {
    match what {
        What::Ask(ask) => (ask.op == Operation::Reset).then_some(Kind::Reset),
        What::Cut { .. } | What::Heal { .. } => Some(Kind::Cut),
        What::Weather(_) => Some(Kind::Weather),
        What::Crash { .. } | What::Start { .. } => Some(Kind::Process),
        What::Copy { .. } | What::Disk { .. } | What::Damage { .. } => Some(Kind::Disk),
        What::Step { .. } | What::Pause { .. } | What::Resume { .. } => Some(Kind::Clock),
        What::Limit { .. } => Some(Kind::Limit),
        What::Stranger { .. } => Some(Kind::Stranger),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;

    #[test]
    fn asking_is_no_trouble_and_a_reset_is() {
        let mut drawing = Drawing::new("by-hand", 1, 3);
        drawing.ask(1_000, 0, 0, 1);
        assert_eq!(of(&drawing.schedule), BTreeSet::new());
        drawing.cut_between(0, 1, 2_000, 3_000);
        drawing.at(3_000, What::Crash { node: 0 });
        drawing.schedule.nodes[2].clock_drift_ppm = -21;
        assert_eq!(of(&drawing.schedule), [Kind::Cut, Kind::Process, Kind::Clock].into());
    }
}
