//! Who is let in, and which of two connections stays.

use super::*;
use crate::codec::{MAGIC, PROTOCOL_VERSION};

fn refused(mesh: &mut Mesh, hello: &[u8], vouched: bool) -> Refusal {
    let now = mesh.now(0);
    let Node { gossip, engine, .. } = &mut mesh.nodes[0];
    gossip.accept(ConnId(1000), false, hello, |_| vouched, &now, engine).unwrap_err()
}

#[test]
fn strangers_are_refused_by_reason() {
    let mut mesh = Mesh::new(2);
    let (now, hello) = (mesh.now(1), mesh.nodes[1].gossip.hello(&mesh.now(1)));
    let later = [&MAGIC[..], &(PROTOCOL_VERSION + 1).to_le_bytes()[..], b"anything"].concat();
    let version = Refusal::Version { ours: PROTOCOL_VERSION, theirs: PROTOCOL_VERSION + 1 };
    assert_eq!(version.to_string(), "protocol version 3, this node speaks 2");
    assert_eq!(refused(&mut mesh, &later, true), version);
    assert_eq!(refused(&mut mesh, &hello, false), Refusal::Certificate(name(1)));
    assert!(matches!(refused(&mut mesh, &hello[..hello.len() - 1], true), Refusal::Malformed(_)));
    assert!(matches!(refused(&mut mesh, b"GET / HTTP/1.1", true), Refusal::Malformed(_)));

    let own = mesh.nodes[0].gossip.hello(&now);
    assert_eq!(refused(&mut mesh, &own, true), Refusal::OwnName(name(0)));
    mesh.nodes[1].gossip.settings.cluster = Secret([4; 32]).cluster_id();
    let foreign = mesh.nodes[1].gossip.hello(&now);
    assert_eq!(refused(&mut mesh, &foreign, true), Refusal::Cluster);
    assert!(mesh.nodes[0].gossip.peers(&now).is_empty() && mesh.nodes[0].gossip.conns.is_empty());
}

#[test]
fn damaged_and_unknown_frames_close_the_connection() {
    let mut mesh = Mesh::joined(2);
    mesh.run(SECOND);
    let conn = mesh.wires[0].ends[0].conn;
    mesh.spend(1, "day", "k", 1);
    mesh.flush(1);
    let sent = mesh.frames(1, 0);
    let Some(Frame::Chunk(mut chunk)) = sent.into_iter().find(|frame| matches!(frame, Frame::Chunk(_))) else {
        panic!("no chunk")
    };
    chunk[20] ^= 1;
    let strange = [vec![200], vec![], Frame::Chunk(chunk).encode(), Frame::StateEnd { sync: 5 }.encode()];
    for frame in strange {
        assert!(matches!(mesh.deliver(0, conn, &frame), Err(Refusal::Malformed(_))), "{frame:?}");
    }
    let begin = Frame::StateBegin { sync: 1, claims: vec![] }.encode();
    assert!(mesh.deliver(0, conn, &begin).is_ok());
    assert!(matches!(mesh.deliver(0, conn, &begin), Err(Refusal::Malformed(_))));
    assert!(matches!(mesh.deliver(0, ConnId(77), &begin), Err(Refusal::Malformed(_))));
    assert_eq!(mesh.used("day", "k"), [0, 1]);
}

/// A second process of a name, while the first answers: it is sent away, and the first one's peers report it.
#[test]
fn a_second_process_of_a_name_is_refused() {
    let mut mesh = Mesh::joined(3);
    mesh.run(SECOND);
    let first = mesh.status(0, 2).replica;
    // A process that calls itself c too.
    let second = Node::start(2, Disk { generation: 70, ..Disk::default() }, mesh.now_ns, 1 << 20, 1_000_000);
    mesh.nodes.push(second);
    assert!(mesh.connect(3, 0));
    mesh.run(SECOND);
    assert!(mesh.ended.contains(&(0, Refusal::Duplicate(name(2)))), "{:?}", mesh.ended);
    assert!(mesh.wired(0, 2) && !mesh.wired(0, 3));
    let status = mesh.status(0, 2);
    assert!(status.duplicate && status.connected && status.replica == first);
    assert!(!mesh.status(1, 2).duplicate);
    mesh.run(DUPLICATE_REPORTED_NS + SECOND);
    assert!(!mesh.status(0, 2).duplicate);
}

/// The old process is gone but its connection is not yet: the new one takes over within a second.
#[test]
fn a_new_life_takes_over_from_one_that_does_not_answer() {
    let mut mesh = Mesh::joined(2);
    mesh.spend(1, "day", "k", 5);
    mesh.run(SECOND);
    let disk = mesh.nodes[1].disk.clone();
    // Nobody noticed the death: the old connection stays at a, and carries nothing any more.
    mesh.restart(1, disk, false);
    assert!(mesh.connect(1, 0));
    mesh.spend(1, "day", "k", 2);
    mesh.run(PROBE_NS - 2 * INTERVAL);
    assert_ne!(mesh.status(0, 1).replica, mesh.nodes[1].own());
    // Meanwhile what the new one sends is true already.
    assert_eq!(mesh.used("day", "k"), [7, 7]);
    assert_eq!(mesh.nodes[0].gossip.conns.len(), 2);
    mesh.run(4 * INTERVAL);
    assert_eq!(mesh.status(0, 1).replica, mesh.nodes[1].own());
    assert_eq!(mesh.nodes[0].gossip.conns.len(), 1, "the old one was closed");
    assert!(mesh.status(0, 1).connected && !mesh.status(0, 1).duplicate);
    mesh.spend(0, "day", "k", 1);
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [8, 8]);
}

#[test]
fn a_newcomer_takes_over_at_once_when_the_old_connection_closes() {
    let mut mesh = Mesh::joined(2);
    mesh.run(SECOND);
    mesh.restart(1, Disk::default(), false);
    mesh.connect(1, 0);
    assert_ne!(mesh.status(0, 1).replica, mesh.nodes[1].own());
    mesh.ghosts[0].2 = mesh.now_ns;
    mesh.lay_ghosts();
    assert_eq!(mesh.status(0, 1).replica, mesh.nodes[1].own());
}

/// Both dial at once: both sides keep the connection that the smaller name dialed.
#[test]
fn of_two_connections_made_at_once_one_stays() {
    for order in [[(0, 1), (1, 0)], [(1, 0), (0, 1)]] {
        let mut mesh = Mesh::new(2);
        let [first, second] = order;
        assert!(mesh.connect(first.0, first.1));
        assert!(mesh.connect(second.0, second.1));
        mesh.run(2 * SECOND);
        assert_eq!(mesh.wires.len(), 1, "{:?}", mesh.ended);
        assert_eq!(mesh.wires[0].ends[0].node, 0, "{:?}", mesh.ended);
        mesh.spend(0, "day", "k", 1);
        mesh.spend(1, "day", "k", 1);
        mesh.run(SECOND);
        assert_eq!(mesh.used("day", "k"), [2, 2]);
        assert!(mesh.nodes.iter().all(|node| node.gossip.conns.len() == 1));
    }
}

#[test]
fn a_second_connection_in_the_same_direction_stays_only_when_the_first_is_dead() {
    let mut mesh = Mesh::joined(2);
    mesh.run(SECOND);
    mesh.connect(0, 1);
    mesh.connect(0, 1);
    assert_eq!(mesh.ended.pop(), Some((1, Refusal::AlreadyConnected(name(0)))));
    assert_eq!(mesh.ended.pop(), Some((0, Refusal::AlreadyConnected(name(1)))));
    mesh.run(SECOND);
    assert_eq!(mesh.wires.len(), 1);
    assert!(mesh.ended.contains(&(0, Refusal::AlreadyConnected(name(1)))), "{:?}", mesh.ended);

    let _dead = mesh.wires.pop();
    mesh.connect(0, 1);
    mesh.run(SECOND);
    mesh.spend(0, "day", "k", 1);
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [1, 1]);
}

#[test]
fn limits_that_differ_are_named_on_both_sides() {
    let mut mesh = Mesh::joined(2);
    mesh.run(SECOND);
    assert!(mesh.status(0, 1).limits_differ.is_empty());
    let short = limits().iter().find(|limit| limit.name.as_str() == "short").unwrap().clone();
    let changed = crate::limits::Limit { limit: 5, ..(*short).clone() };
    let bucket = limits().iter().find(|limit| limit.name.as_str() == "bucket").unwrap().clone();
    let other = LimitSet::new([changed, (*bucket).clone()]).unwrap();
    mesh.nodes[1].gossip.set_limits(&other, &other);
    mesh.run(SECOND);
    for (at, of) in [(0, 1), (1, 0)] {
        assert_eq!(mesh.status(at, of).limits_differ, ["day", "short"]);
    }
    mesh.nodes[1].gossip.set_limits(&limits(), &limits());
    mesh.run(SECOND);
    assert!(mesh.status(0, 1).limits_differ.is_empty() && mesh.status(1, 0).limits_differ.is_empty());
}

#[test]
fn members_and_expected_nodes_follow_the_largest() {
    let mut mesh = Mesh::new(3);
    assert_eq!((mesh.nodes[0].gossip.members(), mesh.nodes[0].gossip.expected_nodes()), (2, 8));
    mesh.nodes[1].gossip.settings.expected_nodes = 12;
    mesh.join_all();
    mesh.run(SECOND);
    assert_eq!((mesh.nodes[0].gossip.members(), mesh.nodes[0].gossip.expected_nodes()), (3, 12));
    let (gossip, peer) = (&mesh.nodes[0].gossip, |at: usize| mesh.nodes[at].own().node);
    assert_eq!((gossip.expected_otherwise(&peer(1)), gossip.expected_otherwise(&peer(2))), (Some((12, 8)), None));
    assert_eq!(mesh.nodes[1].gossip.expected_nodes(), 12);
}

#[test]
fn nobody_waits_for_a_peer_whose_clock_is_too_far_away() {
    let mut mesh = Mesh::new(3);
    mesh.connect(0, 1);
    mesh.connect(0, 2);
    // c never gets to say that it has sent everything.
    let wire = mesh.wires.iter().position(|wire| wire.joins(0, 2)).unwrap();
    mesh.wires[wire].window_bytes = 0;
    mesh.run(SECOND);
    assert!(!mesh.nodes[0].gossip.synced() && mesh.nodes[1].gossip.synced());
    mesh.nodes[0].gossip.set_unreachable(&name(2), true);
    mesh.run(INTERVAL);
    assert!(mesh.nodes[0].gossip.synced() && mesh.status(0, 2).unreachable);
    mesh.nodes[0].gossip.set_unreachable(&name(2), false);
    mesh.run(INTERVAL);
    assert!(mesh.nodes[0].gossip.synced() && !mesh.status(0, 2).unreachable);
}

#[test]
fn peers_beyond_the_bound_push_out_those_that_are_gone_only() {
    let mut mesh = Mesh::new(1);
    let now = mesh.now(0);
    let hello = |at: usize| {
        let node = NodeName::new(&format!("n{at}")).unwrap();
        Hello {
            cluster: secret().cluster_id(),
            replica: ReplicaId { node, generation: 1, nonce: 1 },
            region: String::new(),
            stamp_ns: 0,
            expected_nodes: 1,
            have: vec![],
        }
        .encode()
    };
    let Node { gossip, engine, .. } = &mut mesh.nodes[0];
    let accept = |gossip: &mut Gossip, at: usize, conn: u64| {
        gossip.accept(ConnId(conn), false, &hello(at), |_| true, &now, engine).map(|_| ())
    };
    for at in 0..MAX_PEERS {
        assert_eq!(accept(gossip, at, at as u64), Ok(()));
    }
    let full = Refusal::Full { what: "peers", most: MAX_PEERS };
    assert_eq!(accept(gossip, MAX_PEERS, 5000), Err(full.clone()));
    assert_eq!(full.to_string(), "1024 peers are as many as this node takes");
    gossip.closed(ConnId(7), &now);
    assert_eq!(accept(gossip, MAX_PEERS, 5001), Ok(()));
    assert!(gossip.peers.len() == MAX_PEERS && !gossip.peers.contains_key(&NodeName::new("n7").unwrap()));
    let (members, status) = (gossip.members(), gossip.peers(&now).len());
    assert_eq!((members as usize, status), (MAX_PEERS + 1, MAX_PEERS));
}

/// A dial that was on its way for seconds does not end the connection that the other side made meanwhile.
#[test]
fn a_dial_that_comes_late_takes_no_seat() {
    let mut mesh = Mesh::new(2);
    // Of two made at once the one stays that the smaller name dialed.
    assert!(mesh.connect(1, 0) && mesh.connect(0, 1));
    mesh.run(SECOND);
    assert!(!mesh.ended.is_empty() && mesh.ended.iter().all(|ended| ended.1 == Refusal::Replaced), "{:?}", mesh.ended);
    mesh.cut(0, 1);
    mesh.ended.clear();

    assert!(mesh.connect(1, 0));
    mesh.run(2 * SECOND);
    assert!(mesh.connect(0, 1));
    mesh.run(2 * SECOND);
    assert!(!mesh.ended.is_empty());
    let kept = mesh.ended.iter().all(|ended| matches!(ended.1, Refusal::AlreadyConnected(_)));
    assert!(kept, "{:?}", mesh.ended);
}
