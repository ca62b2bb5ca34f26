//! Several threads at once: nobody sees half a request, nothing is lost or taken twice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::time::{MS, SECOND};

const THREADS: u64 = 4;

#[test]
fn several_limits_are_taken_together_or_not_at_all() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&["x", "y", "z"].map(|name| limit(name, "fixed_window", 1_000_000, "1h", None))));
    let (admitted, running) = (AtomicU64::new(0), AtomicU64::new(THREADS));
    let keys = ["k0", "k1", "k2", "k3"];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, admitted, running) = (&engine, &admitted, &running);
            scope.spawn(move || {
                for round in 0..2_000 {
                    // In another order each time: locks in request order would block each other for ever.
                    let key = |at: u64| keys[((thread + round + at) % 4) as usize];
                    let asks: [Ask<'_>; 3] =
                        [("x", key(0)), ("y", key(1)), ("z", key(2))].map(|(limit, key)| Ask { limit, key, cost: 1 });
                    admitted
                        .fetch_add(u64::from(engine.decide(T0, Op::Check, &asks).unwrap().allowed), Ordering::Relaxed);
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // All that x has admitted y and z have too, at every moment.
        while running.load(Ordering::Relaxed) > 0 {
            let asks: Vec<_> =
                ["x", "y", "z"].into_iter().flat_map(|limit| keys.map(|key| Ask { limit, key, cost: 0 })).collect();
            let answer = engine.decide(T0, Op::Peek, &asks).unwrap();
            let sums: Vec<u64> = answer.results.chunks(4).map(|four| four.iter().map(|one| one.used).sum()).collect();
            assert!(sums[0] == sums[1] && sums[1] == sums[2], "{sums:?}");
        }
    });
    let used: u64 = keys.iter().map(|key| engine.usage(T0, "z", key).unwrap().used).sum();
    assert_eq!((used, admitted.load(Ordering::Relaxed)), (THREADS * 2_000, THREADS * 2_000));
}

/// Lives end under load: what each spent is in its own cells, and peers get all of it.
#[test]
fn no_spend_falls_between_two_lives() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("l", "fixed_window", 1_000_000, "1h", None)]));
    let peer = super::engine("b", Settings::default());
    peer.install(T0, set(&[limit("l", "fixed_window", 1_000_000, "1h", None)]));
    let running = AtomicU64::new(THREADS);
    let tell = |of: &ReplicaId, drained: Drained| {
        for part in drained.parts {
            peer.merge(T0, of, &part.groups).unwrap();
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, running) = (&engine, &running);
            scope.spawn(move || {
                for key in 0..3_000 {
                    assert!(one(engine, T0, Op::Check, "l", &format!("{thread}-{key}"), 1).allowed());
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut life = 1;
        while running.load(Ordering::Relaxed) > 0 {
            let old = engine.own();
            tell(&old, engine.drain(T0));
            life += 1;
            tell(&old, engine.new_life(T0, replica("a", life), false));
        }
    });
    tell(&engine.own(), engine.drain(T0));
    let heard = |key: &String| peer.usage(T0, "l", key).unwrap().used;
    let keys = (0..THREADS).flat_map(|thread| (0..3_000).map(move |key| format!("{thread}-{key}")));
    assert_eq!(keys.map(|key| heard(&key)).sum::<u64>(), THREADS * 3_000);
}

#[test]
fn exactly_the_limit_is_admitted_and_drained() {
    let engine = engine("a", Settings::default());
    engine.install(
        T0,
        set(&[limit("l", "fixed_window", 5_000, "1h", None), limit("m", "fixed_window", 4_000, "1h", None)]),
    );
    let (admitted, drained) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, admitted) = (&engine, &admitted);
            scope.spawn(move || {
                for _ in 0..3_000 {
                    let asks = [Ask { limit: "l", key: "k", cost: 1 }, Ask { limit: "m", key: "k", cost: 1 }];
                    let asks = if thread % 2 == 0 { &asks[..] } else { &asks[..1] };
                    admitted
                        .fetch_add(u64::from(engine.decide(T0, Op::Check, asks).unwrap().allowed), Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..200 {
                let parts = engine.drain(T0).parts;
                let cells = parts.iter().flat_map(|part| &part.groups).flat_map(|group| &group.cells);
                drained.fetch_max(cells.map(|cell| cell.cell.spent).max().unwrap_or(0), Ordering::Relaxed);
                engine.sweep(T0);
            }
        });
    });
    let rest = engine.drain(T0).parts;
    let cells = rest.iter().flat_map(|part| &part.groups).flat_map(|group| &group.cells);
    drained.fetch_max(cells.map(|cell| cell.cell.spent).max().unwrap_or(0), Ordering::Relaxed);
    let used = |limit| engine.usage(T0, limit, "k").unwrap().used;
    assert_eq!((used("l"), admitted.load(Ordering::Relaxed)), (5_000, 5_000));
    assert_eq!((used("l") >= used("m"), drained.load(Ordering::Relaxed)), (true, 5_000));
}

/// Spends that are drained later lie after what an earlier drain called complete.
#[test]
fn complete_is_complete() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("l", "token_bucket", 1_000_000, "1s", None)]));
    let clock = AtomicU64::new(T0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, clock) = (&engine, &clock);
            scope.spawn(move || {
                for key in 0..3_000 {
                    let now = clock.fetch_add(1_000, Ordering::Relaxed);
                    assert!(one(engine, now, Op::Check, "l", &format!("{thread}-{key}"), 1).allowed());
                }
            });
        }
        scope.spawn(|| {
            let mut complete_to = 0;
            for _ in 0..300 {
                let drained = engine.drain(clock.load(Ordering::Relaxed));
                for cell in drained.parts.iter().flat_map(|part| &part.groups).flat_map(|group| &group.cells) {
                    assert!(cell.cell.first_ns > complete_to);
                }
                assert!(drained.complete_to_ns >= complete_to);
                complete_to = drained.complete_to_ns;
            }
        });
    });
}

#[test]
fn limits_change_under_load_and_no_debt_is_lost() {
    let engine = engine("a", Settings::default());
    let limits = |tokens| set(&[limit("l", "token_bucket", tokens, "100000s", Some(1_000_000))]);
    engine.install(T0, limits(1));
    let (clock, running) = (AtomicU64::new(T0), AtomicU64::new(THREADS));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (engine, clock, running) = (&engine, &clock, &running);
            scope.spawn(move || {
                for key in 0..2_000 {
                    let now = clock.load(Ordering::Relaxed);
                    assert!(one(engine, now, Op::Check, "l", &format!("k{}", key % 50), 1).allowed());
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut tokens = 1;
        while running.load(Ordering::Relaxed) > 0 {
            tokens = tokens % 5 + 1;
            let now = clock.fetch_add(MS, Ordering::Relaxed) + MS;
            engine.install(now, limits(tokens));
            engine.sweep(now);
        }
    });
    let now = clock.load(Ordering::Relaxed);
    assert!(now < T0 + 100 * SECOND, "so little time passed that nothing was paid off");
    let used: u64 = (0..50).map(|key| engine.usage(now, "l", &format!("k{key}")).unwrap().used).sum();
    assert_eq!(used, THREADS * 2_000);
}
