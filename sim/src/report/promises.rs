//! What is measured of each promise of [`crate::bound`] in a run, beside its bound there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tidegate::algorithms::Verdict;
use tidegate::limits::Algorithm;

use super::keys::is_steady;
use super::kinds::{self, Kind};
use super::{KeyFigures, Report, two};
use crate::bound::{self, Terms};
use crate::checks;
use crate::history::{History, Life, LifeStart, Outcome, Request};
use crate::schedule::{Operation, What};

const MS: u64 = 1_000_000;
/// Longer than any run, and a number in JSON.
const NEVER_MS: f64 = 1e9;

/// A figure beside its bound.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// What was measured.
    pub is: f64,
    /// What it is at most, as promised.
    pub bound: f64,
}

impl Held {
    fn new(is: f64, bound: f64) -> Self {
        Self { is: two(is), bound: two(bound) }
    }

    /// Whether it is within its bound.
    pub fn holds(&self) -> bool {
        self.is <= self.bound
    }
}

/// What a run shows of a promise; empty where its condition is not met.
///
/// # Panics
/// When the promise is new and nothing here measures it.
pub fn measured(report: &Report, promise: &str) -> Vec<Held> {
    let of_keys = |of: &dyn Fn(&KeyFigures) -> Option<Held>| report.keys.iter().filter_map(of).collect();
    match promise {
        "known" => report.known.into_iter().collect(),
        "caught up" => report.caught_up.into_iter().collect(),
        "instant" => of_keys(&|key| key.steady.then_some(Held { is: key.worst_pct, bound: key.promised_pct })),
        "even load" => of_keys(&|key| {
            let applies = report.faults.is_empty() && key.steady && key.even;
            applies.then_some(Held { is: key.worst_pct, bound: key.predicted_pct })
        }),
        "cut" => of_keys(&|key| key.cut),
        "recovery" => of_keys(&|key| key.recovery),
        "false denials" => vec![Held { is: report.false_denials as f64, bound: 0.0 }],
        _ => unreachable!("nothing measures the promise {promise:?}: say in {} how it is", file!()),
    }
}

/// The most tokens over the limit that the promise allows at one instant: what others were asked for and a life could
/// not know of yet. Of a bucket all that was asked for since a cut began, of a window what is within its look-back.
pub fn instant(history: &History, key: usize) -> f64 {
    let (rule, limit) = (history.rule(key), history.limit(key));
    let of_key = |request: &&Request| request.key == key && request.op != Operation::Reset;
    let asked: Vec<&Request> = history.load().filter(of_key).collect();
    let admitted = |request: &&&Request| request.decided() && request.outcome == Outcome::Admitted;
    let lives: BTreeSet<Life> = asked.iter().filter(admitted).map(|request| request.life).collect();
    let mut most = 0;
    for life in lives {
        let own = || asked.iter().filter(|request| request.life == life).filter(admitted);
        let behind_ns = own().map(|r| (history.epoch_ns + r.sent_ns).saturating_sub(r.slot_from_ns)).max().unwrap_or(0);
        // What costs more than there ever is, is not admitted anywhere; what was not answered is not counted either.
        let may_take = |request: &&&Request| {
            request.life != life
                && request.answered_ns != u64::MAX
                && (request.op == Operation::Debit || request.cost <= rule.capacity())
        };
        let mut begins: Vec<(u64, u64)> = Vec::new();
        let mut ends: Vec<(u64, u64)> = Vec::new();
        for request in asked.iter().filter(may_take) {
            let due_ns = checks::due_ns(history, request, life).unwrap_or(u64::MAX);
            // Beyond its look-back it does not count, known or not, by the clock of who looks.
            let ahead_ns = request.slot_to_ns.saturating_sub(history.epoch_ns + request.answered_ns);
            let counts_ns = [rule.look_back_ns(), ahead_ns, behind_ns].iter().sum::<u64>();
            begins.push((request.answered_ns, request.cost));
            ends.push((due_ns.min(request.answered_ns.saturating_add(counts_ns)), request.cost));
        }
        let (begun, ended) = (Sums::new(begins), Sums::new(ends));
        let unknown = own().map(|request| begun.up_to(request.answered_ns) - ended.up_to(request.sent_ns));
        most = most.max(unknown.max().unwrap_or(0));
    }
    (bound::named("instant").of)(&Terms { unknown: most, ..Terms::new(&history.schedule, limit) })
}

/// Tokens by time, summed up.
struct Sums(Vec<(u64, u64)>);

impl Sums {
    fn new(mut of: Vec<(u64, u64)>) -> Self {
        of.sort_unstable();
        let mut sum = 0;
        for (_, tokens) in &mut of {
            sum += *tokens;
            *tokens = sum;
        }
        Self(of)
    }

    fn up_to(&self, at_ns: u64) -> u64 {
        let after = self.0.partition_point(|one| one.0 <= at_ns);
        after.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

/// What the formula for evenly arriving load expects over the limit, tokens.
pub fn even_load(history: &History, key: usize, requests: &[&Request]) -> f64 {
    let capacity = history.limit(key).capacity();
    let requests: Vec<&&Request> = requests.iter().filter(|request| request.cost <= capacity).collect();
    let mut offered = vec![0u64; history.schedule.nodes.len()];
    for request in &requests {
        offered[request.life.node] += request.cost;
    }
    let load: u64 = offered.iter().sum();
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return 0.0 };
    let lasting_s = last.sent_ns.saturating_sub(first.sent_ns).max(1) as f64 / 1e9;
    let shares: Vec<f64> = offered.iter().map(|one| *one as f64 / load.max(1) as f64).collect();
    let terms = Terms::new(&history.schedule, history.limit(key));
    (bound::named("even load").of)(&Terms { shares: &shares, tokens_per_s: load as f64 / lasting_s, ..terms })
}

/// Admitted from the first cut to the last heal, per cent of the limit, were each node a side of its own. None: there was
/// no cut, or something else was wrong besides that gives tokens back.
pub fn cut(history: &History, key: usize, requests: &[&Request]) -> Option<Held> {
    let kinds = kinds::of(&history.schedule);
    if !kinds.contains(&Kind::Cut) || kinds.iter().any(|kind| !matches!(kind, Kind::Cut | Kind::Weather)) {
        return None;
    }
    let events = || history.schedule.events.iter();
    let from_ms = events().find(|event| matches!(event.what, What::Cut { .. }))?.at_ms;
    let until_ms = events().rfind(|event| matches!(event.what, What::Heal { .. }))?.at_ms;
    let within = |request: &&&Request| {
        request.outcome == Outcome::Admitted && request.sent_ns >= from_ms * MS && request.answered_ns <= until_ms * MS
    };
    let admitted: u64 = requests.iter().filter(within).map(|request| request.cost).sum();
    let (limit, sides) = (history.limit(key), history.schedule.nodes.len() as u64);
    let terms = Terms { sides, lasting_ms: until_ms.saturating_sub(from_ms), ..Terms::new(&history.schedule, limit) };
    let of_limit = |tokens: f64| 100.0 * tokens / limit.capacity().max(1) as f64;
    Some(Held::new(of_limit(admitted as f64), of_limit((bound::named("cut").of)(&terms))))
}

/// The longest that a bucket told to wait, seconds. None: it is no bucket, or something was taken that no limit holds.
pub fn recovery(history: &History, key: usize) -> Option<Held> {
    let limit = history.limit(key);
    let of_key = || history.load().filter(|request| request.key == key);
    let bucket = limit.algorithm == Algorithm::TokenBucket && is_steady(history, key);
    if !bucket || of_key().any(|request| request.op == Operation::Debit) {
        return None;
    }
    let waits = of_key().filter(|request| checks::near(history, request)).filter_map(|request| match request.before {
        Verdict::Admitted(_) => Some((0, request.cost)),
        Verdict::After(ns) => Some((ns, request.cost)),
        Verdict::Never => None,
    });
    let (longest_ns, cost) = waits.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
    let terms = Terms { cost, ..Terms::new(&history.schedule, limit) };
    Some(Held::new(longest_ns as f64 / 1e9, (bound::named("recovery").of)(&terms)))
}

/// How long after the load and without faults the last node held all that was spent, milliseconds. Nodes are looked at
/// now and then: up to one look later than it was.
pub fn known(history: &History, converge_ms: Option<u64>) -> Option<Held> {
    if !kinds::of(&history.schedule).is_empty() {
        return None;
    }
    let terms = history.limits.first().map(|limit| Terms::new(&history.schedule, limit))?;
    let bound = (bound::named("known").of)(&terms) + look_ms(history);
    Some(Held::new(converge_ms.map_or(NEVER_MS, |ms| ms as f64), bound))
}

/// How long after the last fault ended every node held all that was spent by then, milliseconds. None: there was no fault,
/// or one after which that is not promised.
pub fn caught_up(history: &History, heal_ms: Option<u64>) -> Option<Held> {
    let healed_ms =
        history.schedule.troubles().map(|event| event.at_ms).filter(|at| *at < history.schedule.calm_ms).max()?;
    let spends = history.load().filter(|request| request.surely_took() && request.answered_ns <= healed_ms * MS);
    let spends: Vec<&Request> = spends.collect();
    let due = |at: &LifeStart| {
        let due = spends.iter().map(|spend| history.due_ns(spend, at.life));
        due.reduce(|most, one| Some(most?.max(one?))).unwrap_or(Some(0))
    };
    let last_ns = history.lives.iter().map(due).reduce(|most, one| Some(most?.max(one?)))??;
    let bound = last_ns.saturating_sub(healed_ms * MS) as f64 / MS as f64 + look_ms(history);
    Some(Held::new(heal_ms.map_or(NEVER_MS, |ms| ms as f64), bound))
}

/// How far apart the looks at a node are, milliseconds.
fn look_ms(history: &History) -> f64 {
    let looks = |node| history.probes.iter().filter(move |probe| probe.life.node == node).rev().take(10);
    let gaps = |node| looks(node).zip(looks(node).skip(1)).map(|(after, before)| after.at_ns - before.at_ns).max();
    (0..history.schedule.nodes.len()).filter_map(gaps).max().unwrap_or(0).div_ceil(MS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::hand::{cut_1, probe, quiet, request, troubled};
    use crate::report::keys::figures;

    /// 10 a second, 100 ms from each to each: 170 ms are enough. 10 at one node, and one more at another after `gap_ms`.
    fn overrun(mut history: History, gap_ms: u64) -> History {
        history.requests = vec![request(1, 10, 10, Outcome::Admitted), request(0, 12 + gap_ms, 1, Outcome::Admitted)];
        history
    }

    #[test]
    fn what_is_over_is_within_its_bound_until_it_had_to_be_known() {
        let of = |history: &History| {
            let key = figures(history, 0);
            (key.worst_pct, key.promised_pct)
        };
        assert_eq!(of(&overrun(quiet(), 169)), (10.0, 100.0));
        assert_eq!(of(&overrun(quiet(), 170)), (10.0, 0.0));
        assert_eq!(of(&overrun(troubled(&cut_1(300, 400)), 170)), (10.0, 0.0));
        assert_eq!(of(&overrun(troubled(&cut_1(5, 400)), 170)), (10.0, 100.0));
    }

    #[test]
    fn what_can_never_be_admitted_is_not_unknown() {
        let mut history = overrun(quiet(), 100);
        history.requests.push(request(2, 60, 11, Outcome::Denied));
        assert_eq!(figures(&history, 0).promised_pct, 100.0);
        history.requests.push(request(2, 60, 9, Outcome::Denied));
        assert_eq!(figures(&history, 0).promised_pct, 190.0);
    }

    #[test]
    fn what_sides_admit_while_cut() {
        let history = overrun(troubled(&cut_1(5, 400)), 170);
        // 11 of 10, where three sides had two windows each.
        assert_eq!(figures(&history, 0).cut, Some(Held { is: 110.0, bound: 600.0 }));
        assert_eq!(figures(&overrun(quiet(), 170), 0).cut, None);
    }

    #[test]
    fn a_bucket_that_tells_to_wait() {
        let mut history = quiet();
        let bucket = crate::load::limit("token_bucket", 10, 1, 20);
        history.limits = vec![bucket.check().expect("a good limit")];
        let waits = Request { before: Verdict::After(3_500 * MS), ..request(0, 500, 2, Outcome::Denied) };
        history.requests = vec![waits, request(1, 500, 1, Outcome::Admitted)];
        // 7 nodes more may each owe 30; the last 2 tokens, and 2 s for clocks that are apart.
        assert_eq!(recovery(&history, 0), Some(Held { is: 3.5, bound: 21.2 + 2.0 }));
    }

    #[test]
    fn times_beside_their_bounds() {
        let mut well = quiet();
        for ms in [1_600, 1_650] {
            well.probes.extend([0, 1, 2].map(|node| probe(node, ms, &[])));
        }
        // 50 + 100 + 20 ms, and 50 between looks.
        assert_eq!(known(&well, Some(140)), Some(Held { is: 140.0, bound: 220.0 }));
        assert!(!known(&well, None).expect("nothing is wrong").holds());
        assert_eq!(caught_up(&well, Some(0)), None);
        let mut cut = overrun(troubled(&cut_1(5, 400)), 170);
        cut.probes = well.probes;
        assert_eq!(known(&cut, Some(140)), None);
        // A second after the heal, and the way.
        assert_eq!(caught_up(&cut, Some(900)), Some(Held { is: 900.0, bound: 1_000.0 + 170.0 + 50.0 }));
    }
}
