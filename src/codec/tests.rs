//! Round trips, refusals, sizes.

use proptest::prelude::*;

use super::*;
use crate::algorithms::bucket::Bucket;
use crate::algorithms::calendar::{Calendar, Period, Zone};
use crate::algorithms::window::Window;
use crate::crdt::{Base, Cell, MAX_STAMP_NS, Mark, Stamp, Written};
use crate::engine::{KeyBase, KeyCell, KeyMark, MAX_PART_ITEMS};
use crate::id::{KeyHash, NodeName};
use crate::limits::{MAX_LIMIT, MAX_LIMITS, Shape};
use crate::time::{MS, SECOND};

const NOW: u64 = 1_700_000_000 * SECOND;

fn replica(name: &str) -> ReplicaId {
    ReplicaId { node: NodeName::new(name).unwrap(), generation: NOW / MS, nonce: 0x9e37_79b9 }
}

fn chunk(groups: Vec<Group>) -> Chunk {
    let (replica, complete_to_ns) = (replica("eu-1"), NOW - 3 * MS);
    Chunk { replica, seq: 70_000, stamp_ns: NOW, complete_to_ns, expires_ns: NOW + 70 * SECOND, groups }
}

fn hash(i: usize) -> KeyHash {
    KeyHash((i as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes())
}

/// Small, large and any: so that every width of integer occurs.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..300u64, any::<u32>().prop_map(u64::from), NOW..NOW + SECOND, any::<u64>(), Just(u64::MAX)]
}

fn seq() -> impl Strategy<Value = u64> {
    number().prop_map(|seq| seq.min(MAX_SEQ))
}

fn wide() -> impl Strategy<Value = u128> {
    prop_oneof![number().prop_map(u128::from), any::<u128>(), Just(u128::MAX)]
}

fn shape() -> impl Strategy<Value = Shape> {
    let positive = || prop_oneof![1..100u64, 1..=MAX_LIMIT, Just(60 * SECOND)];
    let calendar = (prop::sample::select(&Period::ALL[..]), "[!-~]{1,39}")
        .prop_map(|(period, zone)| Window::Calendar(Calendar { period, zone: Zone::held(&zone).unwrap() }));
    let window = prop_oneof![
        positive().prop_map(|window_ns| Window::Fixed { window_ns }),
        positive().prop_map(|window_ns| Window::Sliding { window_ns }),
        (positive(), 1..=u32::MAX).prop_map(|(window_ns, slots)| Window::Slots { window_ns, slots }),
        positive().prop_map(|window_ns| Window::Log { window_ns }),
        calendar,
    ];
    prop_oneof![
        window.prop_map(Shape::Window),
        (0..=MAX_LIMIT, positive(), 0..=MAX_LIMIT, positive(), 0..=MAX_LIMIT).prop_map(
            |(limit, window_ns, capacity, slot_ns, queue_ns)| {
                Shape::Bucket(Bucket { limit, window_ns, capacity, slot_ns, queue_ns })
            }
        ),
    ]
}

fn key() -> impl Strategy<Value = KeyHash> {
    any::<[u8; 16]>().prop_map(KeyHash)
}

fn cells(window: bool) -> impl Strategy<Value = Vec<KeyCell>> {
    let n = prop_oneof![3 => Just(0u32), 1 => any::<u32>()];
    let debited = prop_oneof![3 => Just(0u64), 1 => number()];
    let refunded = prop_oneof![3 => Just(0u128), 1 => wide()];
    let cell = (key(), number(), n, number(), number(), wide(), debited, refunded);
    let cell = cell.prop_map(move |(key, slot, n, spent, first_ns, fin, debited, refunded)| {
        let whole = Cell { n, spent, first_ns, fin, debited, refunded };
        KeyCell { key, slot, cell: if window { Cell { spent, refunded, ..Cell::empty(n) } } else { whole } }
    });
    prop::collection::vec(cell, 0..20)
}

fn group() -> impl Strategy<Value = Group> {
    let mark = (key(), number(), any::<u32>(), number());
    let mark = mark.prop_map(|(key, slot, n, until_ns)| KeyMark { key, mark: Mark { slot, n }, until_ns });
    let base = (key(), number(), number(), any::<u32>(), wide(), number())
        .prop_map(|(key, slot, at, n, t, d)| KeyBase { key, slot, base: Base { mark: Mark { slot: at, n }, t, d } });
    let (marks, bases) = (prop::collection::vec(mark, 0..5), prop::collection::vec(base, 0..5));
    (shape(), marks, bases).prop_flat_map(|(shape, marks, bases)| {
        let cells = cells(matches!(shape, Shape::Window(_)));
        cells.prop_map(move |cells| Group { shape, cells, marks: marks.clone(), bases: bases.clone() })
    })
}

/// Any chunk whatever.
pub fn any_chunk() -> impl Strategy<Value = Chunk> {
    let head = (any::<u64>(), any::<u32>(), seq(), number(), number(), number());
    (head, prop::collection::vec(group(), 0..5)).prop_map(
        |((generation, nonce, seq, stamp, complete, expires), groups)| {
            let replica = ReplicaId { generation, nonce, ..replica("eu-1") };
            Chunk { replica, seq, stamp_ns: stamp, complete_to_ns: complete, expires_ns: expires, groups }
        },
    )
}

fn have() -> impl Strategy<Value = Vec<(ReplicaId, u64)>> {
    let one = (any::<u64>(), any::<u32>(), seq());
    let one = one.prop_map(|(generation, nonce, n)| (ReplicaId { generation, nonce, ..replica("ap-1") }, n));
    prop::collection::vec(one, 0..10)
}

fn definitions() -> impl Strategy<Value = Vec<(String, Written)>> {
    let one = ("[a-z]{1,64}", 0..=MAX_STAMP_NS, "[a-z]{1,9}", prop::option::of(".{0,50}"));
    let one = one.prop_map(|(name, at_ns, by, value)| {
        let stamp = Stamp { at_ns, by: NodeName::new(&by).unwrap_or(replica("us-1").node) };
        (name, Written { stamp, value: value.map(Into::into) })
    });
    prop::collection::vec(one, 0..10)
}

/// Any frame but for what a chunk in it says.
pub fn any_frame() -> impl Strategy<Value = Frame> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..100);
    prop_oneof![
        bytes().prop_map(Frame::Chunk),
        (number(), seq(), number(), seq())
            .prop_map(|(stamp_ns, seq, complete_to_ns, ack)| { Frame::Beat { stamp_ns, seq, complete_to_ns, ack } }),
        have().prop_map(Frame::Have),
        (number(), have()).prop_map(|(sync, claims)| Frame::StateBegin { sync, claims }),
        (number(), bytes()).prop_map(|(sync, chunk)| Frame::State { sync, chunk }),
        number().prop_map(|sync| Frame::StateEnd { sync }),
        Just(Frame::CaughtUp),
        prop::collection::vec(("[a-z]{1,64}", any::<u64>(), any::<bool>()), 0..10).prop_map(|limits| {
            let digest = |(name, hash, of_file)| LimitDigest { name, hash, of_file };
            Frame::Limits(limits.into_iter().map(digest).collect())
        }),
        definitions().prop_map(Frame::Definitions),
        number().prop_map(Frame::Ping),
        number().prop_map(Frame::Pong),
    ]
}

proptest! {
    #[test]
    fn chunks_come_back_exactly(chunk in any_chunk()) {
        let bytes = chunk.encode();
        prop_assert_eq!(Chunk::decode(&bytes), Ok(chunk));
    }

    #[test]
    fn hellos_and_frames_come_back_exactly(frame in any_frame(), have in have(), stamp_ns in number()) {
        prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        let cluster = ClusterId([7; 16]);
        let hello = Hello { cluster, replica: replica("a"), region: "eu".into(), stamp_ns, expected_nodes: 8, have };
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }

    /// Whatever bytes there are: no panic, and what is read has no other bytes than those.
    #[test]
    fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..200), pick in 0..3u8) {
        let mut bytes = match pick {
            0 => vec![CHUNK_VERSION, 1, b'a', 0, 0, 0, 0, 0, 0, 1],
            1 => [&MAGIC[..], &PROTOCOL_VERSION.to_le_bytes()[..]].concat(),
            _ => Vec::new(),
        };
        bytes.extend(body);
        if let Ok(frame) = Frame::decode(&bytes) {
            prop_assert_eq!(frame.encode(), bytes.clone());
        }
        if let Ok(hello) = Hello::decode(&bytes) {
            prop_assert_eq!(hello.encode(), bytes.clone());
        }
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        if let Ok(chunk) = Chunk::decode(&bytes) {
            prop_assert_eq!(chunk.encode(), bytes);
        }
    }

    /// A chunk that was changed anywhere is refused, also when its checksum was mended, unless it then says something
    /// else in the one way there is to say it.
    #[test]
    fn damage_is_found(chunk in any_chunk(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let mut bytes = chunk.encode();
        let at = at.index(bytes.len() - 4);
        bytes[at] ^= flip;
        prop_assert!(Chunk::decode(&bytes).is_err());
        mend(&mut bytes);
        if let Ok(other) = Chunk::decode(&bytes) {
            prop_assert_ne!(&other, &chunk);
            prop_assert_eq!(other.encode(), bytes);
        }
    }
}

fn mend(bytes: &mut [u8]) {
    let (body, crc) = bytes.split_last_chunk_mut::<4>().unwrap();
    *crc = crc32fast::hash(body).to_le_bytes();
}

#[test]
fn refusals_say_what_is_wrong() {
    let good = chunk(vec![Group::new(Shape::Window(Window::Fixed { window_ns: SECOND }))]).encode();
    let version = CodecError::Version { what: "chunk", ours: 2, theirs: 9 };
    assert_eq!(Chunk::decode(&[&[9], &good[1..]].concat()), Err(version.clone()));
    assert_eq!(version.to_string(), "chunk version 9, this tidegate reads 2");
    assert_eq!(Chunk::decode(&[]), Err(CodecError::Truncated("a chunk")));
    assert_eq!(Chunk::decode(&good[..good.len() - 1]), Err(CodecError::Checksum));

    let mut trailing = [&good[..good.len() - 4], &[0, 0, 0, 0, 0]].concat();
    mend(&mut trailing);
    assert_eq!(Chunk::decode(&trailing), Err(CodecError::Trailing(1)));

    // The seq follows version, name, generation and nonce; 251 announces two bytes, of which 5 needs none.
    let mut long = chunk(vec![]);
    long.seq = 5;
    let mut long = long.encode();
    let seq_at = 1 + 5 + 9 + 5;
    assert_eq!(long[seq_at], 5);
    long.splice(seq_at..=seq_at, [251, 5, 0]);
    mend(&mut long);
    assert_eq!(Chunk::decode(&long), Err(CodecError::NotCanonical));

    let beyond = Chunk { seq: MAX_SEQ + 1, ..chunk(vec![]) }.encode();
    assert!(matches!(Chunk::decode(&beyond), Err(CodecError::TooLong { what: "a seq", .. })));
    let too_long = vec![CHUNK_VERSION; MAX_CHUNK_BYTES + 1];
    assert!(matches!(Chunk::decode(&too_long), Err(CodecError::TooLong { what: "a chunk", .. })));
    let window = Shape::Window(Window::Fixed { window_ns: 0 });
    assert!(matches!(
        Chunk::decode(&chunk(vec![Group::new(window)]).encode()),
        Err(CodecError::Invalid { what: "a window", .. })
    ));
}

#[test]
fn a_length_is_not_believed_beyond_the_bytes_that_are_there() {
    // A frame of a few bytes that announces as many replicas as a frame may have.
    let few = [3, 251, 0, 32];
    assert_eq!(Frame::decode(&few), Err(CodecError::Truncated("replicas")));
    let many = [3, 251, 1, 32];
    let too_many = CodecError::TooLong { what: "replicas", len: 8193, most: MAX_HAVE as u64 };
    assert_eq!(Frame::decode(&many), Err(too_many));
    let huge = [3, 253, 255, 255, 255, 255, 255, 255, 255, 255];
    assert!(matches!(Frame::decode(&huge), Err(CodecError::TooLong { .. })));
}

#[test]
fn another_version_is_named_whatever_follows() {
    let strange = [&MAGIC[..], &[2, 1], b"what a later version says"].concat();
    let version = CodecError::Version { what: "protocol", ours: PROTOCOL_VERSION, theirs: 258 };
    assert_eq!(Hello::decode(&strange), Err(version));
    assert!(matches!(Hello::decode(b"GET / HTTP/1.1"), Err(CodecError::Invalid { what: "a hello", .. })));
    assert!(matches!(Frame::decode(&[77]), Err(CodecError::Invalid { what: "a frame", .. })));
}

/// What the items of a chunk take on average, its head included.
fn bytes_an_item(groups: Vec<Group>) -> f64 {
    let items: usize = groups.iter().map(Group::len).sum();
    chunk(groups).encode().len() as f64 / items as f64
}

#[test]
fn a_window_cell_takes_24_bytes_and_a_buckets_40() {
    for window_ns in [SECOND, 60 * SECOND, 86_400 * SECOND] {
        let shape = Shape::Window(Window::Sliding { window_ns });
        let cell = |i: usize| Cell { spent: 1 + (i as u64 * i as u64) % 60_000, ..Cell::empty(0) };
        let one = |i| KeyCell { key: hash(i), slot: shape.slot(NOW), cell: cell(i) };
        let cells = (0..MAX_PART_ITEMS).map(one).collect();
        let bytes = bytes_an_item(vec![Group { cells, ..Group::new(shape) }]);
        println!("window of {} s: {bytes:.1} bytes a cell", window_ns / SECOND);
        assert!(bytes <= 24.0, "{bytes}");
    }
    // From the shortest slots (10 ms) to the longest (60 s).
    for (limit, window_ns, slot_ns) in
        [(10_000, SECOND, 10 * MS), (100, SECOND, 62 * MS), (1000, 960 * SECOND, 60 * SECOND)]
    {
        for debited in [0, 3] {
            let bucket = Bucket { limit, window_ns, capacity: limit, slot_ns, queue_ns: 0 };
            let one = |i: usize| {
                let (start, mut cell) = (bucket.slot(NOW) * slot_ns, Cell { debited, ..Cell::empty(0) });
                // Up to ten spends, each at some time of its tenth of the slot.
                for tenth in 0..1 + i as u64 % 10 {
                    let within = hash(i * 10 + tenth as usize).table_hash() % (slot_ns / 10);
                    bucket.spend(&mut cell, start + slot_ns / 10 * tenth + within, 1 + i as u64 % 9);
                }
                KeyCell { key: hash(i), slot: bucket.slot(NOW), cell }
            };
            let cells = (0..MAX_PART_ITEMS).map(one).collect();
            let bytes = bytes_an_item(vec![Group { cells, ..Group::new(Shape::Bucket(bucket)) }]);
            println!("bucket of {limit} per {} s, debited {debited}: {bytes:.1} bytes a cell", window_ns / SECOND);
            assert!(bytes <= 40.0, "{bytes}");
        }
    }
}

/// As many groups as items, every number as wide as it gets: no part makes a chunk that is too long.
#[test]
fn the_largest_part_fits_a_chunk() {
    let bucket =
        Bucket { limit: MAX_LIMIT, window_ns: MAX_LIMIT, capacity: MAX_LIMIT, slot_ns: MAX_LIMIT, queue_ns: MAX_LIMIT };
    let empty = Group::new(Shape::Bucket(bucket));
    let cell =
        Cell { n: u32::MAX, spent: u64::MAX, first_ns: 0, fin: u128::MAX / 3, debited: u64::MAX, refunded: u128::MAX };
    let cell = KeyCell { key: hash(1), slot: u64::MAX, cell };
    let mark = KeyMark { key: hash(2), mark: Mark { slot: u64::MAX, n: u32::MAX }, until_ns: u64::MAX };
    let base = Base { mark: mark.mark, t: u128::MAX / 3, d: u64::MAX };
    let base = KeyBase { key: hash(3), slot: u64::MAX, base };
    let forms = [
        Group { cells: vec![cell], ..empty.clone() },
        Group { marks: vec![mark], ..empty.clone() },
        Group { bases: vec![base], ..empty.clone() },
    ];
    let together = |one: &Group| Group {
        cells: one.cells.repeat(MAX_PART_ITEMS),
        marks: one.marks.repeat(MAX_PART_ITEMS),
        bases: one.bases.repeat(MAX_PART_ITEMS),
        ..empty.clone()
    };
    let mut parts: Vec<Vec<Group>> = forms.iter().map(|one| vec![one.clone(); MAX_PART_ITEMS]).collect();
    // Relative slots are widest when another item of the group has slot 0.
    for mut group in forms.iter().map(together) {
        group.cells.iter_mut().step_by(MAX_PART_ITEMS - 1).take(1).for_each(|c| c.slot = 0);
        group.marks.iter_mut().step_by(MAX_PART_ITEMS - 1).take(1).for_each(|m| m.mark.slot = 0);
        group.bases.iter_mut().step_by(MAX_PART_ITEMS - 1).take(1).for_each(|b| b.slot = 0);
        parts.push(vec![group]);
    }
    for groups in parts {
        let mut largest = chunk(groups);
        largest.replica =
            ReplicaId { node: NodeName::new(&"x".repeat(63)).unwrap(), generation: u64::MAX, nonce: u32::MAX };
        (largest.seq, largest.stamp_ns, largest.complete_to_ns, largest.expires_ns) =
            (MAX_SEQ, u64::MAX, u64::MAX, u64::MAX);
        let bytes = largest.encode();
        println!("{} groups of {}: {} bytes", largest.groups.len(), largest.groups[0].len(), bytes.len());
        assert!(bytes.len() <= MAX_CHUNK_BYTES, "{}", bytes.len());
        assert_eq!(Chunk::decode(&bytes), Ok(largest));
    }
}

#[test]
fn the_largest_lists_fit_a_frame() {
    let longest = ReplicaId { node: NodeName::new(&"x".repeat(63)).unwrap(), generation: u64::MAX, nonce: u32::MAX };
    let have = vec![(longest.clone(), MAX_SEQ); MAX_HAVE];
    let region = "x".repeat(MAX_REGION_BYTES);
    let (cluster, stamp_ns, expected_nodes) = (ClusterId([255; 16]), u64::MAX, u32::MAX);
    let hello = Hello { cluster, replica: longest.clone(), region, stamp_ns, expected_nodes, have: have.clone() };
    let begin = Frame::StateBegin { sync: u64::MAX, claims: have };
    let digest = LimitDigest { name: "x".repeat(MAX_LIMIT_NAME_BYTES), hash: u64::MAX, of_file: true };
    let limits = Frame::Limits(vec![digest; MAX_LIMITS]);
    let definition = (
        "x".repeat(MAX_LIMIT_NAME_BYTES),
        Written {
            stamp: Stamp { at_ns: MAX_STAMP_NS, by: longest.node.clone() },
            value: Some("x".repeat(MAX_DEFINITION_BYTES).into()),
        },
    );
    let definitions = Frame::Definitions(vec![definition; 3]);
    let state = Frame::State { sync: u64::MAX, chunk: vec![0; MAX_CHUNK_BYTES] };
    for bytes in [hello.encode(), begin.encode(), limits.encode(), definitions.encode(), state.encode()] {
        assert!(bytes.len() <= MAX_FRAME_BYTES, "{}", bytes.len());
    }
}
