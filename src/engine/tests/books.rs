//! All or nothing under concurrency: the books of sixteen threads over three shared limits balance to the token.

#![expect(clippy::disallowed_methods, reason = "it runs for a time, not for a number of rounds")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const THREADS: usize = 16;
const FOR: Duration = Duration::from_secs(10);
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];
const LIMITS: [&str; 3] = ["x", "y", "z"];

/// What threads took and gave back, by limit and key.
#[derive(Default)]
struct Books([[AtomicU64; KEYS.len()]; LIMITS.len()]);

/// One request: a cost for each of the limits, each with a key.
type Request = [(usize, u32); LIMITS.len()];

impl Books {
    fn note(&self, request: &Request, op: Op) {
        for (limit, (key, cost)) in request.iter().enumerate() {
            let entry = &self.0[limit][*key];
            match op {
                Op::Refund => entry.fetch_sub(u64::from(*cost), Ordering::Relaxed),
                _ => entry.fetch_add(u64::from(*cost), Ordering::Relaxed),
            };
        }
    }
}

/// Asks for all three limits at once, in an order that changes.
fn decide(engine: &Engine, now: u64, op: Op, request: &Request, first: usize) -> Answer {
    let ask = |at: usize| {
        let limit = (first + at) % LIMITS.len();
        Ask { limit: LIMITS[limit], key: KEYS[request[limit].0], cost: request[limit].1 }
    };
    engine.decide(now, op, &[ask(0), ask(1), ask(2)]).unwrap()
}

#[test]
fn sixteen_threads_over_three_limits() {
    let engine = engine("a", Settings::default());
    // Small enough that many are denied, by another limit each time; y forgets nothing within the time that passes.
    let y = LimitSpec { slots: Some(4), ..limit("y", "sliding_window", 1_500, "1h", None) };
    engine.install(
        T0,
        set(&[limit("x", "fixed_window", 1_000, "1h", None), y, limit("z", "sliding_log", 2_000, "1h", None)]),
    );
    let (books, clock, counts) = (Books::default(), AtomicU64::new(T0), [const { AtomicU64::new(0) }; 2]);
    let until = Instant::now() + FOR;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, books, clock, counts) = (&engine, &books, &clock, &counts);
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1);
                let mut draw = move |most: u64| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state % most
                };
                let mut taken: Vec<Request> = Vec::new();
                while Instant::now() < until {
                    let now = clock.fetch_add(100, Ordering::Relaxed);
                    let first = draw(3) as usize;
                    // What was taken is given back now and then, so that there is always something to be had.
                    if let Some(request) = taken.pop_if(|_| draw(3) == 0) {
                        decide(engine, now, Op::Refund, &request, first);
                        books.note(&request, Op::Refund);
                        continue;
                    }
                    let request: Request = std::array::from_fn(|_| (draw(4) as usize, draw(6) as u32));
                    let allowed = decide(engine, now, Op::Check, &request, first).allowed;
                    counts[usize::from(allowed)].fetch_add(1, Ordering::Relaxed);
                    if allowed {
                        books.note(&request, Op::Check);
                        taken.push(request);
                    }
                }
            });
        }
    });
    let now = clock.load(Ordering::Relaxed);
    for (limit, name) in LIMITS.iter().enumerate() {
        for (key, text) in KEYS.iter().enumerate() {
            let used = engine.usage(now, name, text).unwrap().used;
            let cells = engine.cells_of(name, text).unwrap().cells;
            let net = cells.iter().map(|cell| u128::from(cell.cell.spent) - cell.cell.refunded).sum::<u128>();
            let booked = books.0[limit][key].load(Ordering::Relaxed);
            assert_eq!((used, net), (booked, u128::from(booked)), "{name} {text}");
        }
    }
    let [denied, admitted] = counts.map(AtomicU64::into_inner);
    println!("{admitted} admitted, {denied} denied by {THREADS} threads in {FOR:?}: every token accounted for");
    assert!(admitted > 1_000 && denied > 1_000);
}
