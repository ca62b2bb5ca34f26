//! Requests that say only what they are, and keys that have their own allowance.

use serde_json::json;

use super::*;
use crate::limits::{Descriptors, OverrideSpec};
use crate::time::SECOND;

fn request<'a>(fields: &[(&'a str, &'a str)]) -> Descriptors<'a> {
    let mut all = Descriptors::default();
    fields.iter().for_each(|(field, value)| all.add((*field).into(), (*value).into()).unwrap());
    all
}

fn tiers() -> LimitSet {
    let keyed = |name: &str, limit: i64, key: &str| LimitSpec {
        key: Some(key.into()),
        ..super::limit(name, "fixed_window", limit, "60s", None)
    };
    let anonymous = LimitSpec {
        key_type: Some("ip".into()),
        when: [("user".to_owned(), json!({"present": false}))].into(),
        ..keyed("anonymous", 2, "{ip}")
    };
    let users = LimitSpec { overrides: vec![own("big", 10)], ..keyed("users", 5, "{user}") };
    let login = LimitSpec { when: [("route".to_owned(), json!("POST /login"))].into(), ..keyed("login", 1, "{ip}") };
    set(&[users, login, anonymous])
}

fn own(key: &str, limit: i64) -> OverrideSpec {
    OverrideSpec { key: key.to_owned(), limit: Some(limit), ..OverrideSpec::default() }
}

/// Limits that applied, each with the key it counted under and what remains.
fn told(answer: &Answer) -> Vec<(String, String, u64)> {
    let told = |outcome: &Outcome| {
        let key = outcome.counted_as.clone().unwrap_or_default();
        (outcome.limit.name.to_string(), key, outcome.remaining)
    };
    answer.results.iter().map(told).collect()
}

fn row(limit: &str, key: &str, remaining: u64) -> (String, String, u64) {
    (limit.to_owned(), key.to_owned(), remaining)
}

#[test]
fn all_limits_that_are_for_it_apply_at_once() {
    let engine = engine("a", Settings::default());
    engine.install(T0, tiers());
    let check = |fields: &[(&str, &str)]| engine.decide_matching(T0, Op::Check, &request(fields), 1).unwrap();
    let nobody = check(&[("ip", "2001:db8::1"), ("route", "POST /login")]);
    assert_eq!(told(&nobody), [row("anonymous", "2001:db8::/64", 1), row("login", "2001:db8::1", 0)]);
    // Denied by one: of the other nothing is taken.
    let again = check(&[("ip", "2001:db8::1"), ("route", "POST /login")]);
    assert!(!again.allowed && told(&again) == told(&nobody));
    assert_eq!(told(&check(&[("ip", "2001:db8::2")])), [row("anonymous", "2001:db8::/64", 0)]);
    assert_eq!(told(&check(&[("ip", "2001:db8::2"), ("user", "u")])), [row("users", "u", 4)]);
    assert_eq!(told(&check(&[("user", "big")])), [row("users", "big", 9)]);
    let nothing = check(&[("plan", "free")]);
    assert!(nothing.allowed && nothing.results.is_empty() && nothing.summary.is_none());
    // The same key, named: the same count, in whatever form it comes.
    let named = one(&engine, T0, Op::Peek, "anonymous", "2001:0db8::7", 1);
    assert_eq!((named.remaining, named.counted_as.as_deref()), (0, Some("2001:db8::/64")));
    assert_eq!(one(&engine, T0, Op::Peek, "users", "big", 1).remaining, 9);
}

#[test]
fn what_cannot_be_decided_names_its_field() {
    let engine = engine("a", Settings::default());
    let many = (0..=MAX_ASKS).map(|n| LimitSpec {
        key: Some("{all}:{user}".into()),
        ..super::limit(&format!("l{n}"), "fixed_window", 1, "60s", None)
    });
    engine.install(
        T0,
        LimitSet::new(tiers().iter().map(|l| Limit::clone(l)).chain(many.map(|s| s.check().unwrap()))).unwrap(),
    );
    let field =
        |fields: &[(&str, &str)]| engine.decide_matching(T0, Op::Check, &request(fields), 1).unwrap_err().field(false);
    assert_eq!(field(&[("ip", "here")]), "descriptors.ip");
    assert_eq!(field(&[("user", "u"), ("all", "x")]), "descriptors");
    let long = "x".repeat(1024);
    assert_eq!(field(&[("user", &long), ("all", "x")]), "descriptors");
    let ask = Ask { limit: "anonymous", key: "here", cost: 1 };
    let error = engine.decide(T0, Op::Check, &[ask]).unwrap_err();
    assert_eq!((error.field(false), error.field(true)), ("key".to_owned(), "checks[0].key".to_owned()));
    assert!(error.to_string().contains("\"here\" is no IP address"), "{error}");
    assert_eq!(engine.stats().keys, 0);
}

/// A bucket's debt goes along when a key gets its own allowance, when that changes, and when it is gone; at the very
/// instant and when it is not asked for until the sweep came by. The keys beside it see nothing of it.
#[test]
fn a_key_keeps_its_debt_when_it_gets_or_loses_its_own_allowance() {
    let with = |own: &[OverrideSpec]| {
        set(&[LimitSpec { overrides: own.to_vec(), ..super::limit("l", "token_bucket", 100, "100s", None) }])
    };
    for sweep in [false, true] {
        let engine = engine("a", Settings::default());
        let mut now = T0;
        engine.install(now, with(&[]));
        one(&engine, now, Op::Check, "l", "big", 80);
        one(&engine, now, Op::Check, "l", "small", 80);
        // What the bucket of `big` is after each change.
        for (own, capacity, rate) in [
            (vec![own("big", 1000)], 1000, 10),
            (vec![own("big", 200)], 200, 2),
            (vec![], 100, 1),
            (vec![own("big", 1000)], 1000, 10),
        ] {
            let before = one(&engine, now, Op::Peek, "l", "big", 0).used;
            engine.install(now, with(&own));
            if sweep {
                engine.sweep(now);
            }
            let after = one(&engine, now, Op::Debit, "l", "big", 6);
            assert_eq!((after.used, after.remaining + after.used), (before + 6, capacity), "{own:?}");
            now += 5 * SECOND;
            assert_eq!(one(&engine, now, Op::Peek, "l", "big", 0).used, (before + 6).saturating_sub(5 * rate));
            let beside = 80 - (now - T0) / SECOND;
            assert_eq!(one(&engine, now, Op::Peek, "l", "small", 0).used, beside);
        }
    }
}

/// Back and forth faster than anything expires: nothing counts twice, and nothing is forgotten.
#[test]
fn an_allowance_that_comes_and_goes() {
    let with = |limit: Option<i64>| {
        let overrides = limit.map(|limit| own("k", limit)).into_iter().collect();
        set(&[LimitSpec { overrides, ..super::limit("l", "token_bucket", 1000, "1000s", None) }])
    };
    let engine = engine("a", Settings::default());
    engine.install(T0, with(None));
    for round in 0..6u64 {
        one(&engine, T0, Op::Check, "l", "k", 10);
        engine.install(T0, with((round % 2 == 0).then_some(2000)));
        if round % 3 == 0 {
            engine.sweep(T0);
        }
        assert_eq!(one(&engine, T0, Op::Peek, "l", "k", 0).used, 10 * (round + 1), "round {round}");
    }
    // A limit that is gone takes its keys with it.
    engine.install(T0, set(&[]));
    engine.install(T0, with(Some(2000)));
    assert_eq!(one(&engine, T0, Op::Peek, "l", "k", 0).remaining, 2000 - one(&engine, T0, Op::Peek, "l", "k", 0).used);
}

#[test]
fn two_nodes_hold_one_allowance_for_a_key() {
    let limits =
        set(&[LimitSpec { overrides: vec![own("big", 50)], ..super::limit("l", "sliding_window", 5, "60s", None) }]);
    let [a, b] = ["a", "b"].map(|name| engine(name, Settings::default()));
    for engine in [&a, &b] {
        engine.install(T0, limits.clone());
        one(engine, T0, Op::Check, "l", "big", 20);
        one(engine, T0, Op::Check, "l", "other", 2);
    }
    exchange(&a, &b, T0);
    for engine in [&a, &b] {
        assert_eq!(one(engine, T0, Op::Peek, "l", "big", 1).remaining, 10);
        assert_eq!(one(engine, T0, Op::Peek, "l", "other", 1).remaining, 1);
    }
}
