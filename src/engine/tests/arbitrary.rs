//! Whatever a peer sends, as far as its types allow: no panic, no endless state, and decisions go on.

use proptest::prelude::*;

use super::*;
use crate::algorithms::bucket::Bucket;
use crate::algorithms::calendar::{Calendar, Period, Zone};
use crate::algorithms::window::Window;
use crate::crdt::{Base, Cell, Mark};
use crate::id::KeyHash;
use crate::limits::{MAX_LIMIT, Shape};
use crate::time::SECOND;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..5u64, 0..1_000_000_000_000u64, T0 - 10 * SECOND..T0 + 10 * SECOND, Just(MAX_LIMIT), any::<u64>()]
}

fn positive() -> impl Strategy<Value = u64> {
    number().prop_map(|number| number.max(1))
}

fn shape() -> impl Strategy<Value = Shape> {
    let own = limit("b", "token_bucket", 10, "10s", None).check().unwrap().shape();
    let window = limit("w", "sliding_window", 10, "10s", None).check().unwrap().shape();
    prop_oneof![
        4 => Just(own),
        4 => Just(window),
        1 => (any::<bool>(), positive()).prop_map(|(fixed, window_ns)| {
            Shape::Window(if fixed { Window::Fixed { window_ns } } else { Window::Sliding { window_ns } })
        }),
        1 => (positive(), 1..=u32::MAX).prop_map(|(window_ns, slots)| Shape::Window(Window::Slots { window_ns, slots })),
        1 => positive().prop_map(|window_ns| Shape::Window(Window::Log { window_ns })),
        1 => prop::sample::select(&Period::ALL[..]).prop_map(|period| {
            Shape::Window(Window::Calendar(Calendar { period, zone: Zone::held("Nowhere/At_all").unwrap() }))
        }),
        1 => (number(), positive(), number(), positive(), number()).prop_map(
            |(limit, window_ns, capacity, slot_ns, queue_ns)| {
                Shape::Bucket(Bucket { limit, window_ns, capacity, slot_ns, queue_ns })
            }
        ),
    ]
}

fn wide() -> impl Strategy<Value = u128> {
    prop_oneof![number().prop_map(u128::from), number().prop_map(|n| u128::from(n) * 10), any::<u128>()]
}

/// Slots near the present of the shape mostly, so that they are not all refused or expired.
fn group(keys: Vec<KeyHash>) -> impl Strategy<Value = Group> {
    shape().prop_flat_map(move |shape| {
        let now = shape.slot(T0);
        let slot = prop_oneof![4 => now.saturating_sub(3)..now.saturating_add(1), 1 => 0..now.saturating_add(1)];
        let key = prop::sample::select(keys.clone());
        let n = || prop_oneof![0..3u32, any::<u32>()];
        let cell = (key.clone(), slot.clone(), n(), number(), number(), wide(), number(), wide()).prop_map(
            |(key, slot, n, spent, first_ns, fin, debited, refunded)| KeyCell {
                key,
                slot,
                cell: Cell { n, spent, first_ns, fin, debited, refunded },
            },
        );
        let mark = (key.clone(), slot.clone(), n(), number()).prop_map(|(key, slot, n, until_ns)| KeyMark {
            key,
            mark: Mark { slot, n },
            until_ns,
        });
        let base = (key, slot.clone(), wide(), number(), slot, n()).prop_map(|(key, slot, t, d, mark, n)| KeyBase {
            key,
            slot,
            base: Base { mark: Mark { slot: mark, n }, t, d },
        });
        (prop::collection::vec(cell, 0..6), prop::collection::vec(mark, 0..2), prop::collection::vec(base, 0..2))
            .prop_map(move |(cells, marks, bases)| Group { shape, cells, marks, bases })
    })
}

proptest! {
    #[test]
    fn does_no_harm(groups in prop::collection::vec(group(keys()), 1..8), op in 0..5usize, waits in prop::collection::vec(number(), 3)) {
        let engine = engine("a", Settings::default());
        let limits = |tokens| set(&[limit("b", "token_bucket", tokens, "10s", None), limit("w", "sliding_window", 10, "10s", None)]);
        engine.install(T0, limits(10));
        let mut now = T0;
        for (at, group) in groups.iter().enumerate() {
            let from = replica("p", at as u64 % 3);
            let _ = engine.merge(now, &from, std::slice::from_ref(group));
            let op = [Op::Check, Op::Peek, Op::Debit, Op::Refund, Op::Reset][(op + at) % 5];
            for limit in ["b", "w"] {
                let outcome = one(&engine, now, op, limit, "k", 2);
                prop_assert!(outcome.remaining <= 12);
                prop_assert!(engine.usage(now, limit, "k").is_ok());
            }
            if at % 3 == 1 {
                engine.install(now, limits(11 + at as i64 % 2));
            }
            engine.drain(now);
            engine.sweep(now);
        }
        for wait in waits {
            now = now.saturating_add(wait / 1_000_000);
            engine.sweep(now);
            engine.export(now, ExportCursor::default(), None);
            one(&engine, now, Op::Check, "b", "k", 1);
        }
        engine.sweep(u64::MAX);
    }
}

/// The hashes under which the limits' own keys are held, so that what arrives meets them.
fn keys() -> Vec<KeyHash> {
    let secret = Secret([3; 32]);
    vec![secret.key_hasher("b").hash("k"), secret.key_hasher("w").hash("k"), KeyHash([9; 16])]
}
