//! One node equals the exact algorithms, request by request, whatever is swept, drained or exported in between.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::algorithms::Wait;
use crate::limits::Retention;
use crate::time::{MS, SECOND};

/// The textbook forms, kept for ever.
#[derive(Clone, Debug)]
enum Exact {
    Window { sliding: bool, limit: u64, window: u64, counts: BTreeMap<u64, u64> },
    Bucket { limit: u64, window: u64, capacity: u64, t: u128 },
}

impl Exact {
    fn new(limit: &crate::limits::Limit) -> Self {
        use crate::limits::Algorithm::{FixedWindow, SlidingWindow, TokenBucket};
        let (tokens, window) = (limit.limit, limit.window_ns);
        match limit.algorithm {
            TokenBucket => Self::Bucket { limit: tokens, window, capacity: limit.capacity(), t: 0 },
            FixedWindow | SlidingWindow => {
                let sliding = limit.algorithm == SlidingWindow;
                Self::Window { sliding, limit: tokens, window, counts: BTreeMap::new() }
            }
        }
    }

    fn fits(&self, now: u64, cost: u64) -> bool {
        match self {
            Self::Window { limit, .. } => cost == 0 || self.used(now) + cost <= *limit,
            Self::Bucket { limit, window, capacity, t } => {
                let now = u128::from(now) * u128::from(*limit);
                let window = u128::from(*window);
                cost == 0 || t.max(&now) + window * u128::from(cost) - now <= window * u128::from(*capacity)
            }
        }
    }

    fn used(&self, now: u64) -> u64 {
        match self {
            Self::Window { sliding, window, counts, .. } => {
                let (k, into) = (now / window, now % window);
                let count = |k: u64| counts.get(&k).copied().unwrap_or(0);
                let previous = if *sliding { count(k - 1) } else { 0 };
                (u128::from(previous) * u128::from(window - into) / u128::from(*window)) as u64 + count(k)
            }
            Self::Bucket { limit, window, t, .. } => {
                t.saturating_sub(u128::from(now) * u128::from(*limit)).div_ceil(u128::from(*window)) as u64
            }
        }
    }

    fn take(&mut self, now: u64, cost: u64) {
        match self {
            Self::Window { window, counts, .. } => *counts.entry(now / *window).or_default() += cost,
            Self::Bucket { limit, window, t, .. } => {
                *t = (*t).max(u128::from(now) * u128::from(*limit)) + u128::from(*window) * u128::from(cost);
            }
        }
    }

    fn reset(&mut self) {
        match self {
            Self::Window { counts, .. } => counts.clear(),
            Self::Bucket { t, .. } => *t = 0,
        }
    }

    /// Another rate or burst: the debt stays in tokens.
    fn change(&mut self, now: u64, to: &crate::limits::Limit) {
        match self {
            Self::Window { limit, .. } => *limit = to.limit,
            Self::Bucket { limit, window, capacity, t } => {
                let debt = t.saturating_sub(u128::from(now) * u128::from(*limit));
                let debt = (debt * u128::from(to.window_ns)).div_ceil(u128::from(*window));
                (*limit, *window, *capacity) = (to.limit, to.window_ns, to.capacity());
                *t = if debt > 0 { u128::from(now) * u128::from(*limit) + debt } else { 0 };
            }
        }
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
    let op = prop_oneof![8 => Just(Op::Check), 1 => Just(Op::Peek), 1 => Just(Op::Debit), 1 => Just(Op::Reset)];
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

/// Tokens, window in milliseconds, burst.
type Form = (i64, u64, i64);

fn forms() -> impl Strategy<Value = Vec<Form>> {
    prop::collection::vec((0..30i64, 1..5_000u64, 1..30i64), FORMS)
}

fn spec(algorithm: &str, forms: &[Form], at: usize) -> LimitSet {
    let bucket = algorithm == "token_bucket";
    let (tokens, window_ms, burst) = forms[at];
    // A window limit keeps its counts only as long as its window stays. A bucket that refills nothing forgets with its
    // slot what it cannot pay off: no exact form says when.
    let (tokens, window_ms) = if bucket { (tokens.max(1), window_ms) } else { (tokens, forms[0].1) };
    set(&[limit("l", algorithm, tokens, &format!("{window_ms}ms"), bucket.then_some(burst))])
}

fn check(algorithm: &str, forms: &[Form], changes: bool, steps: Vec<Step>) {
    let retention = Retention { partition_memory_ns: 2 * SECOND, max_skew_ns: 100 * MS };
    let engine = engine("a", Settings { retention, ..Settings::default() });
    let mut limits = spec(algorithm, forms, 0);
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
                limits = spec(algorithm, forms, form);
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
        Op::Reset => exact.reset(),
        Op::Check | Op::Peek => {
            assert_eq!(outcome.allowed, exact.fits(now, cost), "{outcome:?} {exact:?} at {now}");
            if op == Op::Check && outcome.allowed {
                exact.take(now, cost);
            }
        }
    }
    let used = exact.used(now);
    assert_eq!((outcome.used, outcome.remaining), (used, capacity.saturating_sub(used)), "{outcome:?} {exact:?}");
    assert_eq!(engine.usage(now, "l", &key).unwrap().used, used);
    match outcome.retry_after {
        Wait::None => assert!(outcome.allowed),
        Wait::Never => assert!(cost > capacity),
        Wait::After(ns) if ns < u64::MAX / 4 => {
            assert!(!exact.fits(now + ns - 1, cost) && exact.fits(now + ns, cost), "{outcome:?} {exact:?}");
        }
        Wait::After(_) => assert_eq!(capacity, 0),
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

proptest! {
    #[test]
    fn bucket(forms in forms(), changes: bool, steps in steps()) {
        check("token_bucket", &forms, changes, steps);
    }

    #[test]
    fn sliding_window(forms in forms(), changes: bool, steps in steps()) {
        check("sliding_window", &forms, changes, steps);
    }

    #[test]
    fn fixed_window(forms in forms(), changes: bool, steps in steps()) {
        check("fixed_window", &forms, changes, steps);
    }
}
