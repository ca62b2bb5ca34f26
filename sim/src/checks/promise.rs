//! Over-admission stays within what `eventual` promises: a node may admit too much only on account of spends that had
//! no time to reach it.
//!
//! With every spend known elsewhere within tau, what is admitted beyond the limit is at most what others spend within
//! tau: (1 - sum of squared shares) * load * tau in the mean. Stated for each admission, so that nothing hides in a
//! mean: counting only the node's own spends and those of others that were due to be known to it, it still fits.

use std::collections::BTreeMap;

use crate::bound::{EXPECTED_NODES, bucket_cap, eventual_most};
use crate::history::{History, Life, Outcome, Request};
use crate::model::Ledger;
use crate::reach::arrives_whole;
use crate::schedule::Operation;

/// How far from true time a clock may be whose spends are promised to count everywhere, nanoseconds.
const APART_NS: u64 = 1_900_000_000;

pub fn broken(history: &History) -> Vec<String> {
    let keys = 0..history.schedule.keys.len();
    keys.filter(|key| !history.changes_bucket(*key)).flat_map(|key| of_key(history, key)).collect()
}

fn of_key(history: &History, key: usize) -> Vec<String> {
    let surely = history.requests.iter().filter(|request| request.key == key && request.surely_took());
    let spends: Vec<&Request> = surely.filter(|spend| !history.may_be_forgiven(spend)).collect();
    let mut by_life: BTreeMap<Life, Vec<&Request>> = BTreeMap::new();
    for request in history.requests.iter().filter(|request| request.key == key && request.surely_took()) {
        by_life.entry(request.life).or_default().push(request);
    }
    by_life.into_iter().flat_map(|(life, own)| of_life(history, key, life, &own, &spends)).collect()
}

/// Holds what one life admitted against what it must have known then.
fn of_life(history: &History, key: usize, life: Life, own: &[&Request], spends: &[&Request]) -> Vec<String> {
    let limit = history.limit(key);
    let mut due: Vec<(u64, &Request)> = spends
        .iter()
        .filter(|spend| spend.life != life)
        .filter_map(|spend| Some((due_ns(history, spend, life)?, *spend)))
        .collect();
    due.sort_by_key(|due| due.0);
    let mut due = due.into_iter().peekable();
    let mut ledger = Ledger::new(history.rule(key), bucket_cap(limit, EXPECTED_NODES));
    let mut found = Vec::new();
    for request in own {
        while let Some((_, spend)) = due.next_if(|due| due.0 <= request.sent_ns) {
            enter(&mut ledger, spend);
        }
        let used = ledger.used(request.slot_to_ns);
        let most = history.limits_of(request).iter().map(|limit| eventual_most(limit, 0)).max().unwrap_or(0);
        if request.decided() && request.outcome == Outcome::Admitted && used + request.cost > most {
            found.push(format!(
                "{}, although {used} of {most} were spent long enough before",
                history.request_name(request, "admitted"),
            ));
        }
        // One client asks a node for a key, one thing at a time: the next request comes after this one's answer.
        if !history.may_be_forgiven(request) {
            enter(&mut ledger, request);
        }
    }
    found
}

fn enter(ledger: &mut Ledger, spend: &Request) {
    match spend.op {
        Operation::Debit => ledger.add_debit(spend.earliest()),
        _ => ledger.add(spend.earliest()),
    }
}

/// When a life must know of another's spend, in full; None: that is not promised. What arrived in full stays so, by a base
/// once its slot is dropped, also over a restart.
pub fn due_ns(history: &History, spend: &Request, at: Life) -> Option<u64> {
    let due_ns = history.due_ns(spend, at)?;
    let first_ns = if spend.life.node == at.node {
        spend.answered_ns
    } else {
        history.reach.due_ns(spend.life.node, at.node, spend.answered_ns)?
    };
    let whole = arrives_whole(history.limit(spend.key), &history.retention, spend.answered_ns, first_ns);
    (near(history, spend) && whole).then_some(due_ns)
}

/// Whether a spend's stamp is so near true time that it is promised to count everywhere.
pub fn near(history: &History, spend: &Request) -> bool {
    spend.slot_from_ns.abs_diff(history.epoch_ns + spend.sent_ns) <= APART_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::REJOIN_MS;
    use crate::checks::hand::{cut_1, quiet, request, troubled};

    /// 10 a second, 100 ms from each to each: 170 ms are enough.
    fn overrun(mut history: History, gap_ms: u64) -> History {
        history.requests = vec![request(1, 10, 10, Outcome::Admitted)];
        history.requests.push(request(0, 12 + gap_ms, 1, Outcome::Admitted));
        history
    }

    #[test]
    fn what_had_no_time_to_arrive_is_forgiven_and_nothing_else() {
        assert_eq!(broken(&overrun(quiet(), 169)), Vec::<String>::new());
        assert_eq!(broken(&overrun(quiet(), 170)).len(), 1);
    }

    const _: () = assert!(REJOIN_MS > 600, "the cut below is forgiven by it");

    #[test]
    fn a_cut_gives_time_and_the_own_spends_no_excuse() {
        let mut history = overrun(troubled(&cut_1(100, 400)), 600);
        assert_eq!(broken(&history), Vec::<String>::new());
        history.requests[1].life = history.requests[0].life;
        assert_eq!(broken(&history).len(), 1);
    }
}
