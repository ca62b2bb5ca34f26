//! Connections between nodes: streams that are ordered and lose nothing, as QUIC's are. What packets suffer makes frames
//! late, and those behind them too; a cut holds them up, and a long one ends the connection.

use std::collections::{BTreeMap, VecDeque};

use rand::Rng;
use rand::rngs::StdRng;
use tidegate::codec::Frame;
use tidegate::gossip::{ConnId, Refusal};
use tidegate::transport::{IDLE_TIMEOUT, MAX_BACKOFF, MIN_BACKOFF, STEADY_AFTER, WINDOW_FLOOR_BYTES};

use crate::schedule::Weather;

const MS: u64 = 1_000_000;
/// What may be under way on a stream, bytes.
const WINDOW_BYTES: usize = WINDOW_FLOOR_BYTES as usize;
/// What QUIC waits beyond a round trip before it sends again, nanoseconds.
const PROBE_NS: u64 = 25 * MS;
/// What a stream takes to go on after a cut, beyond the way itself: up to this, nanoseconds.
const HEALS_WITHIN_NS: u64 = 300 * MS;
/// How far frames out of order come apart, nanoseconds.
const DISORDER_NS: u64 = 150 * MS;
/// A connection on which nothing is heard for so long ends, nanoseconds.
pub const IDLE_NS: u64 = IDLE_TIMEOUT.as_nanos() as u64;

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    /// Which node.
    pub node: usize,
    /// Which of its processes.
    pub start: u64,
    /// How the node calls it.
    pub conn: ConnId,
    /// Whether the node takes it for open.
    pub open: bool,
    /// Since when nothing was heard.
    pub heard_ns: u64,
    /// Bytes that this end sent and that have not arrived.
    pub under_way: usize,
    /// Whether it has more to send than may be under way.
    pub blocked: bool,
    /// State that this end sends has begun and its end has not arrived.
    pub in_state: bool,
    /// Hashes of the chunks that it sent.
    pub sent_chunks: std::collections::BTreeSet<u64>,
    /// When the last of what is under way to it arrives.
    arrives_ns: u64,
    /// What arrived at a cut.
    stalled: VecDeque<Payload>,
}

impl End {
    /// An end of a connection that is being made.
    pub fn new(node: usize, start: u64, conn: u64, now_ns: u64) -> Self {
        Self {
            node,
            start,
            conn: ConnId(conn),
            open: false,
            heard_ns: now_ns,
            under_way: 0,
            blocked: false,
            in_state: false,
            sent_chunks: std::collections::BTreeSet::new(),
            arrives_ns: 0,
            stalled: VecDeque::new(),
        }
    }

    /// Whether another frame may be sent.
    pub fn has_room(&self) -> bool {
        self.under_way < WINDOW_BYTES
    }
}

/// A connection. The node of the first end dialed.
#[derive(Debug)]
pub struct Wire {
    /// Its ends.
    pub ends: [End; 2],
    /// When it was made.
    pub made_ns: u64,
}

/// What is under way on a connection.
#[derive(Clone, Debug)]
pub enum Payload {
    /// The answer to a hello.
    Hello(Vec<u8>),
    /// A frame.
    Frame(Vec<u8>),
    /// The end, and why.
    Close(Refusal),
    /// The end: the process at the other side does not know the connection.
    Reset,
}

impl Payload {
    /// Its bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Hello(bytes) | Self::Frame(bytes) => bytes.len(),
            Self::Close(_) | Self::Reset => 0,
        }
    }
}

/// When the copies of a payload arrive, and whether it goes around those before it.
pub struct Passage {
    /// Nanoseconds of the run.
    pub arrives_ns: Vec<u64>,
    /// What arrives.
    pub payload: Payload,
}

/// All connections of a run, and what is cut.
#[derive(Debug)]
pub struct Wires {
    /// By number.
    pub all: BTreeMap<u64, Wire>,
    /// What packets suffer now, and until when.
    weather: Weather,
    weather_until_ns: u64,
    nodes: usize,
    cut: Vec<bool>,
    rng: StdRng,
}

impl Wires {
    /// None.
    pub fn new(nodes: usize, rng: StdRng) -> Self {
        Self {
            all: BTreeMap::new(),
            weather: Weather::default(),
            weather_until_ns: u64::MAX,
            nodes,
            cut: vec![false; nodes * nodes],
            rng,
        }
    }

    /// The weather changes, until then.
    pub fn set_weather(&mut self, weather: Weather, until_ns: u64) {
        (self.weather, self.weather_until_ns) = (weather, until_ns);
    }

    /// Whether anything passes.
    pub fn passes(&self, from: usize, to: usize) -> bool {
        !self.cut[from * self.nodes + to]
    }

    /// Whether anything is cut.
    pub fn any_cut(&self) -> bool {
        self.cut.contains(&true)
    }

    /// Nothing passes any more, or it does again.
    pub fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        self.cut[from * self.nodes + to] = cut;
    }

    /// What one side of a connection sends: when it arrives at the other. `one_way_ns` is the way.
    pub fn send(&mut self, wire: u64, from_side: usize, payload: Payload, now_ns: u64, one_way_ns: u64) -> Passage {
        let Weather { loss_ppm, late_ppm, late_ms, corrupt_ppm, gap_ppm, .. } = self.weather;
        let mut late_ns = 0;
        // Each probe waits twice as long as the one before; one that is sent when the weather is over arrives.
        while now_ns + late_ns < self.weather_until_ns && hit(&mut self.rng, loss_ppm) {
            late_ns += (2 * one_way_ns + PROBE_NS).max(late_ns);
        }
        if hit(&mut self.rng, late_ppm) {
            late_ns += self.rng.random_range(0..=late_ms * MS);
        }
        let payload = if hit(&mut self.rng, corrupt_ppm) { self.corrupt(payload) } else { payload };
        let Some(wire) = self.all.get_mut(&wire) else { return Passage { arrives_ns: Vec::new(), payload } };
        wire.ends[from_side].under_way += payload.len();
        let to = &mut wire.ends[1 - from_side];
        let straight_ns = now_ns + one_way_ns + late_ns;
        if may_gap(&payload) && hit(&mut self.rng, gap_ppm) {
            let astray_ns = straight_ns + self.rng.random_range(0..DISORDER_NS);
            let arrives_ns = match self.rng.random_range(0..3) {
                0 => Vec::new(),
                1 => vec![astray_ns],
                _ => vec![straight_ns.max(to.arrives_ns), astray_ns],
            };
            return Passage { arrives_ns, payload };
        }
        to.arrives_ns = to.arrives_ns.max(straight_ns);
        Passage { arrives_ns: vec![to.arrives_ns], payload }
    }

    /// Changes a chunk's bytes, or cuts a frame short: what a receiver must notice. (In the other tier packets change,
    /// and QUIC notices.)
    fn corrupt(&mut self, payload: Payload) -> Payload {
        let Payload::Frame(mut bytes) = payload else { return payload };
        match Frame::decode(&bytes) {
            Ok(Frame::Chunk(chunk)) if chunk.len() > 1 && self.rng.random() => {
                let at = self.rng.random_range(1..bytes.len());
                bytes[at] ^= 1 << self.rng.random_range(0..8);
            }
            _ => bytes.truncate(bytes.len() / 2),
        }
        Payload::Frame(bytes)
    }

    /// Something arrived where nothing passes: it waits.
    pub fn stall(&mut self, wire: u64, to_side: usize, payload: Payload) {
        if let Some(wire) = self.all.get_mut(&wire) {
            wire.ends[to_side].stalled.push_back(payload);
        }
    }

    /// Something passes again: what waited, as (connection, side to which, when it arrives, what).
    pub fn unstall(&mut self, from: usize, to: usize, now_ns: u64, one_way_ns: u64) -> Vec<(u64, usize, u64, Payload)> {
        let mut free = Vec::new();
        for (number, wire) in &mut self.all {
            for side in 0..2 {
                if (wire.ends[1 - side].node, wire.ends[side].node) != (from, to) || wire.ends[side].stalled.is_empty()
                {
                    continue;
                }
                let at_ns = now_ns + one_way_ns + self.rng.random_range(0..HEALS_WITHIN_NS);
                let end = &mut wire.ends[side];
                end.arrives_ns = end.arrives_ns.max(at_ns);
                let at_ns = end.arrives_ns;
                free.extend(end.stalled.drain(..).map(|payload| (*number, side, at_ns, payload)));
            }
        }
        free
    }

    /// The ends of a node's process, as (connection, side).
    pub fn ends_of(&self, node: usize) -> Vec<(u64, usize)> {
        let sides =
            self.all.iter().flat_map(|(number, wire)| [(*number, 0, &wire.ends[0]), (*number, 1, &wire.ends[1])]);
        sides.filter(|side| side.2.node == node && side.2.open).map(|side| (side.0, side.1)).collect()
    }

    /// Forgets connections of which no end is open any more.
    pub fn sweep(&mut self, now_ns: u64) {
        self.all.retain(|_, wire| wire.ends.iter().any(|end| end.open) || now_ns < wire.made_ns + 2 * IDLE_NS);
    }
}

/// The protocol says of these that they may be lost, repeated and reordered.
fn may_gap(payload: &Payload) -> bool {
    let Payload::Frame(bytes) = payload else { return false };
    matches!(Frame::decode(bytes), Ok(Frame::Chunk(_) | Frame::Beat { .. } | Frame::Have(_)))
}

fn hit(rng: &mut StdRng, ppm: u32) -> bool {
    ppm > 0 && rng.random_range(0..1_000_000) < ppm
}

/// One node dialing another: as [`tidegate::transport`] does it.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// Whether a dial is under way or waits for its turn.
    pub busy: bool,
    next_ns: u64,
}

impl Dialer {
    /// One that has not dialed yet.
    pub fn new() -> Self {
        Self { busy: false, next_ns: MIN_BACKOFF.as_nanos() as u64 }
    }

    /// A connection that it made has ended: one that lived for a while makes the next dial come at once.
    pub fn ended(&mut self, lived_ns: u64) {
        if lived_ns >= STEADY_AFTER.as_nanos() as u64 {
            self.next_ns = MIN_BACKOFF.as_nanos() as u64;
        }
    }

    /// How long it waits before the next dial.
    pub fn wait_ns(&mut self, rng: &mut StdRng) -> u64 {
        let longest_ns = self.next_ns;
        self.next_ns = (2 * longest_ns).min(MAX_BACKOFF.as_nanos() as u64);
        rng.random_range(longest_ns / 2..=longest_ns)
    }
}
