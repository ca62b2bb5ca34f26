//! Nodes that count together: through partitions, restarts, full tables, clocks that differ.

use super::*;

#[test]
fn two_count_together() {
    let mut mesh = Mesh::joined(2);
    for _ in 0..20 {
        for (limit, times) in [("day", 1), ("short", 1), ("bucket", 10)] {
            mesh.spend(0, limit, "k", 3 * times);
            mesh.spend(1, limit, "k", 2 * times);
        }
        mesh.run(INTERVAL);
    }
    mesh.run(LATENCY + 2 * INTERVAL);
    for limit in ["day", "short", "bucket"] {
        let used = mesh.used(limit, "k");
        assert!(used[0] > 0 && used[0] == used[1], "{limit}: {used:?}");
    }
    assert_eq!(mesh.used("day", "k"), [100, 100]);
    let peer = mesh.status(0, 1);
    assert!(peer.connected && peer.backlog == 0 && peer.limits_differ.is_empty());
    assert!(peer.lag_ns <= LATENCY + 2 * INTERVAL, "{}", peer.lag_ns);
    assert_eq!(peer.region, "region-b");
    assert!(mesh.nodes.iter().all(|node| node.gossip.synced()));
}

#[test]
fn three_count_together_and_after_a_partition_again() {
    let mut mesh = Mesh::joined(3);
    for _ in 0..10 {
        (0..3).for_each(|at| mesh.spend(at, "day", "k", 1));
        mesh.run(INTERVAL);
    }
    mesh.run(INTERVAL);
    mesh.cut(0, 2);
    mesh.cut(1, 2);
    for _ in 0..10 {
        (0..3).for_each(|at| mesh.spend(at, "day", "k", 1));
        mesh.run(INTERVAL);
    }
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [50, 50, 40]);
    let cut_off = mesh.status(0, 2);
    assert!(!cut_off.connected && cut_off.lag_ns > SECOND);
    mesh.join_all();
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [60, 60, 60]);
    assert!(mesh.status(0, 2).lag_ns <= LATENCY + 2 * INTERVAL);
    assert_eq!(mesh.nodes[0].gossip.members(), 3);
}

/// What c hears of a goes through b at the connect, although a and c never meet.
#[test]
fn everything_that_the_other_lacks_is_sent_at_connect() {
    let mut mesh = Mesh::new(3);
    mesh.connect(0, 1);
    mesh.run(SECOND);
    for _ in 0..5 {
        mesh.spend(0, "day", "k", 1);
        mesh.run(INTERVAL);
    }
    mesh.run(SECOND);
    mesh.cut(0, 1);
    // c holds a part: what follows are chunks of a, from b's ring.
    mesh.connect(0, 2);
    mesh.run(SECOND);
    mesh.cut(0, 2);
    mesh.connect(0, 1);
    mesh.spend(0, "day", "k", 7);
    mesh.run(SECOND);
    mesh.cut(0, 1);
    assert_eq!(mesh.used("day", "k"), [12, 12, 5]);
    mesh.connect(1, 2);
    let sent = mesh.frames(1, 2);
    assert!(sent.iter().any(|frame| matches!(frame, Frame::Chunk(_))));
    assert!(!sent.iter().any(|frame| matches!(frame, Frame::StateBegin { .. })), "{sent:?}");
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [12, 12, 12]);
    assert_eq!(mesh.nodes[2].held(&mesh.nodes[0].own()), mesh.nodes[0].held(&mesh.nodes[0].own()));
}

#[test]
fn a_reset_reaches_everybody() {
    let mut mesh = Mesh::joined(3);
    (0..3).for_each(|at| mesh.spend(at, "day", "k", 5));
    mesh.run(SECOND);
    let now = mesh.now(1);
    mesh.nodes[1].engine.decide(now.slot_ns, Op::Reset, &[Ask { limit: "day", key: "k", cost: 0 }]).unwrap();
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [0, 0, 0]);
    mesh.spend(2, "day", "k", 4);
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [4, 4, 4]);
}

#[test]
fn a_restart_counts_on_with_what_the_disk_and_the_peers_hold() {
    for empty in [false, true] {
        let mut mesh = Mesh::joined(3);
        for _ in 0..10 {
            (0..3).for_each(|at| mesh.spend(at, "day", "k", 1));
            mesh.run(INTERVAL);
        }
        mesh.run(SECOND);
        // Sent to nobody and not on the disk: lost. Sent, but not on the disk: the peers have it.
        mesh.spend(0, "day", "k", 4);
        mesh.flush(0);
        mesh.write();
        mesh.now_ns += LATENCY;
        mesh.read();
        mesh.spend(0, "day", "k", 50);
        let disk = if empty { Disk::default() } else { mesh.nodes[0].disk.clone() };
        mesh.restart(0, disk, true);
        assert_eq!(mesh.used("day", "k"), [if empty { 0 } else { 30 }, 34, 34]);
        mesh.join_all();
        mesh.run(SECOND);
        assert_eq!(mesh.used("day", "k"), [34, 34, 34], "empty: {empty}");
        mesh.spend(0, "day", "k", 1);
        mesh.run(SECOND);
        assert_eq!(mesh.used("day", "k"), [35, 35, 35]);
        assert!(mesh.nodes[0].gossip.synced());
        // The new life is what the peers speak of.
        assert_eq!(mesh.status(1, 0).replica, mesh.nodes[0].own());
    }
}

/// What a hears of its own former life from b, it passes on to c, which is not connected with b.
#[test]
fn a_former_life_is_passed_on() {
    let mut mesh = Mesh::joined(2);
    mesh.spend(0, "day", "k", 3);
    mesh.run(SECOND);
    mesh.restart(0, Disk::default(), true);
    mesh.nodes.push(Node::start(2, Disk::default(), mesh.now_ns, 1 << 20, 1_000_000));
    mesh.connect(0, 2);
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [0, 3, 0]);
    mesh.connect(0, 1);
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [3, 3, 3]);
}

#[test]
fn a_chunk_from_the_future_is_not_acknowledged_until_it_is_time() {
    let mut mesh = Mesh::joined(2);
    mesh.run(SECOND);
    // b's clock is 6 s ahead: its cells of 1 s windows are, too.
    mesh.nodes[1].ahead_ns = 6 * SECOND;
    mesh.spend(1, "short", "k", 3);
    mesh.run(SECOND);
    let b = mesh.nodes[1].own();
    let (held, sent) = (mesh.nodes[0].held(&b), mesh.nodes[1].held(&b));
    assert!(held < sent, "{held} {sent}");
    assert_eq!(mesh.used("short", "k")[0], 0);
    assert!(mesh.status(0, 1).connected && mesh.status(0, 1).refused_ahead > 0);
    assert_eq!(mesh.status(1, 0).backlog, sent - held);
    // Sent again it is, and taken once it is no longer that far ahead.
    mesh.nodes[1].ahead_ns = 0;
    mesh.run(2 * LONG);
    assert_eq!(mesh.nodes[0].held(&b), mesh.nodes[1].held(&b));
    assert_eq!(mesh.status(1, 0).backlog, 0);
}

#[test]
fn a_full_table_claims_nothing_and_catches_up_when_there_is_room() {
    let mut mesh = Mesh::with(2, 1 << 20, 6);
    mesh.connect(0, 1);
    mesh.run(SECOND);
    for key in 0..5 {
        mesh.spend(0, "short", &format!("a{key}"), 1);
        mesh.spend(1, "short", &format!("b{key}"), 1);
    }
    mesh.run(SECOND);
    let b = mesh.nodes[1].own();
    assert!(mesh.nodes[0].engine.stats().refused_cells > 0);
    assert!(mesh.nodes[0].held(&b) < mesh.nodes[1].held(&b));
    assert!(mesh.status(1, 0).backlog > 0);
    // The windows expire; what was refused is sent again, and now there is room.
    for _ in 0..20 {
        mesh.run(SECOND);
        let now_ns = mesh.now_ns;
        mesh.nodes.iter().for_each(|node| drop(node.engine.sweep(now_ns)));
    }
    assert_eq!(mesh.nodes[0].held(&b), mesh.nodes[1].held(&b));
    assert_eq!(mesh.status(1, 0).backlog, 0);
}

/// A process image copied while it runs: both go on under one id. Whoever meets more of its own id than it wrote takes a
/// new one, and nothing is counted twice.
#[test]
fn a_clone_is_found_out() {
    let mut mesh = Mesh::joined(3);
    mesh.spend(0, "day", "k", 2);
    mesh.run(SECOND);
    // The clone of a is a second process that spends under a's id and reaches c alone.
    let id = mesh.nodes[0].own();
    mesh.cut(0, 2);
    let bytes = {
        let engine = Engine::new(engine::Settings::default(), id.clone(), &secret());
        engine.install(mesh.now_ns, limits());
        engine.decide(mesh.now_ns, Op::Debit, &[Ask { limit: "day", key: "k", cost: 9 }]).unwrap();
        let part = engine.drain(mesh.now_ns).parts.remove(0);
        let (seq, stamp_ns, expires_ns) = (mesh.nodes[2].held(&id) + 1, mesh.now_ns, part.expires_ns);
        Chunk { replica: id.clone(), seq, stamp_ns, complete_to_ns: 0, expires_ns, groups: part.groups }.encode()
    };
    let conn = mesh.wires.iter().find(|wire| wire.joins(1, 2)).unwrap();
    let conn = conn.ends.iter().find(|end| end.node == 2).unwrap().conn;
    mesh.deliver(2, conn, &Frame::Chunk(bytes).encode()).unwrap();
    mesh.connect(0, 2);
    mesh.run(SECOND);
    let new = mesh.nodes[0].own();
    assert_ne!(new, id);
    assert!(mesh.ended.iter().any(|(node, why)| (*node, why) == (0, &Refusal::NewLife)));
    mesh.join_all();
    mesh.spend(0, "day", "k", 1);
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [10, 10, 10]);
    assert_eq!(mesh.status(1, 0).replica, new);
}
