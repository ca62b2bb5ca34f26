//! State instead of chunks: when it is sent, what it claims, and what breaks it off.

use super::*;

fn spend_keys(mesh: &mut Mesh, at: usize, keys: usize) {
    for key in 0..keys {
        mesh.spend(at, "day", &format!("k{key}"), 1);
    }
}

fn total(mesh: &Mesh, at: usize, keys: usize) -> u64 {
    let now = mesh.now(at);
    (0..keys).map(|key| mesh.nodes[at].used(&now, "day", &format!("k{key}"))).sum()
}

fn is_chunk(frame: &Frame) -> bool {
    matches!(frame, Frame::Chunk(_))
}

fn is_state(frame: &Frame) -> bool {
    matches!(frame, Frame::StateBegin { .. } | Frame::State { .. } | Frame::StateEnd { .. })
}

#[test]
fn a_new_peer_gets_everything_as_state() {
    let mut mesh = Mesh::new(2);
    spend_keys(&mut mesh, 0, 1000);
    mesh.run(SECOND);
    mesh.connect(0, 1);
    let frames = mesh.frames(0, 1);
    let Some(Frame::StateBegin { claims, .. }) = frames.iter().find(|frame| is_state(frame)) else {
        panic!("no state: {frames:?}")
    };
    assert_eq!(*claims, mesh.nodes[0].gossip.have());
    assert!(!frames.iter().any(is_chunk));
    assert_eq!(frames.last(), Some(&Frame::CaughtUp));
    assert!(!mesh.nodes[1].gossip.synced());
    mesh.run(SECOND);
    assert_eq!(total(&mesh, 1, 1000), 1000);
    assert_eq!(mesh.nodes[1].held(&mesh.nodes[0].own()), mesh.nodes[0].held(&mesh.nodes[0].own()));
    assert!(mesh.nodes[1].gossip.synced());
}

/// A peer that shares something with this node and lacks no more than the ring holds gets chunks; below that, state of
/// the replica concerned alone.
#[test]
fn the_ring_decides_between_chunks_and_state() {
    for (ring_bytes, state) in [(1 << 20, false), (3000, true)] {
        let mut mesh = Mesh::with(2, ring_bytes, 1_000_000);
        mesh.connect(0, 1);
        mesh.run(SECOND);
        mesh.spend(0, "day", "k", 1);
        mesh.spend(1, "day", "k", 1);
        mesh.run(SECOND);
        mesh.cut(0, 1);
        for _ in 0..40 {
            mesh.spend(0, "day", "k", 1);
            mesh.run(INTERVAL);
        }
        mesh.connect(0, 1);
        let frames = mesh.frames(0, 1);
        assert_eq!(frames.iter().any(is_state), state);
        if let Some(Frame::StateBegin { claims, .. }) = frames.iter().find(|frame| is_state(frame)) {
            let own = mesh.nodes[0].own();
            assert_eq!(*claims, vec![(own.clone(), mesh.nodes[0].held(&own))]);
        }
        assert_eq!(frames.iter().filter(|frame| is_chunk(frame)).count() == 40, !state);
        mesh.run(SECOND);
        assert_eq!(mesh.used("day", "k"), [42, 42]);
        assert_eq!(mesh.nodes[1].held(&mesh.nodes[0].own()), mesh.nodes[0].held(&mesh.nodes[0].own()));
    }
}

/// Deltas do not wait behind a state, and the run of chunks is joined to the claim at its end.
#[test]
fn chunks_go_on_during_a_state() {
    let mut mesh = Mesh::new(2);
    spend_keys(&mut mesh, 0, 20_000);
    mesh.run(SECOND);
    mesh.connect(0, 1);
    // About two pieces in 40 ms.
    mesh.wires[0].window_bytes = 4000;
    mesh.run(SECOND);
    for _ in 0..10 {
        mesh.spend(0, "day", "hot", 1);
        mesh.run(INTERVAL);
    }
    mesh.run(3 * LATENCY);
    let own = mesh.nodes[0].own();
    assert!(mesh.nodes[1].gossip.conns.values().any(|conn| conn.incoming.is_some()), "the state is still on its way");
    assert_eq!(mesh.used("day", "hot"), [10, 10]);
    assert_eq!(mesh.nodes[1].held(&own), 0, "nothing is claimed before the end");
    mesh.wires[0].window_bytes = usize::MAX;
    mesh.run(SECOND);
    assert_eq!(total(&mesh, 1, 20_000), 20_000);
    assert_eq!(mesh.nodes[1].held(&own), mesh.nodes[0].held(&own));
    assert_eq!(mesh.status(0, 1).backlog, 0);
}

#[test]
fn a_state_that_was_cut_claims_nothing_and_begins_anew() {
    let mut mesh = Mesh::new(2);
    spend_keys(&mut mesh, 0, 2000);
    mesh.run(SECOND);
    let own = mesh.nodes[0].own();
    let pieces = {
        mesh.connect(0, 1);
        mesh.frames(0, 1).len()
    };
    mesh.cut(0, 1);
    for delivered in [1, pieces / 2, pieces - 3] {
        mesh.connect(0, 1);
        mesh.write();
        mesh.cut_wire(0, delivered);
        assert_eq!(mesh.nodes[1].held(&own), 0, "{delivered} of {pieces}");
        // A chunk that comes on another connection is no next one either.
        mesh.spend(0, "day", "k", 1);
        mesh.flush(0);
    }
    assert!(total(&mesh, 1, 2000) < 2000);
    mesh.connect(0, 1);
    mesh.run(SECOND);
    assert_eq!(total(&mesh, 1, 2000), 2000);
    assert_eq!(mesh.nodes[1].held(&own), mesh.nodes[0].held(&own));
}

/// `have` moves by the next seq and by a claim, by nothing else: what a gap hides would never be sent again.
#[test]
fn nothing_is_acknowledged_over_a_gap() {
    let mut mesh = Mesh::joined(2);
    mesh.run(SECOND);
    let (own, mut chunks) = (mesh.nodes[0].own(), Vec::new());
    for key in ["x", "y", "z"] {
        mesh.spend(0, "day", key, 1);
        mesh.flush(0);
        chunks.extend(mesh.frames(0, 1).into_iter().filter(is_chunk));
    }
    let [first, second, third] = &chunks[..] else { panic!("{chunks:?}") };
    let wire = mesh.wires.pop().unwrap();
    let conn = wire.ends[1].conn;
    let take = |mesh: &mut Mesh, chunk: &Frame| mesh.deliver(1, conn, &chunk.encode()).unwrap();
    take(&mut mesh, first);
    let one = mesh.nodes[1].held(&own);
    let received = take(&mut mesh, third);
    assert_eq!(mesh.nodes[1].held(&own), one);
    assert_eq!(received.records, vec![], "moved to the journal's batch by the rig");
    assert_eq!(mesh.nodes[1].used(&mesh.now(1), "day", "z"), 1, "its values are taken all the same");
    take(&mut mesh, second);
    assert_eq!(mesh.nodes[1].held(&own), one + 1);
    take(&mut mesh, third);
    assert_eq!(mesh.nodes[1].held(&own), one + 2);
}

/// What a peer does not acknowledge although it has answered since is sent again.
#[test]
fn a_peer_that_lost_something_is_sent_it_again() {
    let mut mesh = Mesh::joined(2);
    mesh.run(SECOND);
    mesh.spend(0, "day", "k", 3);
    mesh.flush(0);
    // The frames are lost at the peer's side (it crashed within, say); the connection lives on.
    assert!(mesh.frames(0, 1).iter().any(is_chunk));
    mesh.wires[0].ends[1].arriving.clear();
    mesh.run(SECOND);
    assert_eq!(mesh.used("day", "k"), [3, 0]);
    assert!(mesh.status(0, 1).backlog > 0);
    mesh.run(LONG);
    assert_eq!(mesh.used("day", "k"), [3, 3]);
    assert_eq!(mesh.status(0, 1).backlog, 0);
    assert_eq!(mesh.wires.len(), 1);
}

/// A slow link is not a loss: nothing is sent twice however long it takes.
#[test]
fn nothing_is_sent_again_while_it_is_on_its_way() {
    let mut mesh = Mesh::joined(2);
    mesh.run(SECOND);
    mesh.spend(0, "day", "k", 1);
    mesh.flush(0);
    assert_eq!(mesh.frames(0, 1).iter().filter(|frame| is_chunk(frame)).count(), 1);
    // It takes ten seconds, and everything behind it too.
    let late_ns = mesh.now_ns + 10 * SECOND;
    mesh.wires[0].ends[1].arriving.iter_mut().for_each(|next| next.0 = late_ns);
    mesh.run(9 * SECOND);
    let waiting = mesh.wires[0].ends[1].arriving.iter().map(|(_, frame)| Frame::decode(frame).unwrap());
    assert_eq!(waiting.filter(is_chunk).count(), 1);
    mesh.run(2 * SECOND);
    assert_eq!(mesh.used("day", "k"), [1, 1]);
    let own = mesh.nodes[0].own();
    assert_eq!(mesh.nodes[1].held(&own), mesh.nodes[0].held(&own));
}

/// The claim is what the sender held before the first cell: what it takes in while it sends is not in the claim, since
/// its keys may have been passed already.
#[test]
fn the_claim_is_read_before_the_first_cell() {
    let mut mesh = Mesh::new(3);
    spend_keys(&mut mesh, 1, 20_000);
    mesh.connect(0, 1);
    mesh.run(SECOND);
    let b = mesh.nodes[1].own();
    let before = mesh.nodes[0].held(&b);
    mesh.connect(0, 2);
    let wire = mesh.wires.iter().position(|wire| wire.joins(0, 2)).unwrap();
    mesh.wires[wire].window_bytes = 4000;
    mesh.write();
    mesh.run(10 * INTERVAL);
    // a hears more of b while its state is half sent to c.
    spend_keys(&mut mesh, 1, 20_000);
    mesh.run(10 * INTERVAL);
    assert!(mesh.nodes[0].held(&b) > before);
    assert!(mesh.nodes[2].gossip.conns.values().any(|conn| conn.incoming.is_some()), "still on its way");
    let wire = mesh.wires.iter().position(|wire| wire.joins(0, 2)).unwrap();
    mesh.wires[wire].window_bytes = usize::MAX;
    mesh.cut(0, 1);
    mesh.run(SECOND);
    assert_eq!(mesh.nodes[2].held(&b), before);
    assert!(total(&mesh, 2, 20_000) < 40_000);
    // So the rest is sent at the next connect.
    mesh.cut(0, 2);
    mesh.connect(0, 2);
    mesh.run(SECOND);
    assert_eq!(total(&mesh, 2, 20_000), 40_000);
}

#[test]
fn no_more_states_at_once_than_allowed_and_all_get_theirs() {
    let mut mesh = Mesh::new(1);
    spend_keys(&mut mesh, 0, 2000);
    mesh.run(SECOND);
    let names: Vec<_> = (0..2 * MAX_SYNCS).map(|at| NodeName::new(&format!("n{at}")).unwrap()).collect();
    let now = mesh.now(0);
    let mut conns = Vec::new();
    for (at, node) in names.iter().enumerate() {
        let settings = Settings {
            own: ReplicaId { node: node.clone(), generation: 1, nonce: 1 },
            ..mesh.nodes[0].gossip.settings.clone()
        };
        let hello = Gossip::new(settings, vec![], Registry::default()).hello(&now);
        let Node { gossip, engine, .. } = &mut mesh.nodes[0];
        gossip.accept(ConnId(at as u64), false, &hello, |_| true, &now, engine).unwrap();
        conns.push((ConnId(at as u64), 0, false));
    }
    let (mut at_once, mut most) = (0, 0);
    while conns.iter().any(|conn| !conn.2) {
        for (conn, frames, ended) in &mut conns {
            let Node { gossip, engine, .. } = &mut mesh.nodes[0];
            let Next::Frame(frame) = gossip.poll(*conn, &now, engine) else { continue };
            *frames += 1;
            assert!(*frames < 1000, "somebody waits for ever");
            match Frame::decode(&frame).unwrap() {
                Frame::StateBegin { .. } => at_once += 1,
                Frame::StateEnd { .. } => {
                    at_once -= 1;
                    *ended = true;
                }
                _ => {}
            }
            most = at_once.max(most);
        }
    }
    assert_eq!(most, MAX_SYNCS);
}
