//! Nodes with real engines on wires held by hand: streams are ordered and lose nothing but what is on its way when they
//! are cut. Time moves only when a test moves it.

mod connect;
mod count;
mod definitions;
mod random;
mod state;

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::codec::Frame;
use crate::engine::{self, Ask, Op};
use crate::id::Secret;
use crate::limits::LimitSpec;

const T0: u64 = 1_700_000_000 * SECOND;
const INTERVAL: u64 = 50 * MS;
/// One-way time on a wire.
const LATENCY: u64 = 40 * MS;
/// More than anything takes that a settled mesh waits for.
const LONG: u64 = 8 * SECOND;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn secret() -> Secret {
    Secret([3; 32])
}

fn name(at: usize) -> NodeName {
    NodeName::new(NAMES[at]).unwrap()
}

/// `day`: nothing of it expires in a test. `short`: soon. `bucket`: 100 per second.
fn limits() -> LimitSet {
    let spec = |name: &str, algorithm: &str, limit, window: &str| LimitSpec {
        name: name.into(),
        algorithm: Some(algorithm.into()),
        limit: Some(limit),
        window: Some(window.into()),
        ..LimitSpec::default()
    };
    let specs = [
        spec("day", "fixed_window", 1_000_000, "1d"),
        spec("short", "sliding_window", 1_000_000, "1s"),
        spec("bucket", "token_bucket", 100, "1s"),
    ];
    LimitSet::new(specs.map(|spec| spec.check().unwrap())).unwrap()
}

/// What survives a crash.
#[derive(Clone, Default)]
struct Disk {
    records: Vec<Record>,
    have: Vec<(ReplicaId, u64)>,
    definitions: Registry,
    generation: u64,
}

struct Node {
    engine: Engine,
    gossip: Gossip,
    disk: Disk,
    /// Not yet on the disk.
    pending: Vec<Record>,
    /// How far the node's clocks are ahead of the mesh's.
    ahead_ns: u64,
}

impl Node {
    /// A process that starts with what is on the disk.
    fn start(at: usize, disk: Disk, now_ns: u64, ring_bytes: usize, max_cells: u64) -> Self {
        let mut disk = disk;
        disk.generation += 1;
        let own = ReplicaId { node: name(at), generation: disk.generation, nonce: now_ns as u32 };
        let settings = engine::Settings { max_cells, ..engine::Settings::default() };
        let engine = Engine::new(settings, own.clone(), &secret());
        engine.install(now_ns, limits());
        for record in &disk.records {
            let chunk = Chunk::decode(&record.bytes).unwrap();
            engine.merge(now_ns, &chunk.replica, &chunk.groups).unwrap();
        }
        let settings = Settings {
            cluster: secret().cluster_id(),
            own,
            region: format!("region-{}", NAMES[at]),
            expected_nodes: 8,
            seeds: 1,
            ring_bytes,
        };
        let mut gossip = Gossip::new(settings, disk.have.clone(), disk.definitions.clone());
        gossip.set_limits(&limits(), &limits());
        Self { engine, gossip, disk, pending: Vec::new(), ahead_ns: 0 }
    }

    fn commit(&mut self) {
        self.disk.records.append(&mut self.pending);
        self.disk.have = self.gossip.have();
        self.disk.definitions = Registry::clone(self.gossip.definitions());
    }

    fn spend(&mut self, now: &Now, limit: &str, key: &str, cost: u32) {
        self.engine.decide(now.slot_ns, Op::Debit, &[Ask { limit, key, cost }]).unwrap();
    }

    fn used(&self, now: &Now, limit: &str, key: &str) -> u64 {
        self.engine.usage(now.slot_ns, limit, key).unwrap().used
    }

    /// Usage by replica.
    fn shares(&self, now: &Now, limit: &str, key: &str) -> BTreeMap<ReplicaId, u64> {
        let usage = self.engine.usage(now.slot_ns, limit, key).unwrap();
        usage.replicas.into_iter().map(|share| (share.replica, share.used)).collect()
    }

    fn held(&self, replica: &ReplicaId) -> u64 {
        self.gossip.have.seq(replica)
    }

    fn own(&self) -> ReplicaId {
        self.gossip.own.clone()
    }
}

/// One end of a wire: a node's connection, and what is on its way to it.
struct End {
    node: usize,
    conn: ConnId,
    /// (arrives at, frame).
    arriving: VecDeque<(u64, Vec<u8>)>,
}

struct Wire {
    ends: [End; 2],
    /// Frames of no more than this many bytes in all are on their way at once: what flow control does.
    window_bytes: usize,
}

struct Mesh {
    now_ns: u64,
    nodes: Vec<Node>,
    wires: Vec<Wire>,
    /// Ends of wires whose other end died unnoticed: (node, connection, until when nobody notices).
    ghosts: Vec<(usize, ConnId, u64)>,
    /// Connections that were refused or closed by a node, and by which.
    ended: Vec<(usize, Refusal)>,
    last_conn: u64,
    ring_bytes: usize,
    max_cells: u64,
}

impl Mesh {
    fn new(nodes: usize) -> Self {
        Self::with(nodes, 1 << 20, 1_000_000)
    }

    fn with(nodes: usize, ring_bytes: usize, max_cells: u64) -> Self {
        let start = |at| Node::start(at, Disk::default(), T0, ring_bytes, max_cells);
        let nodes = (0..nodes).map(start).collect();
        let (wires, ghosts, ended) = (Vec::new(), Vec::new(), Vec::new());
        Self { now_ns: T0, nodes, wires, ghosts, ended, last_conn: 0, ring_bytes, max_cells }
    }

    /// All connected with all.
    fn joined(nodes: usize) -> Self {
        let mut mesh = Self::new(nodes);
        mesh.join_all();
        mesh
    }

    fn join_all(&mut self) {
        for a in 0..self.nodes.len() {
            for b in a + 1..self.nodes.len() {
                if !self.wired(a, b) {
                    self.connect(a, b);
                }
            }
        }
    }

    fn now(&self, at: usize) -> Now {
        let now_ns = self.now_ns + self.nodes[at].ahead_ns;
        Now { slot_ns: now_ns, wall_ns: now_ns, mono_ns: self.now_ns }
    }

    fn wired(&self, a: usize, b: usize) -> bool {
        self.wires.iter().any(|wire| wire.joins(a, b))
    }

    /// Node `a` dials `b`. False when one of the two refuses; both reasons are kept.
    fn connect(&mut self, a: usize, b: usize) -> bool {
        let hellos = [self.nodes[a].gossip.hello(&self.now(a)), self.nodes[b].gossip.hello(&self.now(b))];
        let end = |node, conn| End { node, conn: ConnId(conn), arriving: VecDeque::new() };
        let ends = [end(a, self.last_conn + 1), end(b, self.last_conn + 2)];
        self.last_conn += 2;
        let mut both = true;
        for (end, (dialed, hello)) in ends.iter().zip([(true, &hellos[1]), (false, &hellos[0])]) {
            let now = self.now(end.node);
            let Node { gossip, engine, .. } = &mut self.nodes[end.node];
            if let Err(why) = gossip.accept(end.conn, dialed, hello, |_| true, &now, engine) {
                self.ended.push((end.node, why));
                both = false;
            }
        }
        self.wires.push(Wire { ends, window_bytes: usize::MAX });
        if !both {
            self.cut_wire(self.wires.len() - 1, 0);
        }
        both
    }

    /// Ends a connection of which `delivered` more frames arrive at each side.
    fn cut_wire(&mut self, wire: usize, delivered: usize) {
        let mut wire = self.wires.swap_remove(wire);
        for end in &mut wire.ends {
            for _ in 0..delivered {
                let Some((_, frame)) = end.arriving.pop_front() else { break };
                if self.deliver(end.node, end.conn, &frame).is_err() {
                    break;
                }
            }
        }
        for end in wire.ends {
            let now = self.now(end.node);
            self.nodes[end.node].gossip.closed(end.conn, &now);
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        while let Some(at) = self.wires.iter().position(|wire| wire.joins(a, b)) {
            self.cut_wire(at, 0);
        }
    }

    /// The process dies, and another one starts from what is on the disk, or from nothing. The others notice at once, or
    /// after some seconds. What was on its way to them is lost.
    fn restart(&mut self, at: usize, disk: Disk, noticed: bool) {
        while let Some(wire) = self.wires.iter().position(|wire| wire.ends.iter().any(|end| end.node == at)) {
            let wire = self.wires.swap_remove(wire);
            let others = wire.ends.into_iter().filter(|end| end.node != at);
            let until_ns = self.now_ns + if noticed { 0 } else { 3 * SECOND };
            self.ghosts.extend(others.map(|end| (end.node, end.conn, until_ns)));
        }
        self.lay_ghosts();
        self.ghosts.retain(|ghost| ghost.0 != at);
        // Without a disk only the clock makes a later generation.
        let generation = disk.generation.max(self.nodes[at].disk.generation);
        let now_ns = self.now_ns + self.nodes[at].ahead_ns;
        self.nodes[at] = Node::start(at, Disk { generation, ..disk }, now_ns, self.ring_bytes, self.max_cells);
    }

    /// Connections without another end close when their node says so, or when it notices.
    fn lay_ghosts(&mut self) {
        for (at, conn, until_ns) in std::mem::take(&mut self.ghosts) {
            let now = self.now(at);
            let Node { gossip, engine, .. } = &mut self.nodes[at];
            let closes = matches!(gossip.poll(conn, &now, engine), Next::Close(_));
            if closes || until_ns <= self.now_ns {
                gossip.closed(conn, &now);
            } else {
                self.ghosts.push((at, conn, until_ns));
            }
        }
    }

    fn deliver(&mut self, at: usize, conn: ConnId, frame: &[u8]) -> Result<Received, Refusal> {
        let now = self.now(at);
        let Node { gossip, engine, pending, .. } = &mut self.nodes[at];
        let mut received = gossip.receive(conn, frame, &now, engine)?;
        pending.append(&mut received.records);
        if received.own_above {
            let own = ReplicaId { nonce: gossip.own.nonce + 1, ..gossip.own.clone() };
            pending.extend(gossip.new_life(own, false, &now, engine));
        }
        Ok(received)
    }

    /// Writes what the nodes have to send, as far as the wires take it.
    fn write(&mut self) {
        for wire in 0..self.wires.len() {
            for side in 0..2 {
                self.write_side(wire, side);
            }
        }
    }

    fn write_side(&mut self, wire: usize, side: usize) {
        let (node, conn) = (self.wires[wire].ends[side].node, self.wires[wire].ends[side].conn);
        let (now, arrives_ns) = (self.now(node), self.now_ns + LATENCY);
        loop {
            let window = self.wires[wire].window_bytes;
            let Node { gossip, engine, .. } = &mut self.nodes[node];
            let other = &mut self.wires[wire].ends[1 - side];
            if other.arriving.iter().map(|(_, frame)| frame.len()).sum::<usize>() >= window {
                return;
            }
            match gossip.poll(conn, &now, engine) {
                Next::Frame(frame) => other.arriving.push_back((arrives_ns, frame)),
                Next::Idle => return,
                Next::Close(why) => {
                    self.ended.push((node, why));
                    // What was written before still arrives; then the connection is gone for both.
                    other.arriving.push_back((arrives_ns, Vec::new()));
                    return;
                }
            }
        }
    }

    /// Delivers what has arrived.
    fn read(&mut self) {
        let mut at = 0;
        'wires: while at < self.wires.len() {
            for side in 0..2 {
                let now_ns = self.now_ns;
                while let Some((_, frame)) = self.wires[at].ends[side].arriving.pop_front_if(|next| next.0 <= now_ns) {
                    let (node, conn) = (self.wires[at].ends[side].node, self.wires[at].ends[side].conn);
                    let closed = frame.is_empty();
                    if let Some(why) = (!closed).then(|| self.deliver(node, conn, &frame).err()).flatten() {
                        self.ended.push((node, why));
                        self.cut_wire(at, 0);
                        continue 'wires;
                    }
                    if closed {
                        self.cut_wire(at, 0);
                        continue 'wires;
                    }
                }
            }
            at += 1;
        }
    }

    fn flush(&mut self, at: usize) {
        let now = self.now(at);
        let Node { gossip, engine, pending, .. } = &mut self.nodes[at];
        pending.extend(gossip.flush(&now, engine));
    }

    /// Lets time pass, ten milliseconds at a time; every interval everybody flushes, commits and looks at timeouts.
    fn run(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        while self.now_ns < end_ns {
            self.now_ns += 10 * MS;
            if self.now_ns.is_multiple_of(INTERVAL) {
                for at in 0..self.nodes.len() {
                    self.flush(at);
                    self.nodes[at].commit();
                }
                self.tick();
            }
            self.write();
            self.read();
        }
    }

    /// The timeouts of everybody.
    fn tick(&mut self) {
        for at in 0..self.nodes.len() {
            let now = self.now(at);
            self.nodes[at].gossip.tick(&now);
        }
        self.lay_ghosts();
    }

    fn spend(&mut self, at: usize, limit: &str, key: &str, cost: u32) {
        let now = self.now(at);
        self.nodes[at].spend(&now, limit, key, cost);
    }

    /// What every node counts.
    fn used(&self, limit: &str, key: &str) -> Vec<u64> {
        (0..self.nodes.len()).map(|at| self.nodes[at].used(&self.now(at), limit, key)).collect()
    }

    fn status(&self, at: usize, of: usize) -> PeerStatus {
        let peers = self.nodes[at].gossip.peers(&self.now(at));
        peers.into_iter().find(|peer| peer.replica.node == name(of)).unwrap()
    }

    /// All that `at` writes to `to` now, without delivering it.
    fn frames(&mut self, at: usize, to: usize) -> Vec<Frame> {
        let wire = self.wires.iter().position(|wire| wire.joins(at, to)).unwrap();
        let side = usize::from(self.wires[wire].ends[1].node == at);
        let before = self.wires[wire].ends[1 - side].arriving.len();
        self.write_side(wire, side);
        let arriving = self.wires[wire].ends[1 - side].arriving.iter().skip(before);
        arriving.map(|(_, frame)| Frame::decode(frame).unwrap()).collect()
    }
}

impl Wire {
    fn joins(&self, a: usize, b: usize) -> bool {
        let nodes = [self.ends[0].node, self.ends[1].node];
        nodes == [a, b] || nodes == [b, a]
    }
}
