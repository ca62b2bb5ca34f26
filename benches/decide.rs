//! `cargo bench --bench decide`: what a decision costs in process.
//!
//! First a comparison with `governor` (keyed, `String` keys, its own default store and clock): a token bucket, a million
//! random keys with one spend each into an empty limiter, on one thread and on two, in alternating rounds of one run.
//! Both sides read a clock for every check: governor inside its own, a caller of the engine once before it. Then
//! single decisions on a warm engine.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use governor::{DefaultKeyedRateLimiter, Quota};
use tidegate::engine::{Ask, Engine, Op, Settings};
use tidegate::id::{NodeName, ReplicaId, Secret};
use tidegate::limits::{LimitSet, LimitSpec};
use tidegate::time::SlotClock;

const KEYS: usize = 1_000_000;
const ROUNDS: usize = 7;
const EPOCH_NS: u64 = 1_728_000_000_000_000_000;

fn main() {
    let test = std::env::args().any(|arg| arg == "--test");
    let keys = random_keys(if test { 1_000 } else { KEYS });
    for threads in [1, 2] {
        compare(&keys, threads, if test { 1 } else { ROUNDS });
    }
    hot(&keys);
    passes(&keys);
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    warm(&mut criterion, &keys);
    criterion.final_summary();
}

/// Distinct, in no order, 16 to 36 bytes.
fn random_keys(count: usize) -> Vec<String> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| format!("user:{:016x}", next())).collect()
}

/// The clock of a caller: read once a check.
struct Clock {
    start: Instant,
    slot: SlotClock,
}

impl Clock {
    fn new() -> Self {
        Self { start: Instant::now(), slot: SlotClock::start(0, EPOCH_NS, 0, 2_000_000_000) }
    }

    fn now(&self) -> u64 {
        self.slot.now(self.start.elapsed().as_nanos() as u64)
    }
}

fn engine(specs: &[LimitSpec]) -> Engine {
    let node = NodeName::new("bench").expect("it is a name");
    let own = ReplicaId { node, generation: 1, nonce: 1 };
    let engine = Engine::new(Settings { max_keys: 10_000_000, ..Settings::default() }, own, &Secret([7; 32]));
    let limits = specs.iter().map(|spec| spec.check().expect("the specs are right"));
    engine.install(EPOCH_NS, LimitSet::new(limits).expect("the names differ"));
    engine
}

fn spec(name: &str, algorithm: &str) -> LimitSpec {
    LimitSpec {
        name: name.to_owned(),
        algorithm: Some(algorithm.to_owned()),
        limit: Some(100),
        window: Some("60s".to_owned()),
        ..LimitSpec::default()
    }
}

/// Prints the rates of both, and their ratio.
fn compare(keys: &[String], threads: usize, rounds: usize) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(rate(keys, threads, run_engine));
        theirs.push(rate(keys, threads, run_governor));
    }
    let ratios: Vec<_> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let (ours, theirs, ratio) = (median(ours), median(theirs), median(ratios));
    println!(
        "{} keys once each, {threads} thread(s): tidegate {ours:.2} M/s, governor {theirs:.2} M/s, ratio {ratio:.2}",
        keys.len()
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Millions of checks a second.
fn rate(keys: &[String], threads: usize, run: fn(&[String], usize) -> Duration) -> f64 {
    keys.len() as f64 / run(keys, threads).as_secs_f64() / 1e6
}

fn run_engine(keys: &[String], threads: usize) -> Duration {
    let engine = engine(&[spec("bucket", "token_bucket")]);
    let clock = Clock::new();
    timed(keys, threads, |key| {
        let ask = Ask { limit: "bucket", key, cost: 1 };
        let answer = engine.decide(clock.now(), Op::Check, &[ask]).expect("the limit is there");
        assert!(black_box(answer).allowed);
    })
}

fn run_governor(keys: &[String], threads: usize) -> Duration {
    let quota = Quota::per_minute(NonZeroU32::new(100).expect("it is not 0"));
    let limiter: DefaultKeyedRateLimiter<String> = DefaultKeyedRateLimiter::keyed(quota);
    timed(keys, threads, |key| assert!(black_box(limiter.check_key(key)).is_ok()))
}

/// Calls `check` with every key, in as many threads, and tells how long that took.
fn timed(keys: &[String], threads: usize, check: impl Fn(&String) + Sync) -> Duration {
    let part = keys.len().div_ceil(threads);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for keys in keys.chunks(part) {
            scope.spawn(|| keys.iter().for_each(&check));
        }
    });
    start.elapsed()
}

/// Prints how two threads fare on known keys of one limit, beside one thread.
fn hot(keys: &[String]) {
    let engine = engine(&[spec("bucket", "token_bucket")]);
    let clock = Clock::new();
    let keys = &keys[..keys.len().min(20_000)];
    let rounds: Vec<String> = (0..20).flat_map(|_| keys.iter().cloned()).collect();
    for threads in [1, 2] {
        let took = timed(&rounds, threads, |key| {
            let answer = engine.decide(clock.now(), Op::Check, &[Ask { limit: "bucket", key, cost: 1 }]);
            assert!(black_box(answer).is_ok());
        });
        println!("known keys, {threads} thread(s): {:.2} M/s", rounds.len() as f64 / took.as_secs_f64() / 1e6);
    }
}

/// Prints what the passes over all keys cost, which other threads do while requests are decided.
fn passes(keys: &[String]) {
    let engine = engine(&[spec("bucket", "token_bucket")]);
    for key in keys {
        engine.decide(EPOCH_NS, Op::Check, &[Ask { limit: "bucket", key, cost: 1 }]).expect("the limit is there");
    }
    let start = Instant::now();
    let parts = engine.drain(EPOCH_NS).parts.len();
    println!("drained {} keys in {:.0?}, {parts} parts", keys.len(), start.elapsed());
    for (what, now_ns) in [("live", EPOCH_NS), ("expired", EPOCH_NS + 3_600_000_000_000)] {
        let start = Instant::now();
        engine.sweep(now_ns);
        println!("swept {} {what} keys in {:.0?}", keys.len(), start.elapsed());
    }
}

/// Single decisions on keys that are known.
fn warm(criterion: &mut Criterion, keys: &[String]) {
    let names = ["token_bucket", "sliding_window", "fixed_window"];
    let engine = Arc::new(engine(&names.map(|name| spec(name, name))));
    let clock = Clock::new();
    let keys = &keys[..keys.len().min(10_000)];
    let mut group = criterion.benchmark_group("warm");
    group.throughput(Throughput::Elements(1));
    for limit in names {
        let mut at = 0;
        group.bench_function(limit, |bencher| {
            bencher.iter(|| {
                at = (at + 1) % keys.len();
                engine.decide(clock.now(), Op::Check, &[Ask { limit, key: &keys[at], cost: 1 }])
            });
        });
    }
    let mut at = 0;
    group.bench_function("all three", |bencher| {
        bencher.iter(|| {
            at = (at + 1) % keys.len();
            engine.decide(clock.now(), Op::Check, &names.map(|limit| Ask { limit, key: &keys[at], cost: 1 }))
        });
    });
    group.finish();
}
