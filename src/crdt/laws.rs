//! The laws of merging, as properties over histories of several writers.

use proptest::prelude::*;

use super::{Base, Cell, Mark, ReplicaIx, Slots};

/// One thing a node may hear of a key.
#[derive(Clone, Debug)]
enum News {
    Cell(u64, ReplicaIx, Cell),
    Mark(Mark),
    Base(u64, Base),
}

fn take(slots: &mut Slots, news: &News) {
    match news {
        News::Cell(slot, replica, cell) => {
            slots.merge_cell(*slot, *replica, cell);
        }
        News::Mark(mark) => {
            slots.merge_mark(*mark);
        }
        News::Base(slot, base) => {
            slots.merge_base(*slot, base);
        }
    }
}

/// A reachable cell: one writer's chain, so that fields grow together and `first_ns` is fixed by (slot, replica, n).
fn cell() -> impl Strategy<Value = News> {
    (0..4u64, 1..4u16, 0..3u32, 1..50u64, 0..20u64).prop_map(|(slot, replica, n, spent, debited)| {
        let first_ns = slot * 1000 + u64::from(replica) * 10 + u64::from(n);
        let fin = u128::from(first_ns) * 3 + u128::from(spent) * 7;
        let debited = debited.min(spent) * spent / 50;
        let refunded = u128::from(debited) / 2;
        News::Cell(slot, ReplicaIx(replica), Cell { n, spent, first_ns, fin, debited, refunded })
    })
}

fn mark() -> impl Strategy<Value = Mark> {
    (0..4u64, 1..3u32).prop_map(|(slot, n)| Mark { slot, n })
}

fn base() -> impl Strategy<Value = News> {
    (0..5u64, prop_oneof![Just(Mark::default()), mark()], 0..1000u128, 0..30u64)
        .prop_map(|(slot, mark, t, d)| News::Base(slot, Base { mark, t, d }))
}

fn news() -> impl Strategy<Value = Vec<News>> {
    prop::collection::vec(prop_oneof![6 => cell(), 1 => mark().prop_map(News::Mark), 2 => base()], 1..30)
}

fn of(news: &[News]) -> Slots {
    let mut slots = Slots::default();
    for one in news {
        take(&mut slots, one);
    }
    slots
}

fn merge(a: &Slots, b: &Slots) -> Slots {
    let mut out = a.clone();
    out.merge_mark(b.mark());
    for c in b.cells() {
        out.merge_cell(c.slot, c.replica, &c.cell);
    }
    for (slot, base) in b.bases() {
        out.merge_base(*slot, base);
    }
    out
}

proptest! {
    #[test]
    fn any_order_with_repetition_gives_the_same_state(
        (first, again) in news().prop_flat_map(|n| {
            let shuffled = Just(n.iter().cloned().chain(n.iter().step_by(2).cloned()).collect::<Vec<_>>()).prop_shuffle();
            (Just(n), shuffled)
        })
    ) {
        prop_assert_eq!(of(&first), of(&again));
    }

    #[test]
    fn merge_is_commutative_associative_idempotent(a in news(), b in news(), c in news()) {
        let (a, b, c) = (of(&a), of(&b), of(&c));
        prop_assert_eq!(merge(&a, &b), merge(&b, &a));
        prop_assert_eq!(merge(&merge(&a, &b), &c), merge(&a, &merge(&b, &c)));
        prop_assert_eq!(merge(&a, &a), a);
    }

    #[test]
    fn cells_and_bases_stay_ordered_and_unforgiven(n in news()) {
        let slots = of(&n);
        prop_assert!(slots.cells().windows(2).all(|w| (w[0].slot, w[0].replica) < (w[1].slot, w[1].replica)));
        prop_assert!(slots.bases().windows(2).all(|w| w[0].0 < w[1].0));
        prop_assert!(slots.cells().iter().all(|c| !slots.mark().ignores(c.slot, c.cell.n)));
    }
}
