//! Limits that change, at different times on different nodes.

use super::*;
use crate::time::{MS, SECOND};

fn bucket(tokens: i64) -> LimitSet {
    set(&[limit("l", "token_bucket", tokens, "100s", None)])
}

fn pair(limits: &LimitSet) -> [Engine; 2] {
    ["a", "b"].map(|name| {
        let engine = engine(name, Settings::default());
        engine.install(T0, limits.clone());
        engine
    })
}

fn used(engine: &Engine, now: u64) -> u64 {
    engine.usage(now, "l", "k").unwrap().used
}

fn take(engine: &Engine, now: u64, tokens: u32) {
    assert!(one(engine, now, Op::Check, "l", "k", tokens).allowed());
}

#[test]
fn a_rate_changed_on_one_node_ten_seconds_before_the_other() {
    for (before, after) in [(100, 200), (200, 100)] {
        let [a, b] = pair(&bucket(before));
        let (rate_before, rate_after) = (before as u64 / 100, after as u64 / 100);
        take(&a, T0, 50);
        take(&b, T0, 30);
        exchange(&a, &b, T0);
        let change_a = T0 + 10 * SECOND;
        a.install(change_a, bucket(after));
        let owed = 80 - 10 * rate_before;
        assert_eq!((used(&a, change_a), used(&b, change_a)), (owed, owed));

        // Between the changes each counts under its own shape, and does not read the other's.
        let between = change_a + 5 * SECOND;
        take(&a, between, 9);
        take(&b, between, 6);
        exchange(&a, &b, between);
        assert_eq!(used(&a, between), owed - 5 * rate_after + 9);
        assert_eq!(used(&b, between), owed - 5 * rate_before + 6);

        let change_b = change_a + 10 * SECOND;
        b.install(change_b, bucket(after));
        b.sweep(change_b);
        exchange(&a, &b, change_b);
        let all = used(&a, change_b);
        assert_eq!(all, used(&b, change_b));
        let (of_a, of_b) = (owed - 10 * rate_after + 9, owed - 10 * rate_before + 6);
        let not_paid_back = 9u64.saturating_sub(5 * rate_after);
        assert_eq!(
            all,
            of_a.max(of_b + not_paid_back),
            "what A took meanwhile counts beside, and nothing counts twice"
        );

        take(&a, change_b + SECOND, 2);
        take(&b, change_b + SECOND, 3);
        exchange(&a, &b, change_b + SECOND);
        for engine in [&a, &b] {
            assert_eq!(used(engine, change_b + SECOND), all - rate_after + 5);
        }
    }
}

/// Whether a slot begins between the changes or not.
#[test]
fn what_was_taken_under_the_new_shape_counts_beside_what_was_owed() {
    let bucket = |tokens| set(&[limit("l", "token_bucket", tokens, "1000d", Some(100))]);
    for minutes in [1, 60, 24 * 60] {
        let [a, b] = pair(&bucket(1));
        take(&a, T0, 10);
        take(&b, T0, 10);
        exchange(&a, &b, T0);
        a.install(T0 + SECOND, bucket(2));
        take(&a, T0 + 2 * SECOND, 10);
        take(&b, T0 + 2 * SECOND, 10);
        exchange(&a, &b, T0 + 2 * SECOND);
        assert_eq!((used(&a, T0 + 2 * SECOND), used(&b, T0 + 2 * SECOND)), (30, 30));
        let change_b = T0 + minutes * 60 * SECOND;
        b.install(change_b, bucket(2));
        b.sweep(change_b);
        exchange(&a, &b, change_b);
        assert_eq!((used(&a, change_b), used(&b, change_b)), (40, 40), "{minutes} minutes");
    }
}

/// A cell that is held from long before the later change must not take what was owed then for more than there can be.
#[test]
fn what_was_owed_at_the_later_change_stays_owed() {
    for nodes in [2, 3, 8] {
        let bucket = |tokens, burst| set(&[limit("l", "token_bucket", tokens, "1s", Some(burst))]);
        let [a, b] = pair(&bucket(100, 200));
        a.set_expected_nodes(nodes);
        b.set_expected_nodes(nodes);
        a.install(T0, bucket(100, 100));
        take(&a, T0, 1);
        exchange(&a, &b, T0);
        let change_b = T0 + 6 * SECOND;
        take(&b, change_b, 100);
        b.install(change_b, bucket(100, 100));
        b.sweep(change_b);
        exchange(&a, &b, change_b);
        assert_eq!((used(&a, change_b), used(&b, change_b)), (100, 100), "{nodes} nodes");
    }
}

/// Both nodes are asked for far more than the limit, all the time, and hear of each other every 50 ms.
#[test]
fn under_load_a_change_locks_nobody_out() {
    for (before, after) in [(1_000, 2_000), (2_000, 1_000), (1_000, 500), (100, 1_000)] {
        let [a, b] = pair(&bucket(before));
        let (change_a, change_b, end) = (T0 + 120 * SECOND, T0 + 130 * SECOND, T0 + 300 * SECOND);
        // Until the larger debt of the time before is paid off at the slower rate.
        let settled = change_b + 110 * SECOND;
        let (mut now, mut admitted) = (T0, 0u64);
        while now < end {
            now += 50 * MS;
            for (engine, change) in [(&a, change_a), (&b, change_b)] {
                if (change..change + 50 * MS).contains(&now) {
                    engine.install(now, bucket(after));
                }
                for _ in 0..3 {
                    admitted += u64::from(one(engine, now, Op::Check, "l", "k", 1).allowed() && now >= settled);
                }
                if now % SECOND == 0 {
                    engine.sweep(now);
                }
            }
            exchange(&a, &b, now);
        }
        let fair = after as u64 * (end - settled) / SECOND / 100;
        assert!(
            admitted >= fair * 95 / 100 && admitted <= fair * 105 / 100,
            "{before} to {after}: {admitted} of {fair}"
        );
    }
}

#[test]
fn a_limit_that_one_node_alone_knows_for_a_minute() {
    for algorithm in ["token_bucket", "sliding_window"] {
        let limits = set(&[limit("l", algorithm, 100, "1000s", None)]);
        let [a, b] = pair(&LimitSet::default());
        a.install(T0, limits.clone());
        for second in 0..60 {
            let now = T0 + second * SECOND;
            take(&a, now, 1);
            exchange(&a, &b, now);
            a.sweep(now);
            b.sweep(now);
        }
        let now = T0 + 60 * SECOND;
        assert!(matches!(b.usage(now, "l", "k"), Err(AskError::UnknownLimit { .. })));
        b.install(now, limits);
        assert_eq!((used(&b, now), used(&a, now) >= 54), (used(&a, now), true));
        let left = 100 - used(&b, now) as u32;
        assert!(!one(&b, now, Op::Peek, "l", "k", left + 1).allowed());
        take(&b, now, left);
        exchange(&a, &b, now);
        assert_eq!(used(&a, now), 100);
    }
}

#[test]
fn there_and_back_counts_everything_once() {
    let [a, b] = pair(&bucket(100));
    take(&a, T0, 20);
    take(&b, T0, 10);
    exchange(&a, &b, T0);
    let mut now = T0 + SECOND;
    for engine in [&a, &b] {
        engine.install(now, bucket(200));
    }
    take(&a, now, 5);
    exchange(&a, &b, now);
    assert_eq!((used(&a, now), used(&b, now)), (34, 34));

    // A comes back two seconds before B; what it takes meanwhile stays when B follows.
    now += 2 * SECOND;
    a.install(now, bucket(100));
    assert_eq!(used(&a, now), 30);
    take(&a, now + SECOND, 4);
    exchange(&a, &b, now + SECOND);
    now += 2 * SECOND;
    b.install(now, bucket(100));
    b.sweep(now);
    a.sweep(now);
    exchange(&a, &b, now);
    assert_eq!((used(&a, now), used(&b, now)), (32, 32));
    take(&b, now, 8);
    exchange(&a, &b, now);
    assert_eq!((used(&a, now), used(&b, now)), (40, 40));
}

#[test]
fn back_while_a_peer_had_stayed_keeps_what_it_took() {
    let [a, b] = pair(&bucket(100));
    take(&a, T0, 20);
    exchange(&a, &b, T0);
    a.install(T0 + SECOND, bucket(200));
    assert_eq!(used(&a, T0 + SECOND), 19);
    // Several slots later, so that it is not in one that A had left.
    take(&b, T0 + 20 * SECOND, 30);
    exchange(&a, &b, T0 + 20 * SECOND);
    a.install(T0 + 21 * SECOND, bucket(100));
    a.sweep(T0 + 21 * SECOND);
    exchange(&a, &b, T0 + 21 * SECOND);
    assert_eq!((used(&a, T0 + 21 * SECOND), used(&b, T0 + 21 * SECOND)), (29, 29));
}

#[test]
fn another_window_or_algorithm_starts_afresh_and_a_removed_limit_is_unknown() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("l", "fixed_window", 10, "60s", None)]));
    take(&engine, T0, 7);
    engine.install(T0, set(&[limit("l", "fixed_window", 20, "60s", None)]));
    assert_eq!(used(&engine, T0), 7);
    engine.install(T0, set(&[limit("l", "fixed_window", 20, "30s", None)]));
    assert_eq!(used(&engine, T0), 0);
    engine.install(T0, set(&[limit("l", "token_bucket", 20, "30s", None)]));
    assert_eq!(used(&engine, T0), 0);
    engine.install(T0, LimitSet::default());
    assert!(matches!(engine.usage(T0, "l", "k"), Err(AskError::UnknownLimit { .. })));
}
