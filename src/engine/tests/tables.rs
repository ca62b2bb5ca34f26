//! Bounds: own keys, cells, and what happens at them; forgetting; new lives.

use super::*;
use crate::algorithms::Verdict;
use crate::crdt::Cell;
use crate::limits::{OnFull, Shape};
use crate::time::SECOND;

fn full(on_full: OnFull, of_limit: Option<i64>) -> Engine {
    let max_keys = if of_limit.is_some() { 1_000 } else { 3 };
    let engine = engine("a", Settings { max_keys, on_full, ..Settings::default() });
    let spec = LimitSpec { max_keys: of_limit, ..limit("l", "token_bucket", 5, "1s", None) };
    engine.install(T0, set(&[spec, limit("other", "fixed_window", 5, "1s", None)]));
    for key in ["a", "b", "c"] {
        assert!(one(&engine, T0, Op::Check, "l", key, 2).allowed());
    }
    engine
}

#[test]
fn a_full_table_admits_without_counting_or_denies() {
    for of_limit in [None, Some(3)] {
        let engine = full(OnFull::Allow, of_limit);
        for _ in 0..10 {
            let outcome = one(&engine, T0, Op::Check, "l", "d", 4);
            assert!(outcome.allowed() && outcome.used == 0, "{outcome:?}");
        }
        assert_eq!((engine.stats().full_allowed, engine.stats().own_keys, engine.stats().keys), (10, 3, 3));

        let engine = full(OnFull::Deny, of_limit);
        for op in [Op::Check, Op::Peek] {
            let outcome = one(&engine, T0, op, "l", "d", 4);
            assert_eq!((outcome.allowed(), outcome.reason), (false, Some(Reason::TableFull)));
            assert_eq!(outcome.verdict, Verdict::After(SECOND));
        }
        // A cost that never fits says so, one of 0 needs no room, and known keys go on.
        assert_eq!(one(&engine, T0, Op::Check, "l", "d", 6).reason, Some(Reason::CostOverLimit));
        assert!(one(&engine, T0, Op::Check, "l", "d", 0).allowed());
        assert_eq!(one(&engine, T0, Op::Check, "l", "a", 3).used, 5);
        assert_eq!((engine.stats().full_denied, engine.stats().own_keys), (1, 3));
        let told: Vec<_> = engine.full_limits().iter().map(|limit| limit.to_string()).collect();
        assert_eq!(told, if of_limit.is_some() { vec!["l"] } else { vec![] });
        // Of a limit's own bound other limits know nothing.
        assert_eq!(one(&engine, T0, Op::Check, "other", "d", 1).allowed(), of_limit.is_some());
    }
}

#[test]
fn a_denied_request_keeps_no_place_and_takes_nothing() {
    let engine = full(OnFull::Deny, None);
    let engine_asks = [("other", "x", 1), ("l", "a", 1)];
    let asks = engine_asks.map(|(limit, key, cost)| Ask { limit, key, cost });
    let answer = engine.decide(T0, Op::Check, &asks).unwrap();
    assert!(!answer.allowed && !answer.results[0].allowed() && answer.results[1].allowed());
    assert_eq!((answer.summary, answer.results[1].used), (Some(0), 2));
    assert_eq!((engine.stats().own_keys, engine.stats().keys), (3, 3));

    // Two new keys, room for one: neither is taken, and the room stays.
    let engine = super::engine("a", Settings { max_keys: 1, on_full: OnFull::Deny, ..Settings::default() });
    engine.install(T0, set(&[limit("l", "token_bucket", 5, "1s", None)]));
    let asks = ["x", "y"].map(|key| Ask { limit: "l", key, cost: 1 });
    assert!(!engine.decide(T0, Op::Check, &asks).unwrap().allowed);
    assert_eq!(engine.stats().own_keys, 0);
    assert!(one(&engine, T0, Op::Check, "l", "x", 1).allowed());
}

#[test]
fn expired_keys_make_room_and_live_ones_are_never_forgotten() {
    let engine = full(OnFull::Deny, None);
    let mut now = T0;
    for _ in 0..20 {
        now += SECOND;
        engine.sweep(now);
        // Kept by what it spends; the others go when their slots have expired.
        assert!(one(&engine, now, Op::Check, "l", "a", 1).allowed());
    }
    assert_eq!((engine.stats().own_keys, engine.stats().keys), (1, 1));
    assert!(one(&engine, now, Op::Check, "l", "d", 1).allowed());
    engine.sweep(now + 3600 * SECOND);
    let stats = engine.stats();
    assert_eq!((stats.own_keys, stats.keys, stats.cells), (0, 0, 0));
}

#[test]
fn debits_and_resets_at_a_full_table_are_not_counted_either() {
    let engine = full(OnFull::Deny, None);
    assert!(one(&engine, T0, Op::Debit, "l", "d", 9).allowed());
    assert!(one(&engine, T0, Op::Reset, "l", "d", 0).allowed());
    assert_eq!((engine.stats().keys, engine.stats().full_allowed), (3, 2));
    one(&engine, T0, Op::Debit, "l", "a", 9);
    assert_eq!(one(&engine, T0, Op::Peek, "l", "a", 0).used, 11);
}

fn window() -> Shape {
    limit("l", "fixed_window", 100, "60s", None).check().unwrap().shape()
}

fn cells(keys: std::ops::Range<u8>, spent: u64) -> Vec<Group> {
    let slot = window().slot(T0);
    let cell = |key: u8| KeyCell { key: crate::id::KeyHash([key; 16]), slot, cell: Cell { spent, ..Cell::empty(0) } };
    vec![Group { cells: keys.map(cell).collect(), ..Group::new(window()) }]
}

#[test]
fn cells_of_peers_are_taken_up_to_the_bound_and_known_ones_beyond() {
    let engine = engine("a", Settings { max_cells: 10, ..Settings::default() });
    let peer = replica("b", 1);
    let first = engine.merge(T0, &peer, &cells(0..8, 1)).unwrap();
    assert_eq!(first, Merge { changed: 8, ..Merge::default() });
    let second = engine.merge(T0, &peer, &cells(4..20, 2)).unwrap();
    assert_eq!(second, Merge { changed: 6, refused: 10, ..Merge::default() });
    assert_eq!(engine.merge(T0, &peer, &cells(0..10, 1)).unwrap(), Merge { known: 10, ..Merge::default() });
    assert_eq!((engine.stats().cells, engine.stats().refused_cells), (10, 10));
    // Expiry makes room.
    let later = T0 + 3600 * SECOND;
    assert_eq!(engine.merge(later, &peer, &cells(0..1, 9)).unwrap(), Merge { expired: 1, ..Merge::default() });
    engine.sweep(later);
    assert_eq!((engine.stats().cells, engine.stats().expired_on_arrival), (0, 1));
}

#[test]
fn cells_too_far_ahead_are_refused_whole() {
    let engine = engine("a", Settings::default());
    let peer = replica("b", 1);
    let skew = 4 * SECOND;
    let slot_start = window().slot(T0) * 60 * SECOND;
    assert!(engine.merge(slot_start - skew, &peer, &cells(0..3, 1)).is_ok());
    let mut groups = cells(3..5, 1);
    groups[0].cells[1].slot += 1;
    let refused = engine.merge(slot_start, &peer, &groups).unwrap_err();
    assert_eq!(refused.ahead_ms, 60_000);
    assert_eq!(engine.stats().cells, 3);
}

#[test]
fn a_new_life_counts_again_beside_the_old_cells() {
    let engine = engine("a", Settings { max_keys: 2, on_full: OnFull::Deny, ..Settings::default() });
    engine.install(T0, set(&[limit("l", "sliding_window", 10, "60s", None)]));
    for key in ["x", "y"] {
        assert!(one(&engine, T0, Op::Check, "l", key, 4).allowed());
    }
    engine.drain(T0);
    let second = replica("a", 2);
    engine.new_life(T0, second.clone(), false);
    assert_eq!((engine.own(), engine.stats().own_keys), (second.clone(), 0));
    assert_eq!(one(&engine, T0, Op::Check, "l", "x", 3).used, 7);
    let drained = engine.drain(T0);
    let cell = drained.parts[0].groups[0].cells[0].cell;
    assert_eq!((drained.parts.len(), cell.spent), (1, 3));
    let usage = engine.usage(T0, "l", "x").unwrap();
    let replicas: Vec<_> = usage.replicas.iter().map(|one| (one.replica.generation, one.used)).collect();
    assert_eq!(replicas, [(2, 3), (1, 4)]);
    assert_eq!(engine.stats().own_keys, 1);
}

#[test]
fn a_life_that_begins_earlier_drops_what_is_ahead() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("l", "token_bucket", 100, "100s", None)]));
    assert!(one(&engine, T0, Op::Check, "l", "x", 10).allowed());
    assert!(one(&engine, T0 + 60 * SECOND, Op::Check, "l", "x", 30).allowed());
    let back = T0 + SECOND;
    engine.new_life(back, replica("a", 2), true);
    assert_eq!(one(&engine, back, Op::Check, "l", "x", 1).used, 10);
    engine.drain(back);
    assert_eq!(one(&engine, back, Op::Check, "l", "x", 1).used, 11);
}

#[test]
fn a_life_ends_with_what_it_had_not_drained() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("l", "token_bucket", 100, "100s", None)]));
    assert!(one(&engine, T0, Op::Check, "l", "x", 4).allowed());
    engine.drain(T0);
    assert!(one(&engine, T0 + SECOND, Op::Check, "l", "x", 3).allowed());
    one(&engine, T0 + SECOND, Op::Reset, "l", "y", 0);
    let last = engine.new_life(T0 + 2 * SECOND, replica("a", 2), false);
    let groups: Vec<_> = last.parts.iter().flat_map(|part| &part.groups).collect();
    assert_eq!(
        groups.iter().map(|group| (group.cells.len(), group.marks.len())).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (1, 1)
    );
    assert_eq!(engine.drain(T0 + 2 * SECOND).parts, []);
}

/// A reset in a future that did not come would hold every later spend there until it comes.
#[test]
fn a_life_that_begins_earlier_drops_marks_and_bases_ahead() {
    let engine = engine("a", Settings::default());
    engine.install(T0, set(&[limit("w", "fixed_window", 10, "1s", None), limit("b", "token_bucket", 10, "1s", None)]));
    let ahead = T0 + 3600 * SECOND;
    for name in ["w", "b"] {
        one(&engine, ahead, Op::Reset, name, "x", 0);
    }
    one(&engine, ahead, Op::Debit, "b", "x", 1_000);
    engine.sweep(ahead + 20 * SECOND);
    assert!(engine.new_life(T0, replica("a", 2), true).parts.is_empty());
    for name in ["w", "b"] {
        assert!(one(&engine, T0, Op::Check, name, "x", 10).allowed());
        assert_eq!(one(&engine, T0 + 2 * SECOND, Op::Peek, name, "x", 10).used, 0, "{name}");
    }
    for cell in engine.drain(T0).parts.iter().flat_map(|part| &part.groups).flat_map(|group| &group.cells) {
        assert!(cell.slot <= T0 / (10 * crate::time::MS) && cell.cell.n == 0);
    }
}

/// Peers drop a slot a little later than this node when their clocks are behind: that is no clone.
#[test]
fn what_was_forgotten_of_ones_own_is_no_clone() {
    let engine = engine("a", Settings::default());
    let own = engine.own();
    engine.install(T0, set(&[limit("l", "fixed_window", 100, "60s", None)]));
    assert!(one(&engine, T0, Op::Check, "l", "x", 5).allowed());
    let groups = engine.drain(T0).parts.remove(0).groups;
    let expired = T0 + 60 * SECOND + 4 * SECOND;
    engine.sweep(expired);
    let merged = engine.merge(expired, &own, &groups).unwrap();
    assert_eq!((merged.expired, merged.own_above), (1, false));
}

#[test]
fn late_debts_and_bases_of_peers_are_bounded_too() {
    let engine = engine("a", Settings { max_cells: 1, ..Settings::default() });
    engine.install(T0, set(&[limit("l", "token_bucket", 1, "1h", Some(100))]));
    let other = super::engine("b", Settings::default());
    other.install(T0, set(&[limit("l", "token_bucket", 1, "1h", Some(100))]));
    for key in ["x", "y", "z"] {
        assert!(one(&other, T0, Op::Check, "l", key, 100).allowed());
    }
    let late = T0 + 3600 * SECOND;
    for part in other.drain(T0).parts {
        let merged = engine.merge(late, &other.own(), &part.groups).unwrap();
        assert_eq!((merged.expired, merged.refused), (1, 2));
    }
    let bases = other.sweep(late).into_iter().flat_map(|part| part.groups).flat_map(|group| group.bases);
    let slot = other.export(late, ExportCursor::default(), None).parts[0].1.groups[0].shape.slot(late);
    let shape = limit("l", "token_bucket", 1, "1h", Some(100)).check().unwrap().shape();
    for (at, base) in (0..).zip(bases) {
        let base = KeyBase { slot: slot - at, ..base };
        let group = Group { bases: vec![base], ..Group::new(shape) };
        engine.merge(late, &other.own(), &[group]).unwrap();
    }
    assert!(engine.stats().cells <= 1, "{:?}", engine.stats());
}

#[test]
fn more_of_ones_own_id_than_one_knows_is_noticed() {
    let engine = engine("a", Settings::default());
    let own = engine.own();
    engine.install(T0, set(&[limit("l", "fixed_window", 100, "60s", None)]));
    assert!(one(&engine, T0, Op::Check, "l", "x", 5).allowed());
    let mut groups: Vec<_> = engine.drain(T0).parts.remove(0).groups;
    assert!(one(&engine, T0, Op::Check, "l", "x", 1).allowed());
    assert!(!engine.merge(T0, &own, &groups).unwrap().own_above);
    groups[0].cells[0].cell.spent = 7;
    assert!(engine.merge(T0, &own, &groups).unwrap().own_above);
    assert_eq!(engine.usage(T0, "l", "x").unwrap().used, 7);
}
