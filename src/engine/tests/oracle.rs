//! One node equals the exact algorithms, request by request, whatever is swept, drained or exported in between.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::algorithms::Verdict;
use crate::limits::{Algorithm, Limit, Retention};
use crate::time::{MS, SECOND};

/// The textbook forms, kept for ever.
#[derive(Clone, Debug)]
struct Exact {
    algorithm: Algorithm,
    limit: u64,
    window: u64,
    capacity: u64,
    /// Of windows: tokens by slot.
    counts: BTreeMap<u64, u64>,
    /// Of buckets.
    t: u128,
}

impl Exact {
    fn new(limit: &Limit) -> Self {
        let (algorithm, window, capacity) = (limit.algorithm, limit.window_ns, limit.capacity());
        Self { algorithm, limit: limit.limit, window, capacity, counts: BTreeMap::new(), t: 0 }
    }

    fn slot(&self, t: u64) -> u64 {
        match self.algorithm {
            Algorithm::SlidingSlots(slots) => t / (self.window / u64::from(slots)),
            Algorithm::SlidingLog => t / MS,
            // Days of UTC are those of the epoch.
            _ => t / self.window,
        }
    }

    /// Whether a slot counts, and if so whether in full.
    fn counts(&self, slot: u64, now: u64) -> Option<bool> {
        let k = self.slot(now);
        match self.algorithm {
            Algorithm::SlidingWindow if slot + 1 == k => Some(false),
            Algorithm::SlidingSlots(slots) => (slot + u64::from(slots) >= k).then_some(true),
            Algorithm::SlidingLog => (slot * MS + self.window > now).then_some(true),
            _ => (slot == k).then_some(true),
        }
    }

    fn fits(&self, now: u64, cost: u64) -> bool {
        if self.algorithm.is_bucket() {
            let owed = self.debt(now) + u128::from(self.window) * u128::from(cost);
            let room = u128::from(self.window) * u128::from(self.capacity);
            let later = u128::from(self.algorithm.queue_ns()) * u128::from(self.limit);
            return cost == 0 || cost <= self.capacity && owed <= room + later;
        }
        cost == 0 || self.used(now) + cost <= self.limit
    }

    fn debt(&self, now: u64) -> u128 {
        self.t.saturating_sub(u128::from(now) * u128::from(self.limit))
    }

    fn used(&self, now: u64) -> u64 {
        if self.algorithm.is_bucket() {
            return self.debt(now).div_ceil(u128::from(self.window)) as u64;
        }
        let weight = |(slot, count): (&u64, &u64)| match self.counts(*slot, now) {
            Some(true) => *count,
            Some(false) => {
                (u128::from(*count) * u128::from(self.window - now % self.window) / u128::from(self.window)) as u64
            }
            None => 0,
        };
        self.counts.iter().map(weight).sum()
    }

    fn take(&mut self, now: u64, cost: u64) {
        if self.algorithm.is_bucket() {
            self.t = self.t.max(u128::from(now) * u128::from(self.limit)) + u128::from(self.window) * u128::from(cost);
        } else {
            *self.counts.entry(self.slot(now)).or_default() += cost;
        }
    }

    fn give_back(&mut self, now: u64, tokens: u64) {
        self.t -= self.debt(now).min(u128::from(self.window) * u128::from(tokens));
        let mut left = tokens;
        let slots: Vec<u64> = self.counts.keys().rev().copied().collect();
        for slot in slots.into_iter().filter(|slot| self.counts(*slot, now).is_some()).collect::<Vec<_>>() {
            let count = self.counts.get_mut(&slot).unwrap();
            let back = left.min(*count);
            (*count, left) = (*count - back, left - back);
        }
    }

    fn reset(&mut self) {
        self.counts.clear();
        self.t = 0;
    }

    /// Another rate, burst or queue: the debt stays in tokens.
    fn change(&mut self, now: u64, to: &Limit) {
        let debt = (self.debt(now) * u128::from(to.window_ns)).div_ceil(u128::from(self.window));
        *self = Self { counts: std::mem::take(&mut self.counts), ..Self::new(to) };
        self.t = if debt > 0 { u128::from(now) * u128::from(self.limit) + debt } else { 0 };
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Ask(Op, u8, u32),
    Sweep,
    Drain,
    Export,
    Change(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![0..20 * MS, 0..800 * MS, 0..3 * SECOND, 0..40 * SECOND];
    let op = prop_oneof![8 => Just(Op::Check), 1 => Just(Op::Peek), 1 => Just(Op::Debit), 1 => Just(Op::Reset), 1 => Just(Op::Refund)];
    let step = prop_oneof![
        4 => wait.prop_map(Step::Wait),
        8 => (op, 0..3u8, 0..8u32).prop_map(|(op, key, cost)| Step::Ask(op, key, cost)),
        2 => Just(Step::Sweep),
        1 => Just(Step::Drain),
        1 => Just(Step::Export),
        1 => (0..FORMS).prop_map(Step::Change),
    ];
    prop::collection::vec(step, 1..150)
}

/// Few, so that changes also lead back.
const FORMS: usize = 3;

/// Tokens, window in milliseconds, burst, queue in milliseconds.
type Form = (i64, u64, i64, u64);

fn forms() -> impl Strategy<Value = Vec<Form>> {
    prop::collection::vec((0..30i64, 1..5_000u64, 1..30i64, prop_oneof![Just(0), 0..3_000u64]), FORMS)
}

fn spec(like: &LimitSpec, forms: &[Form], at: usize) -> LimitSet {
    let bucket = like.algorithm.as_deref().is_some_and(|algorithm| algorithm.ends_with("bucket"));
    let (tokens, window_ms, burst, queue_ms) = forms[at];
    // A window limit keeps its counts only as long as its window stays. A bucket that refills nothing forgets with its
    // slot what it cannot pay off: no exact form says when.
    let (tokens, window_ms) = if bucket { (tokens.max(1), window_ms) } else { (tokens, forms[0].1) };
    // Sub-windows of whole milliseconds.
    let window_ms = window_ms.next_multiple_of(like.slots.unwrap_or(1) as u64);
    set(&[LimitSpec {
        name: "l".into(),
        limit: Some(tokens),
        window: like.window.clone().or(Some(format!("{window_ms}ms"))),
        burst: bucket.then_some(burst),
        queue: like.queue.as_ref().map(|_| format!("{queue_ms}ms")),
        ..like.clone()
    }])
}

fn check(like: &LimitSpec, forms: &[Form], changes: bool, steps: Vec<Step>) {
    let retention = Retention { partition_memory_ns: 2 * SECOND, max_skew_ns: 100 * MS };
    let engine = engine("a", Settings { retention, ..Settings::default() });
    let mut limits = spec(like, forms, 0);
    engine.install(T0, limits.clone());
    let mut exact = vec![Exact::new(limits.iter().next().unwrap()); 3];
    let mut now = T0;
    for step in steps {
        match step {
            Step::Wait(ns) => now += ns,
            Step::Sweep => {
                engine.sweep(now);
            }
            Step::Drain => {
                engine.drain(now);
            }
            Step::Export => {
                engine.export(now, ExportCursor::default(), None);
            }
            Step::Change(form) if changes => {
                limits = spec(like, forms, form);
                engine.install(now, limits.clone());
                exact.iter_mut().for_each(|exact| exact.change(now, limits.iter().next().unwrap()));
            }
            Step::Change(..) => {}
            Step::Ask(op, key, cost) => {
                let limit = limits.iter().next().unwrap();
                ask(&engine, &mut exact[usize::from(key)], limit.capacity(), now, op, key, cost);
            }
        }
    }
}

fn ask(engine: &Engine, exact: &mut Exact, capacity: u64, now: u64, op: Op, key: u8, cost: u32) {
    let key = format!("k{key}");
    let outcome = one(engine, now, op, "l", &key, cost);
    let cost = u64::from(cost);
    match op {
        Op::Debit => exact.take(now, cost),
        Op::Refund => exact.give_back(now, cost),
        Op::Reset => exact.reset(),
        Op::Check | Op::Peek => {
            assert_eq!(outcome.allowed(), exact.fits(now, cost), "{outcome:?} {exact:?} at {now}");
            if op == Op::Check && outcome.allowed() {
                exact.take(now, cost);
            }
        }
    }
    let used = exact.used(now);
    assert_eq!((outcome.used, outcome.remaining), (used, capacity.saturating_sub(used)), "{outcome:?} {exact:?}");
    assert_eq!(engine.usage(now, "l", &key).unwrap().used, used);
    match outcome.verdict {
        Verdict::Admitted(0) => {}
        Verdict::Admitted(delay) => {
            let conforms = |at| exact.debt(at) <= u128::from(exact.window) * u128::from(capacity);
            assert!(op == Op::Peek || conforms(now + delay) && !conforms(now + delay - 1), "{outcome:?} {exact:?}");
        }
        Verdict::Never => assert!(cost > capacity),
        Verdict::After(ns) if ns < u64::MAX / 4 => {
            assert!(!exact.fits(now + ns - 1, cost) && exact.fits(now + ns, cost), "{outcome:?} {exact:?}");
        }
        Verdict::After(_) => assert_eq!(capacity, 0),
    }
    if outcome.reset_after_ns > 0 && outcome.reset_after_ns < u64::MAX / 4 {
        assert_eq!(exact.used(now + outcome.reset_after_ns), 0);
        assert!(exact.used(now + outcome.reset_after_ns - 1) > 0);
    }
    if outcome.next_after_ns > 0 && outcome.next_after_ns < u64::MAX / 4 {
        let remaining = |at| capacity.saturating_sub(exact.used(at));
        assert!(remaining(now + outcome.next_after_ns) > outcome.remaining);
        assert_eq!(remaining(now + outcome.next_after_ns - 1), outcome.remaining);
    }
}

fn like(algorithm: &str) -> LimitSpec {
    LimitSpec { algorithm: Some(algorithm.into()), ..LimitSpec::default() }
}

proptest! {
    #[test]
    fn bucket(forms in forms(), changes: bool, steps in steps()) {
        check(&like("token_bucket"), &forms, changes, steps);
    }

    #[test]
    fn bucket_with_a_queue(forms in forms(), changes: bool, steps in steps()) {
        let like = LimitSpec { queue: Some(String::new()), ..like("leaky_bucket") };
        check(&like, &forms, changes, steps);
    }

    #[test]
    fn sliding_window(forms in forms(), changes: bool, steps in steps()) {
        check(&like("sliding_window"), &forms, changes, steps);
    }

    #[test]
    fn sliding_window_with_slots(slots in 1..20i64, forms in forms(), changes: bool, steps in steps()) {
        check(&LimitSpec { slots: Some(slots), ..like("sliding_window") }, &forms, changes, steps);
    }

    #[test]
    fn sliding_log(forms in forms(), changes: bool, steps in steps()) {
        check(&like("sliding_log"), &forms, changes, steps);
    }

    /// So many cells that what they come to is remembered from one request to the next.
    #[test]
    fn sliding_log_of_many_cells(forms in forms(), steps in steps()) {
        let longer = |(tokens, _, burst, queue): Form| (tokens * 40, 20_000, burst, queue);
        check(&like("sliding_log"), &forms.into_iter().map(longer).collect::<Vec<_>>(), true, steps);
    }

    #[test]
    fn fixed_window(forms in forms(), changes: bool, steps in steps()) {
        check(&like("fixed_window"), &forms, changes, steps);
    }

    /// Days of UTC: every midnight is told from the one before, however long nothing happened.
    #[test]
    fn calendar_window(forms in forms(), changes: bool, steps in steps(), stretch in 1..40_000u64) {
        let day = LimitSpec {
            align: Some("calendar".into()), time_zone: Some("UTC".into()), window: Some("day".into()), ..like("fixed_window")
        };
        let longer = |step| if let Step::Wait(ns) = step { Step::Wait(ns.saturating_mul(stretch)) } else { step };
        check(&day, &forms, changes, steps.into_iter().map(longer).collect());
    }
}
