//! Over-admission stays within what `eventual` promises: a node may admit too much only on account of spends that had
//! no time to reach it.
//!
//! With every spend known elsewhere within tau, what is admitted beyond the limit is at most what others spend within
//! tau: (1 - sum of squared shares) * load * tau in the mean. Stated for each admission, so that nothing hides in a
//! mean: counting only the node's own spends and those of others that were due to be known to it, it still fits.

use crate::history::{History, Outcome, Request};
use crate::model::Rule;

pub fn broken(history: &History) -> Vec<String> {
    let admitted: Vec<&Request> = history.requests.iter().filter(|r| r.outcome == Outcome::Admitted).collect();
    let mut found = Vec::new();
    for request in &admitted {
        let rule = history.rule(request.key);
        let oldest_ns = request.slot_to_ns.saturating_sub(rule.look_back_ns());
        let known = admitted.iter().filter(|other| {
            other.key == request.key && other.slot_to_ns >= oldest_ns && was_due(history, other, request)
        });
        let used = rule.used(request.slot_to_ns, known.map(|other| other.earliest()));
        if used + request.cost > rule.capacity() + under_count(&rule) {
            found.push(format!(
                "{}, although {used} of {} were spent long enough before",
                history.request_name(request, "admitted"),
                rule.capacity()
            ));
        }
    }
    found
}

/// Whether the node that decided `request` must have known of `other` then.
fn was_due(history: &History, other: &Request, request: &Request) -> bool {
    if other.life == request.life {
        return other.answered_ns <= request.sent_ns;
    }
    history.due_ns(other, request.life).is_some_and(|due_ns| due_ns <= request.sent_ns)
}

/// How many tokens of a bucket's debt the replicated form may not see: those of one slot, a sixteenth of the bucket.
fn under_count(rule: &Rule) -> u64 {
    match rule {
        Rule::Bucket { capacity, .. } => capacity.div_ceil(16),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{quiet, request};
    use crate::scenario::{Fault, REJOIN_MS, What};

    /// 10 a second, 100 ms from each to each: 170 ms are enough.
    fn overrun(gap_ms: u64) -> History {
        let mut history = quiet();
        history.requests = vec![request(1, 10, 10, Outcome::Admitted)];
        history.requests.push(request(0, 12 + gap_ms, 1, Outcome::Admitted));
        history
    }

    #[test]
    fn what_had_no_time_to_arrive_is_forgiven_and_nothing_else() {
        assert_eq!(broken(&overrun(169)), Vec::<String>::new());
        assert_eq!(broken(&overrun(170)).len(), 1);
    }

    const _: () = assert!(REJOIN_MS > 600, "the cut below is forgiven by it");

    #[test]
    fn a_cut_gives_time_and_the_own_spends_no_excuse() {
        let mut history = overrun(600);
        history.scenario.faults =
            vec![Fault { at_ms: 100, what: What::Cut(1) }, Fault { at_ms: 400, what: What::Heal(1) }];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.requests[1].life = history.requests[0].life;
        assert_eq!(broken(&history).len(), 1);
    }
}
