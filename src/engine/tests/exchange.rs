//! What is drained, exported and swept: completeness, sizes, times; early flushes; resets on two nodes.

use std::collections::BTreeSet;

use super::*;
use crate::time::{MS, SECOND};

fn items(groups: &[Group]) -> usize {
    groups.iter().map(Group::len).sum()
}

#[test]
fn a_drain_has_every_change_once_in_parts_that_fit() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("w", "fixed_window", 9, "60s", None), limit("b", "token_bucket", 9, "60s", None)]));
    for key in 0..1_000 {
        for name in ["w", "b"] {
            assert!(one(&engine, T0, Op::Check, name, &format!("k{key}"), 1).allowed());
        }
    }
    let drained = engine.drain(T0 + 1);
    assert_eq!(drained.complete_to_ns, T0);
    assert_eq!(drained.parts.iter().map(|part| items(&part.groups)).sum::<usize>(), 2_000);
    assert!(drained.parts.iter().all(|part| items(&part.groups) <= MAX_PART_ITEMS && part.expires_ns > T0));
    assert!(drained.parts.len() <= 2_000 / MAX_PART_ITEMS + 2, "{} parts", drained.parts.len());
    assert_eq!(engine.drain(T0 + 2).parts, []);

    // The absolute value, not the difference.
    one(&engine, T0 + 3, Op::Check, "w", "k7", 2);
    let drained = engine.drain(T0 + 4);
    assert_eq!((drained.parts.len(), drained.parts[0].groups[0].cells[0].cell.spent), (1, 3));
}

#[test]
fn no_spend_is_before_what_a_drain_called_complete() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("l", "token_bucket", 9, "60s", None)]));
    let drained = engine.drain(T0 + SECOND);
    // A thread that read its clock before the drain.
    assert!(one(&engine, T0, Op::Check, "l", "k", 1).allowed());
    let late = engine.drain(T0 + 2 * SECOND);
    assert!(late.parts[0].groups[0].cells[0].cell.first_ns > drained.complete_to_ns);
}

#[test]
fn an_export_in_pieces_is_the_whole_state() {
    let limits = set(&[limit("w", "sliding_window", 9, "60s", None), limit("b", "token_bucket", 9, "600s", None)]);
    let [a, b, c] = ["a", "b", "c"].map(|name| {
        let engine = engine(name, Settings::default());
        engine.install(T0, limits.clone());
        engine
    });
    for key in 0..9_000 {
        let (name, on) = (["w", "b"][key % 2], [&a, &b][key % 3 % 2]);
        assert!(one(on, T0, Op::Check, name, &format!("k{key}"), 3).allowed());
    }
    one(&a, T0, Op::Reset, "b", "k1", 0);
    exchange(&a, &b, T0);
    let (mut at, mut pieces) = (Some(ExportCursor::default()), 0);
    let mut of = BTreeSet::new();
    while let Some(from) = at {
        let export = a.export(T0, from, None);
        for (replica, part) in export.parts {
            assert!(items(&part.groups) <= MAX_PART_ITEMS);
            c.merge(T0, &replica, &part.groups).unwrap();
            of.insert(replica);
        }
        (at, pieces) = (export.next, pieces + 1);
    }
    assert!(pieces > 1);
    assert_eq!(of.len(), 2);
    for key in 0..9_000 {
        let name = ["w", "b"][key % 2];
        let used = |engine: &Engine| engine.usage(T0, name, &format!("k{key}")).unwrap();
        assert_eq!((used(&c).used, used(&c).replicas.len()), (used(&a).used, used(&a).replicas.len()), "{key}");
    }
    assert_eq!(c.stats().own_keys, 0);

    // Of one replica: no cell of another.
    let only = [b.own()];
    let mut at = Some(ExportCursor::default());
    while let Some(from) = at {
        let export = a.export(T0, from, Some(&only));
        for (replica, part) in export.parts {
            let cells: usize = part.groups.iter().map(|group| group.cells.len()).sum();
            assert!(replica == b.own() || cells == 0);
        }
        at = export.next;
    }
}

#[test]
fn dropped_slots_leave_a_base_that_is_saved() {
    let spec = set(&[limit("l", "token_bucket", 10, "600s", None)]);
    let engine = engine("a", Settings::default());
    engine.install(T0, spec.clone());
    assert!(one(&engine, T0, Op::Check, "l", "k", 10).allowed());
    engine.drain(T0);
    let later = T0 + 400 * SECOND;
    let saved = engine.sweep(later);
    let base = &saved[0].groups[0].bases[0];
    assert_eq!((saved.len(), items(&saved[0].groups)), (1, 1));
    assert!(saved[0].expires_ns >= T0 + 600 * SECOND);
    assert_eq!(engine.sweep(later + SECOND), []);
    assert_eq!(one(&engine, later, Op::Peek, "l", "k", 0).used, 4);

    // Started again from what was saved.
    let again = Engine::new(Settings::default(), replica("a", 2), &Secret([3; 32]));
    again.install(later, spec);
    again.merge(later, &engine.own(), &saved[0].groups).unwrap();
    assert_eq!(one(&again, later, Op::Peek, "l", "k", 0).used, 4);
    assert!(base.base.t > 0);
    // It stays as long as what may still arrive chains on it: slots of 37.5 s are kept for four of them.
    again.sweep(T0 + 601 * SECOND);
    assert_eq!(again.stats().keys, 1);
    again.sweep(T0 + (601 + 4 * 38 + 38) * SECOND);
    assert_eq!(again.stats().keys, 0);
}

#[test]
fn what_arrives_after_all_seemed_paid_still_chains_on_what_was_owed() {
    let spec = set(&[limit("l", "token_bucket", 100, "1s", None)]);
    let [a, b] = ["a", "b"].map(|name| {
        let engine = engine(name, Settings::default());
        engine.install(T0, spec.clone());
        engine
    });
    // Ten seconds' worth; the slot is dropped before that is paid.
    one(&a, T0, Op::Debit, "l", "k", 1_000);
    let send = |now_ns: u64| {
        a.drain(now_ns - SECOND / 5)
            .parts
            .iter()
            .for_each(|part| assert_eq!(b.merge(now_ns, &a.own(), &part.groups).unwrap().refused, 0));
    };
    send(T0 + SECOND);
    // While this is under way everything seems to be paid at b, which sweeps.
    assert!(one(&a, T0 + 99 * SECOND / 10, Op::Check, "l", "k", 50).allowed());
    for engine in [&a, &b] {
        engine.sweep(T0 + 9 * SECOND);
        engine.sweep(T0 + 10 * SECOND);
    }
    let now_ns = T0 + 101 * SECOND / 10;
    send(now_ns);
    assert_eq!([&a, &b].map(|engine| one(engine, now_ns, Op::Peek, "l", "k", 0).used), [40, 40]);
}

#[test]
fn a_late_cell_of_a_bucket_leaves_its_debt() {
    let spec = set(&[limit("l", "token_bucket", 10, "600s", None)]);
    let [a, b] = ["a", "b"].map(|name| {
        let engine = engine(name, Settings::default());
        engine.install(T0, spec.clone());
        engine
    });
    assert!(one(&a, T0, Op::Check, "l", "k", 9).allowed());
    one(&a, T0, Op::Debit, "l", "k", 3);
    let parts = a.drain(T0).parts;
    let late = T0 + 400 * SECOND;
    let merged = b.merge(late, &a.own(), &parts[0].groups).unwrap();
    assert_eq!(merged, Merge { expired: 1, ..Merge::default() });
    assert_eq!(one(&b, late, Op::Peek, "l", "k", 0).used, 12 - 6);
    assert_eq!(one(&a, late, Op::Peek, "l", "k", 0).used, 12 - 6);
    // Long paid off: no trace.
    let c = engine("c", Settings::default());
    c.merge(T0 + 3600 * SECOND, &a.own(), &parts[0].groups).unwrap();
    assert_eq!(c.stats().keys, 0);
}

#[test]
fn a_hot_key_asks_for_an_early_flush() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("l", "fixed_window", 1_000, "60s", None)]));
    engine.set_members(5);
    let take = |cost| engine.decide(T0, Op::Check, &[Ask { limit: "l", key: "k", cost }]).unwrap().urgent;
    // 0.25 * 950 / 5 = 47.5 tokens are still too few, 0.25 * 940 / 5 = 47 are not.
    assert!(!take(47));
    assert!(take(13));
    engine.drain(T0);
    assert!(!take(3));
    // With little left every token counts, but at least 2 % of the limit a member.
    engine.drain(T0);
    assert!(take(937));
    engine.drain(T0);
    let check = |key, cost| engine.decide(T0, Op::Check, &[Ask { limit: "l", key, cost }]).unwrap();
    assert!(!check("k", 1).allowed && !check("k", 1).urgent);
    assert!(check("j", 996).urgent);
    engine.drain(T0);
    assert!(!check("j", 3).urgent);
    assert!(check("j", 1).urgent);
    assert!(engine.decide(T0, Op::Reset, &[Ask { limit: "l", key: "k", cost: 0 }]).unwrap().urgent);
}

/// One side resets while both go on counting, the other hears of it later.
#[test]
fn a_reset_forgives_once_while_both_go_on() {
    for algorithm in ["token_bucket", "sliding_window", "fixed_window"] {
        let [a, b] = ["a", "b"].map(|name| {
            let engine = engine(name, Settings::default());
            engine.install(T0, set(&[limit("l", algorithm, 100, "1000s", None)]));
            engine
        });
        let used = |engine: &Engine, now| engine.usage(now, "l", "k").unwrap().used;
        assert!(one(&a, T0, Op::Check, "l", "k", 40).allowed());
        assert!(one(&b, T0, Op::Check, "l", "k", 30).allowed());
        exchange(&a, &b, T0);
        let outcome = one(&a, T0 + MS, Op::Reset, "l", "k", 0);
        assert_eq!((outcome.used, outcome.remaining, outcome.reset_after_ns), (0, 100, 0), "{algorithm}");
        // What B takes before it hears of the reset is forgiven with it; what A takes after it counts.
        assert!(one(&b, T0 + MS, Op::Check, "l", "k", 20).allowed());
        assert!(one(&a, T0 + MS, Op::Check, "l", "k", 7).allowed());
        exchange(&a, &b, T0 + 2 * MS);
        assert_eq!((used(&a, T0 + 2 * MS), used(&b, T0 + 2 * MS)), (7, 7), "{algorithm}");
        assert!(one(&b, T0 + 3 * MS, Op::Check, "l", "k", 5).allowed());
        exchange(&a, &b, T0 + 3 * MS);
        assert_eq!((used(&a, T0 + 3 * MS), used(&b, T0 + 3 * MS)), (12, 12), "{algorithm}");
        // Both at once: twice the full allowance, counted once.
        one(&a, T0 + 4 * MS, Op::Reset, "l", "k", 0);
        one(&b, T0 + 4 * MS, Op::Reset, "l", "k", 0);
        one(&b, T0 + 4 * MS, Op::Check, "l", "k", 9);
        exchange(&a, &b, T0 + 5 * MS);
        assert_eq!((used(&a, T0 + 5 * MS), used(&b, T0 + 5 * MS)), (9, 9), "{algorithm}");
    }
}

/// A node whose clock is behind writes in the mark's slot: left in its own slot its spends would be free.
#[test]
fn spends_of_a_slower_clock_after_a_reset_count() {
    let [a, b] = ["a", "b"].map(|name| {
        let engine = engine(name, Settings::default());
        engine.install(T0, set(&[limit("l", "fixed_window", 10, "1s", None)]));
        engine
    });
    let (early, late) = (T0 + 900 * MS, T0 + 1_100 * MS);
    one(&a, late, Op::Check, "l", "k", 10);
    one(&a, late, Op::Reset, "l", "k", 0);
    exchange(&a, &b, early);
    assert_eq!(one(&b, early, Op::Check, "l", "k", 8).used, 8);
    exchange(&a, &b, late);
    assert_eq!(one(&a, late, Op::Peek, "l", "k", 3).used, 8);
    assert!(!one(&a, late, Op::Check, "l", "k", 3).allowed());
}
