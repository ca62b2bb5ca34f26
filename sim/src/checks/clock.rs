//! A node's slot clock never runs backwards within one life.

use std::collections::HashMap;

use crate::history::History;

pub fn broken(history: &History) -> Vec<String> {
    let mut last = HashMap::new();
    let mut found = Vec::new();
    for probe in &history.probes {
        let before = last.insert(probe.life, probe.slot_now_ns).unwrap_or(0);
        if probe.slot_now_ns < before {
            found.push(format!(
                "the slot clock of {} fell by {} ns before {} ms",
                history.life_name(probe.life),
                before - probe.slot_now_ns,
                probe.at_ns / 1_000_000
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{probe, quiet};

    #[test]
    fn a_clock_that_fell() {
        let mut history = quiet();
        history.probes = vec![probe(0, 20, &[]), probe(1, 10, &[]), probe(0, 30, &[])];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.probes[2].slot_now_ns = 19;
        assert_eq!(broken(&history).len(), 1);
    }
}
