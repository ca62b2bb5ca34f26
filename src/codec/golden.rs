//! The formats of version 2, byte for byte. A test that fails here says that nodes and data folders of yesterday are not
//! understood any more: then the version must change, not the test.

use super::*;
use crate::algorithms::bucket::Bucket;
use crate::algorithms::calendar::{Calendar, Period, Zone};
use crate::algorithms::window::Window;
use crate::crdt::{Base, Cell, Mark, Stamp, Written};
use crate::engine::{KeyBase, KeyCell, KeyMark};
use crate::id::{KeyHash, NodeName};
use crate::limits::Shape;
use crate::time::SECOND;

const CHUNK: &str = concat!(
    "020465752d31fd7b68e5cf8b010000fcefbeaddefb2c01fd00002a36fe9c9717fdffff2936fe9c9717fd003c7d820e9d9717",
    "0700fc00ca9a3b00fc00f1536502000001010101010101010101010101010101000501010101010101010101010101010101",
    "01fc7011010001fd005847f80d00000001fc1555b00102000001010101010101010101010101010101000500000101010101",
    "010101010101010101010100fb2c0103000264fc00ca9a3b96fcf0829605fc0065cd1d00fd52b5d438040000000100000202",
    "02020202020202020202020202020007fbd2044d0264fc00ca9a3b96fcf0829605fc0065cd1d01fd53b5d438040000000101",
    "0102020202020202020202020202020202020902fba00ffbd2044d04030303030303030303030303030303030202fd00a0e2",
    "6644a097170404040404040404040404040404040400fd55b5d4380400000002fd894b965d04000000fb2c0103fd005847f8",
    "0d0000000600fc80fe210a01000001010101010101010101010101010101000104fd005847f80d00000000fd7b68e5cf8b01",
    "000001000001010101010101010101010101010101000105020d4575726f70652f4265726c696e01fcf08641650100000505",
    "050505050505050505050505050500000003cb5a7892",
);
const HELLO: &str = concat!(
    "746964650200090909090909090909090909090909090465752d31fd7b68e5cf8b010000fcefbeadde026575fd00002a36fe",
    "9c971708010465752d31fd7b68e5cf8b010000fcefbeaddefb2c01",
);
const BEAT: &str = "02fd00002a36fe9c9717fb2c0105fc70110100";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn replica() -> ReplicaId {
    ReplicaId { node: NodeName::new("eu-1").unwrap(), generation: 1_700_000_000_123, nonce: 0xdead_beef }
}

/// A group of each form, every kind of item.
fn chunk() -> Chunk {
    let key = |byte| KeyHash([byte; 16]);
    let cell = |slot, n, spent| KeyCell { key: key(1), slot, cell: Cell { spent, ..Cell::empty(n) } };
    let fixed = Shape::Window(Window::Fixed { window_ns: SECOND });
    let sliding = Shape::Window(Window::Sliding { window_ns: 60 * SECOND });
    let bucket = Bucket { limit: 100, window_ns: SECOND, capacity: 150, slot_ns: 93_750_000, queue_ns: 500_000_000 };
    let spent = |slot, n, tokens: u64, debited| {
        let first_ns = slot * bucket.slot_ns + 1234;
        let fin = bucket.scaled(first_ns) + bucket.cost(tokens) + 77;
        KeyCell {
            key: key(2),
            slot,
            cell: Cell { n, spent: tokens, first_ns, fin, debited, refunded: u128::from(debited) * 1000 },
        }
    };
    let mark = Mark { slot: 18_133_333_333, n: 2 };
    let base = Base { mark, t: bucket.scaled(18_133_333_330 * bucket.slot_ns) - 5, d: 300 };
    let mut groups = vec![
        Group { cells: vec![cell(1_700_000_000, 0, 5), cell(1_700_000_001, 0, 70_000)], ..Group::new(fixed) },
        Group { cells: vec![cell(28_333_333, 0, 5), cell(28_333_333, 3, 300)], ..Group::new(sliding) },
        Group { cells: vec![spent(18_133_333_330, 0, 7, 0)], ..Group::new(Shape::Bucket(bucket)) },
        Group { cells: vec![spent(18_133_333_333, 2, 9, 4)], ..Group::new(Shape::Bucket(bucket)) },
    ];
    let berlin = Calendar { period: Period::Month, zone: Zone::new("Europe/Berlin").unwrap() };
    let refund = KeyCell { key: key(5), slot: 1_698_793_200, cell: Cell { refunded: 3, ..Cell::empty(0) } };
    let others = [
        (Window::Slots { window_ns: 60 * SECOND, slots: 6 }, cell(170_000_000, 0, 1)),
        (Window::Log { window_ns: 60 * SECOND }, cell(1_700_000_000_123, 0, 1)),
        (Window::Calendar(berlin), refund),
    ];
    groups.extend(others.map(|(window, cell)| Group { cells: vec![cell], ..Group::new(Shape::Window(window)) }));
    groups[3].marks.push(KeyMark { key: key(3), mark, until_ns: 1_700_003_600 * SECOND });
    groups[3].bases.push(KeyBase { key: key(4), slot: 18_133_333_331, base });
    let (stamp_ns, expires_ns) = (1_700_000_000 * SECOND, 1_700_000_070 * SECOND);
    Chunk { replica: replica(), seq: 300, stamp_ns, complete_to_ns: stamp_ns - 1, expires_ns, groups }
}

#[test]
fn the_bytes_of_a_chunk() {
    let bytes = chunk().encode();
    assert_eq!(hex(&bytes), CHUNK);
    assert_eq!(Chunk::decode(&bytes), Ok(chunk()));
}

#[test]
fn the_bytes_of_a_hello_and_a_beat() {
    let hello = Hello {
        cluster: ClusterId([9; 16]),
        replica: replica(),
        region: "eu".into(),
        stamp_ns: 1_700_000_000 * SECOND,
        expected_nodes: 8,
        have: vec![(replica(), 300)],
    };
    assert_eq!(hex(&hello.encode()), HELLO);
    let beat = Frame::Beat { stamp_ns: 1_700_000_000 * SECOND, seq: 300, complete_to_ns: 5, ack: 70_000 };
    assert_eq!(hex(&beat.encode()), BEAT);
}

#[test]
fn the_bytes_of_the_other_frames() {
    const REPLICA: &str = "0465752d31fd7b68e5cf8b010000fcefbeadde";
    let have = || vec![(replica(), 300)];
    let stamp = |at_ns| Stamp { at_ns, by: replica().node };
    for (frame, bytes) in [
        (Frame::Chunk(vec![0xaa, 0xbb]), "01aabb".to_owned()),
        (Frame::Have(have()), format!("0301{REPLICA}fb2c01")),
        (Frame::StateBegin { sync: 7, claims: have() }, format!("040701{REPLICA}fb2c01")),
        (Frame::State { sync: 7, chunk: vec![0xaa, 0xbb] }, "0507aabb".to_owned()),
        (Frame::StateEnd { sync: 7 }, "0607".to_owned()),
        (Frame::CaughtUp, "07".to_owned()),
        (
            Frame::Limits(vec![LimitDigest { name: "per-user".into(), hash: 0x0102_0304_0506_0708, of_file: true }]),
            "0801087065722d75736572fd080706050403020101".into(),
        ),
        (
            Frame::Definitions(vec![
                ("a".into(), Written { stamp: stamp(300), value: Some("{}".into()) }),
                ("b".into(), Written { stamp: stamp(5), value: None }),
            ]),
            "0b020161fb2c010465752d3101027b7d0162050465752d3100".into(),
        ),
        (Frame::Ping(251), "09fbfb00".to_owned()),
        (Frame::Pong(250), "0afa".to_owned()),
    ] {
        assert_eq!(hex(&frame.encode()), bytes, "{frame:?}");
    }
}
