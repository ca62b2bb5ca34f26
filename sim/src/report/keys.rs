//! What a run came to for one key.

use serde::{Deserialize, Serialize};

use super::promises::{self, Held};
use super::two;
use crate::bound::{EXPECTED_NODES, bucket_cap};
use crate::checks;
use crate::history::{History, Outcome, Request};
use crate::model::{Ledger, Rule, Spend};
use crate::schedule::{Event, Operation, What};

/// A key in figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyFigures {
    /// How its limit counts.
    pub algorithm: String,
    /// Its consistency word.
    pub consistency: String,
    /// Seconds.
    pub window_s: f64,
    /// Tokens it has when nothing was used.
    pub capacity: u64,
    /// Tokens asked for.
    pub offered: u64,
    /// Tokens admitted.
    pub admitted: u64,
    /// Tokens that one limiter which hears of everything at once would have admitted.
    pub allowed: u64,
    /// The most used beyond the limit at one instant, per cent of the limit.
    pub worst_pct: f64,
    /// The most that the promise allows for, in the same terms: what was asked of others too late to be known.
    pub promised_pct: f64,
    /// What the formula for evenly arriving load expects of a window, in the same terms.
    pub predicted_pct: f64,
    /// Whether its limit stayed as it was, its count was not reset and no machine stood still: only then `promised_pct` bounds `worst_pct`.
    pub steady: bool,
    /// Whether its load arrived evenly: only then `predicted_pct` says anything.
    pub even: bool,
    /// Admitted during cuts, per cent of the limit, and its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Held>,
    /// The longest that a bucket told to wait, seconds, and its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Held>,
    /// Denials that an omniscient node would not have made.
    pub false_denials: u64,
    /// Requests denied.
    pub denials: u64,
}

/// Admitted beyond allowed, per cent of allowed.
pub fn over_pct(admitted: u64, allowed: u64) -> f64 {
    100.0 * (admitted as f64 / allowed.max(1) as f64 - 1.0)
}

/// The figures of a key.
pub fn figures(history: &History, key: usize) -> KeyFigures {
    let limit = history.limit(key);
    let requests = answered(history, key);
    let tokens = |which: &dyn Fn(&Request) -> bool| requests.iter().filter(|r| which(r)).map(|r| r.cost).sum::<u64>();
    let spec = &history.schedule.limits[history.schedule.keys[key].limit];
    let capacity = limit.capacity().max(1) as f64;
    KeyFigures {
        algorithm: limit.algorithm.as_str().to_owned(),
        consistency: spec.consistency.clone().unwrap_or_else(|| "eventual".to_owned()),
        window_s: limit.window_ns as f64 / 1e9,
        capacity: limit.capacity(),
        offered: tokens(&|_| true),
        admitted: tokens(&|request| request.outcome == Outcome::Admitted),
        allowed: one_limiter(history.rule(key), &with_debits(history, key)).iter().sum(),
        worst_pct: two(100.0 * worst(history, key) as f64 / capacity),
        promised_pct: two(100.0 * promises::instant(history, key) / capacity),
        predicted_pct: two(100.0 * promises::even_load(history, key, &requests) / capacity),
        steady: is_steady(history, key),
        even: is_even(&requests, history.schedule.nodes.len()),
        cut: promises::cut(history, key, &requests),
        recovery: promises::recovery(history, key),
        false_denials: checks::false_denials(history).iter().filter(|request| request.key == key).count() as u64,
        denials: requests.iter().filter(|request| request.outcome == Outcome::Denied).count() as u64,
    }
}

/// The checks of a key that were answered, in the order in which they were.
pub fn answered(history: &History, key: usize) -> Vec<&Request> {
    let mut all: Vec<&Request> = history.load().filter(|request| request.key == key && request.decided()).collect();
    all.sort_by_key(|request| request.answered_ns);
    all
}

/// Those, and the debits between them.
fn with_debits(history: &History, key: usize) -> Vec<&Request> {
    let counts = |r: &&Request| r.key == key && (r.decided() || (r.op == Operation::Debit && r.surely_took()));
    let mut all: Vec<&Request> = history.load().filter(counts).collect();
    all.sort_by_key(|request| request.answered_ns);
    all
}

/// What one limiter that hears of everything at once admits of each request, by the clocks of the nodes asked. A debit it
/// takes, and counts as nothing that was asked for.
pub fn one_limiter(rule: Rule, requests: &[&Request]) -> Vec<u64> {
    let (mut now_ns, mut taken) = (0, Ledger::new(rule, u64::MAX));
    let decide = |request: &&Request| {
        now_ns = request.slot_to_ns.max(now_ns);
        let debit = request.op == Operation::Debit;
        let fits = debit || taken.used(now_ns) + request.cost <= rule.capacity();
        if fits {
            taken.add(Spend { at_ns: now_ns, tokens: request.cost });
        }
        if fits && !debit { request.cost } else { 0 }
    };
    requests.iter().map(decide).collect()
}

/// The most tokens used beyond the limit by an admission. Spends whose stamps are far from true time are left out: they
/// are promised to count nowhere.
fn worst(history: &History, key: usize) -> u64 {
    let rule = history.rule(key);
    let mut spends: Vec<&Request> = history
        .load()
        .filter(|request| request.key == key && request.surely_took() && checks::near(history, request))
        .collect();
    spends.sort_by_key(|spend| spend.answered_ns);
    let mut taken = Ledger::new(rule, bucket_cap(history.limit(key), EXPECTED_NODES));
    let over = spends.iter().map(|spend| {
        taken.add(spend.earliest());
        let over = taken.used(spend.slot_to_ns).saturating_sub(rule.capacity());
        if spend.decided() { over } else { 0 }
    });
    over.max().unwrap_or(0)
}

/// Whether a key's limit stays as it is at first, its count is not reset, and no machine stands still: one that goes on
/// decides for a moment by a clock that is behind, and what others spent since then lies in its future.
pub fn is_steady(history: &History, key: usize) -> bool {
    let of = history.schedule.keys[key].limit;
    let changes = |event: &Event| match event.what {
        What::Limit { limit, .. } => limit == of,
        What::Pause { .. } => true,
        _ => false,
    };
    history.resets(key).next().is_none() && !history.schedule.events.iter().any(changes)
}

/// Whether every node that is asked at all is asked from the beginning to the end, at gaps that do not differ much.
fn is_even(requests: &[&Request], nodes: usize) -> bool {
    /// A gap may be so many times the mean one.
    const GAPS: u64 = 3;
    let ends = |of: fn(u64, u64) -> u64| requests.iter().map(|request| request.sent_ns).reduce(of);
    let (Some(from_ns), Some(until_ns)) = (ends(u64::min), ends(u64::max)) else { return false };
    (0..nodes).all(|node| {
        let of = requests.iter().filter(|request| request.life.node == node).map(|request| request.sent_ns);
        let mut sent: Vec<u64> = of.collect();
        let mean_ns = (until_ns - from_ns) / (sent.len() as u64).max(1);
        sent.extend([from_ns, until_ns]);
        sent.sort_unstable();
        sent.len() == 2 || sent.windows(2).all(|pair| pair[1] - pair[0] <= GAPS * mean_ns)
    })
}

/// For each node, what it admitted of the keys that all nodes were asked for alike, over an equal share.
pub fn shares(history: &History) -> Vec<f64> {
    let nodes = history.schedule.nodes.len();
    let keys = history.schedule.keys.len();
    let mut offered = vec![0u64; nodes * keys];
    let mut admitted = vec![0u64; nodes * keys];
    for request in history.load().filter(|request| request.op == Operation::Check) {
        let at = request.key * nodes + request.life.node;
        offered[at] += request.cost;
        admitted[at] += if request.outcome == Outcome::Admitted { request.cost } else { 0 };
    }
    let even = |key: &usize| {
        let of = &offered[key * nodes..(key + 1) * nodes];
        let (most, least) = (of.iter().max().copied().unwrap_or(0), of.iter().min().copied().unwrap_or(0));
        least > 0 && most * 10 <= least * 13
    };
    let even: Vec<usize> = (0..keys).filter(even).collect();
    let by_node = |node: usize| even.iter().map(|key| admitted[key * nodes + node]).sum::<u64>();
    let fair = (0..nodes).map(by_node).sum::<u64>() as f64 / nodes as f64;
    (0..nodes).map(|node| if fair > 0.0 { by_node(node) as f64 / fair } else { 1.0 }).collect()
}
