//! Deciding a request: find every key, lock their shards, decide all, take from all or from none, and tell how things
//! stand afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::bindings::{Bindings, Bound, Part};
use super::names::Standing;
use super::read::{At, Figures};
use super::shard::{Shard, shard_of};
use super::spend::Spend;
use super::{Answer, Ask, AskError, Engine, Op, Outcome, Reason};
use crate::algorithms::{Verdict, decide};
use crate::id::KeyHash;
use crate::limits::{Descriptors, OnFull};
use crate::planted::{self, PlantedBug};
use crate::time::SECOND;

/// When a request may be admitted that a full table denied: expired keys are swept about once a second.
const TABLE_FULL_RETRY_NS: u64 = SECOND;

/// One key of a request: what is asked of it and what came of it.
struct Item<'a> {
    bound: &'a Arc<Bound>,
    key: KeyHash,
    /// The sum, where the request names the key more than once.
    cost: u64,
    /// Which of the locked shards.
    guard: usize,
    /// Its entry, where anything is held.
    id: Option<u32>,
    verdict: Verdict,
    /// None when the verdict is to admit.
    reason: Option<Reason>,
    /// Admitted, but the table of keys is full: nothing is taken.
    uncounted: bool,
    /// Whether it was newly counted as an own key.
    reserved: bool,
}

/// A request, as its keys see it.
#[derive(Clone, Copy)]
struct Request {
    op: Op,
    at: At,
}

impl Engine {
    /// Decides a request.
    pub fn decide(&self, now_ns: u64, op: Op, asks: &[Ask<'_>]) -> Result<Answer, AskError> {
        Ask::right_count(asks.len())?;
        loop {
            let bindings = self.bindings.load();
            let answer = match asks {
                [ask] => self.decide_one(&bindings, now_ns, op, bindings.resolve(0, ask)?),
                _ => {
                    let part = |(index, ask)| bindings.resolve(index, ask);
                    let parts = asks.iter().enumerate().map(part).collect::<Result<_, _>>()?;
                    self.decide_several(&bindings, now_ns, op, parts)
                }
            };
            // None: newer limits came into force meanwhile.
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    /// Decides a request that says only what it is, by all limits that are for it. None is: it is admitted.
    pub fn decide_matching(
        &self,
        now_ns: u64,
        op: Op,
        request: &Descriptors<'_>,
        cost: u32,
    ) -> Result<Answer, AskError> {
        loop {
            let bindings = self.bindings.load();
            let mut parts = bindings.match_all(request, cost)?;
            let answer = match (parts.pop(), parts.is_empty()) {
                (None, _) => Some(Answer { allowed: true, summary: None, results: Vec::new(), urgent: false }),
                (Some(only), true) => self.decide_one(&bindings, now_ns, op, only),
                (Some(last), false) => {
                    parts.push(last);
                    self.decide_several(&bindings, now_ns, op, parts)
                }
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    fn decide_one(&self, bindings: &Bindings, now_ns: u64, op: Op, part: Part<'_>) -> Option<Answer> {
        let mut shard = self.shards[shard_of(part.key)].lock();
        if !shard.accepts(bindings.generation) {
            return None;
        }
        let request = Request { op, at: self.at(now_ns.max(shard.last_ns)) };
        let mut item = Item::new(part.bound, part.key, part.cost.into());
        self.judge(&mut shard, &mut item, &request);
        let allowed = !item.denies();
        if item.admits() {
            self.take(&mut shard, &mut item, &request);
        }
        let (mut outcome, urgent) = self.outcome(&mut shard, &item, &request);
        drop(shard);
        outcome.counted_as = part.counted_as;
        let summary = (!outcome.limit.is_shadow()).then_some(0);
        Some(Answer { allowed, summary, results: vec![outcome], urgent })
    }

    fn decide_several(&self, bindings: &Bindings, now_ns: u64, op: Op, parts: Vec<Part<'_>>) -> Option<Answer> {
        let (mut items, item_of) = combine(&parts);
        let mut guards = self.lock_all(bindings, &mut items)?;
        let last_ns = guards.iter().map(|shard| shard.last_ns).max().unwrap_or(0);
        let request = Request { op, at: self.at(now_ns.max(last_ns)) };
        for item in &mut items {
            self.judge(&mut guards[item.guard], item, &request);
        }
        let admitted = !items.iter().any(Item::denies);
        for item in &mut items {
            // A limit in shadow mode takes what it would have taken enforced: nothing of what it would have denied.
            match admitted && item.admits() {
                true => self.take(&mut guards[item.guard], item, &request),
                false => self.unreserve(item),
            }
        }
        let outcomes: Vec<_> = items.iter().map(|item| self.outcome(&mut guards[item.guard], item, &request)).collect();
        drop(guards);
        let urgent = outcomes.iter().any(|(_, urgent)| *urgent);
        let result =
            |(part, item): (Part<'_>, usize)| Outcome { counted_as: part.counted_as, ..outcomes[item].0.clone() };
        let results: Vec<_> = parts.into_iter().zip(item_of).map(result).collect();
        Some(Answer { allowed: admitted, summary: summary(&results, admitted), results, urgent })
    }

    /// All at once, in one order for everybody. None when one of them was decided by newer limits.
    fn lock_all(&self, bindings: &Bindings, items: &mut [Item<'_>]) -> Option<Vec<MutexGuard<'_, Shard>>> {
        let mut wanted: Vec<_> = items.iter().map(|item| shard_of(item.key)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for item in items.iter_mut() {
            item.guard = wanted.partition_point(|shard| *shard < shard_of(item.key));
        }
        let mut guards: Vec<_> = wanted.into_iter().map(|shard| self.shards[shard].lock()).collect();
        guards.iter_mut().all(|shard| shard.accepts(bindings.generation)).then_some(guards)
    }

    fn at(&self, now_ns: u64) -> At {
        At { now_ns, max_skew_ns: self.settings.retention.max_skew_ns }
    }

    /// Decides for one key, taking nothing; a new key's place in the table is reserved when the request would take.
    fn judge(&self, shard: &mut Shard, item: &mut Item<'_>, request: &Request) {
        let bound = item.bound;
        self.carry(shard, bound, item.key, request.at.now_ns, true);
        item.id = shard.find(bound.info.ix, item.key);
        let takes = match request.op {
            Op::Reset => true,
            // Of what is not held nothing can be given back.
            Op::Refund => item.cost > 0 && item.id.is_some(),
            Op::Check | Op::Peek | Op::Debit => item.cost > 0,
        };
        if !takes {
            return;
        }
        if matches!(request.op, Op::Check | Op::Peek) {
            let level = shard.level(item.id, &bound.info, &request.at);
            item.verdict = decide(&level, bound.capacity, bound.queue_ns, item.cost);
            item.reason = match item.verdict {
                Verdict::Admitted(_) => None,
                Verdict::After(_) => Some(Reason::Quota),
                Verdict::Never => Some(Reason::CostOverLimit),
            };
        }
        let counted = item.id.is_some_and(|id| shard.slab[id].standing.counted().is_some());
        if item.admits() && !counted {
            self.reserve(item, request.op);
        }
    }

    /// Counts a new own key, or says that there is no room for it.
    fn reserve(&self, item: &mut Item<'_>, op: Op) {
        let bound = item.bound;
        let keys = [(&self.own_keys, self.settings.max_keys), (&*bound.own_keys, bound.max_keys)];
        if op == Op::Peek {
            if bound.on_full == OnFull::Deny && keys.iter().any(|(count, max)| count.load(Ordering::Relaxed) >= *max) {
                item.deny_for_full_table();
            }
            return;
        }
        for (count, _) in keys {
            count.fetch_add(1, Ordering::Relaxed);
        }
        item.reserved = true;
        if keys.iter().all(|(count, max)| count.load(Ordering::Relaxed) <= *max) {
            return;
        }
        self.unreserve(item);
        if op == Op::Check && bound.on_full == OnFull::Deny {
            self.counters.full_denied.fetch_add(1, Ordering::Relaxed);
            item.deny_for_full_table();
        } else {
            self.counters.full_allowed.fetch_add(1, Ordering::Relaxed);
            item.uncounted = true;
        }
    }

    fn unreserve(&self, item: &mut Item<'_>) {
        if std::mem::take(&mut item.reserved) {
            self.own_keys.fetch_sub(1, Ordering::Relaxed);
            item.bound.own_keys.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes what was decided.
    fn take(&self, shard: &mut Shard, item: &mut Item<'_>, request: &Request) {
        let takes = match request.op {
            Op::Peek => false,
            Op::Reset => !planted::has(PlantedBug::ResetIgnored),
            Op::Refund => item.cost > 0 && item.id.is_some(),
            Op::Check | Op::Debit => item.cost > 0,
        };
        if !takes || item.uncounted {
            return;
        }
        let (info, now_ns) = (&item.bound.info, request.at.now_ns);
        shard.last_ns = now_ns;
        let id = item.id.unwrap_or_else(|| shard.entry(info.ix, item.key));
        item.id = Some(id);
        if std::mem::take(&mut item.reserved) {
            shard.slab[id].standing = Standing::own(item.bound.ix);
        }
        match request.op {
            Op::Reset => shard.reset(id, info, now_ns),
            Op::Refund => shard.refund(id, info, &request.at, item.cost),
            op => shard.spend(id, &Spend { info, now_ns, tokens: item.cost, debit: op == Op::Debit }),
        }
    }

    /// How things stand after the request, and whether peers should hear of it at once.
    fn outcome(&self, shard: &mut Shard, item: &Item<'_>, request: &Request) -> (Outcome, bool) {
        let bound = item.bound;
        let figures = Figures::of(&shard.level(item.id, &bound.info, &request.at), bound.capacity);
        let unsent = item.id.map_or(0, |id| shard.slab[id].unsent);
        let urgent = match request.op {
            Op::Check | Op::Debit => self.is_urgent(unsent, bound.capacity, figures.remaining),
            Op::Reset => !item.uncounted,
            Op::Peek | Op::Refund => false,
        };
        let outcome = Outcome {
            limit: Arc::clone(&bound.limit),
            counted_as: None,
            verdict: item.verdict,
            reason: item.reason,
            used: figures.used,
            remaining: figures.remaining,
            reset_after_ns: figures.reset_after_ns,
            next_after_ns: figures.next_after_ns,
        };
        (outcome, urgent)
    }

    /// `unsent >= max(1, 0.02 * capacity / N, 0.25 * headroom / N)`.
    fn is_urgent(&self, unsent: u32, capacity: u64, headroom: u64) -> bool {
        let members = u128::from(self.members.load(Ordering::Relaxed).max(1));
        let unsent = u128::from(unsent) * members;
        unsent > 0 && unsent * 50 >= u128::from(capacity) && unsent * 4 >= u128::from(headroom)
    }
}

impl<'a> Item<'a> {
    fn new(bound: &'a Arc<Bound>, key: KeyHash, cost: u64) -> Self {
        let verdict = Verdict::Admitted(0);
        Self { bound, key, cost, guard: 0, id: None, verdict, reason: None, uncounted: false, reserved: false }
    }

    /// Whether the limit itself admits.
    fn admits(&self) -> bool {
        self.reason.is_none()
    }

    /// Whether the request fails on it.
    fn denies(&self) -> bool {
        !self.admits() && !self.bound.limit.is_shadow()
    }

    fn deny_for_full_table(&mut self) {
        (self.verdict, self.reason) = (Verdict::After(TABLE_FULL_RETRY_NS), Some(Reason::TableFull));
    }
}

/// One item for each key, with the costs of all parts that name it; and the item of each part.
fn combine<'a>(parts: &[Part<'a>]) -> (Vec<Item<'a>>, Vec<usize>) {
    let mut items: Vec<Item<'a>> = Vec::with_capacity(parts.len());
    let mut item_of = Vec::with_capacity(parts.len());
    for part in parts {
        let cost = u64::from(part.cost);
        match items.iter().position(|item| item.key == part.key) {
            Some(same) => {
                items[same].cost += cost;
                item_of.push(same);
            }
            None => {
                items.push(Item::new(part.bound, part.key, cost));
                item_of.push(items.len() - 1);
            }
        }
    }
    (items, item_of)
}

/// Which result speaks for all.
fn summary(results: &[Outcome], admitted: bool) -> Option<usize> {
    let wait = |outcome: &Outcome| match outcome.verdict {
        Verdict::Admitted(_) => (0, 0),
        Verdict::After(ns) => (1, ns),
        Verdict::Never => (2, 0),
    };
    let mut enforced = results.iter().enumerate().filter(|(_, outcome)| !outcome.limit.is_shadow());
    let first = enforced.next()?;
    let better = |(best, at): (&Outcome, usize), (index, outcome): (usize, &'_ Outcome)| {
        let better = match admitted {
            true => outcome.remaining < best.remaining,
            false => wait(outcome) > wait(best),
        };
        if better { index } else { at }
    };
    Some(enforced.fold(first.0, |best, next| better((&results[best], best), next)))
}
