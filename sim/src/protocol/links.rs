//! How nodes meet, what they send each other, and how connections end: what [`tidegate::transport`] does over QUIC.

use std::hash::Hasher;

use rand::Rng;
use siphasher::sip::SipHasher13;
use tidegate::codec::{Frame, Hello};
use tidegate::gossip::{ConnId, Next, Refusal};
use tidegate::id::{ClusterId, NodeName, ReplicaId};
use tidegate::time::MS;
use tidegate::transport::HANDSHAKE_TIMEOUT;

use super::wires::{End, Payload, Wire};
use super::world::{Attempt, Due, World};
use crate::schedule::Stranger;
use crate::states::Sometimes;

/// When a dial that got no answer is sent again, nanoseconds after it began: as QUIC's probes.
const DIAL_AGAIN_NS: [u64; 2] = [1_000 * MS, 3_000 * MS];
const DIAL_TIMEOUT_NS: u64 = HANDSHAKE_TIMEOUT.as_nanos() as u64;

impl World {
    /// A node dials another, unless it is at it or connected.
    pub(super) fn want_dial(&mut self, node: usize, to: usize, in_ns: u64) {
        let start = self.machines[node].starts;
        let dialer = &mut self.dialers[node * self.machines.len() + to];
        if !std::mem::replace(&mut dialer.busy, true) {
            let began_ns = self.now_ns + in_ns;
            self.queue.push(began_ns, Due::Dial(Attempt { node, start, to, began_ns, tries: 0 }));
        }
    }

    pub(super) fn dial(&mut self, attempt: Attempt) {
        let Attempt { node, start, to, .. } = attempt;
        if !self.runs(node, start) {
            return;
        }
        let name = self.machines[to].name.clone();
        if self.machines[node].awake().is_some_and(|process| process.body.hub().connected(&name)) {
            return self.idle(node, to);
        }
        if !self.reach_each_other(node, to) || self.machines[to].awake().is_none() {
            return self.no_answer(attempt);
        }
        let at_ns = self.now_ns + self.rtt_ns(node, to);
        self.queue.push(at_ns, Due::Greet(attempt, self.machines[to].starts));
    }

    /// A dial gets no answer: it is sent again, or has failed.
    fn no_answer(&mut self, attempt: Attempt) {
        let still = &DIAL_AGAIN_NS[attempt.tries..];
        let Some(skipped) = still.iter().position(|after_ns| attempt.began_ns + after_ns > self.now_ns) else {
            let fails_ns = attempt.began_ns + DIAL_TIMEOUT_NS;
            return self.dial_failed(attempt, fails_ns.saturating_sub(self.now_ns));
        };
        let tries = attempt.tries + skipped + 1;
        self.queue.push(attempt.began_ns + DIAL_AGAIN_NS[tries - 1], Due::Dial(Attempt { tries, ..attempt }));
    }

    fn idle(&mut self, node: usize, to: usize) {
        self.dialers[node * self.machines.len() + to].busy = false;
    }

    /// After `in_ns` it is known to have failed, and then the dialer waits.
    fn dial_failed(&mut self, attempt: Attempt, in_ns: u64) {
        if !self.runs(attempt.node, attempt.start) {
            return;
        }
        let at = attempt.node * self.machines.len() + attempt.to;
        let began_ns = self.now_ns + in_ns + self.dialers[at].wait_ns(&mut self.rng);
        self.queue.push(began_ns, Due::Dial(Attempt { began_ns, tries: 0, ..attempt }));
    }

    /// The dial by which a connection came about has failed after all.
    fn refused(&mut self, node: usize, to: usize) {
        let (start, began_ns) = (self.machines[node].starts, self.now_ns);
        self.dial_failed(Attempt { node, start, to, began_ns, tries: 0 }, 0);
    }

    fn reach_each_other(&self, a: usize, b: usize) -> bool {
        self.wires.passes(a, b) && self.wires.passes(b, a)
    }

    fn one_way_ns(&self, a: usize, b: usize) -> u64 {
        self.schedule.one_way_ms(a, b) * MS
    }

    fn rtt_ns(&self, a: usize, b: usize) -> u64 {
        self.one_way_ns(a, b) + self.one_way_ns(b, a)
    }

    pub(super) fn greet(&mut self, attempt: Attempt, to_start: u64) {
        let Attempt { node, start, to, .. } = attempt;
        if !self.runs(node, start) {
            return;
        }
        let Some(process) = self.machines[node].awake() else { return };
        let hello = process.body.hub().hello();
        let at_ns = self.now_ns + self.one_way_ns(node, to);
        self.queue.push(at_ns, Due::Greeted(attempt, to_start, hello));
    }

    pub(super) fn greeted(&mut self, attempt: Attempt, to_start: u64, hello: &[u8]) {
        let Attempt { node, start, to, .. } = attempt;
        if !self.runs(to, to_start) || !self.reach_each_other(node, to) {
            return self.no_answer(attempt);
        }
        let (number, rtt_ns) = (self.last_conn + 1, self.rtt_ns(node, to));
        self.last_conn += 2;
        let dialer = End::new(node, start, number, self.now_ns);
        let mut answerer = End::new(to, to_start, number + 1, self.now_ns);
        let name = self.machines[node].name.clone();
        let Some(process) = self.machines[to].awake() else { return };
        let accepted = process.body.hub().accept(answerer.conn, false, hello, &|vouched| *vouched == name, rtt_ns);
        let answer = match accepted {
            Ok(_) => Payload::Hello(process.body.hub().hello()),
            Err(why) => Payload::Close(why),
        };
        answerer.open = matches!(answer, Payload::Hello(_));
        self.wires.all.insert(number, Wire { ends: [dialer, answerer], made_ns: self.now_ns });
        self.send(number, 1, answer);
        self.pump(to);
    }

    pub(super) fn send(&mut self, wire: u64, from_side: usize, payload: Payload) {
        let Some(ends) = self.wires.all.get(&wire).map(|wire| [wire.ends[0].node, wire.ends[1].node]) else { return };
        let one_way_ns = self.one_way_ns(ends[from_side], ends[1 - from_side]);
        self.traffic.packets += 1;
        self.traffic.bytes += payload.len() as u64;
        let passage = self.wires.send(wire, from_side, payload, self.now_ns, one_way_ns);
        self.record.seen().states.hit_if(passage.arrives_ns.is_empty(), Sometimes::FrameLost);
        let numbers = [
            ends[1 - from_side] as u64,
            passage.payload.len() as u64,
            passage.arrives_ns.first().copied().unwrap_or(0),
        ];
        self.record.event(self.now_ns, ends[from_side], "send", &numbers);
        for at_ns in passage.arrives_ns {
            self.queue.push(at_ns, Due::Arrives { wire, side: 1 - from_side, payload: passage.payload.clone() });
        }
    }

    pub(super) fn arrives(&mut self, wire: u64, side: usize, payload: Payload) {
        let Some((from, to)) = self.wires.all.get(&wire).map(|wire| (wire.ends[1 - side].node, wire.ends[side].node))
        else {
            return;
        };
        if !self.wires.passes(from, to) {
            return self.wires.stall(wire, side, payload);
        }
        self.free_window(wire, 1 - side, payload.len());
        if matches!(&payload, Payload::Frame(frame) if frame.len() < 16 && matches!(Frame::decode(frame), Ok(Frame::StateEnd { .. })))
            && let Some(wire) = self.wires.all.get_mut(&wire)
        {
            wire.ends[1 - side].in_state = false;
        }
        let Some(end) = self.wires.all.get(&wire).map(|wire| &wire.ends[side]) else { return };
        let waits = side == 0 && !end.open && matches!(payload, Payload::Hello(_) | Payload::Close(_));
        if self.runs(to, end.start) && (end.open || waits) {
            self.take_in(wire, side, payload);
            self.pump(to);
        } else if self.machines[to].awake().is_some() && !matches!(payload, Payload::Close(_) | Payload::Reset) {
            // A process that knows nothing of the connection says so; one that is down says nothing.
            self.send(wire, side, Payload::Reset);
        }
    }

    /// So much of what a side sent has arrived.
    fn free_window(&mut self, wire: u64, side: usize, bytes: usize) {
        let Some(end) = self.wires.all.get_mut(&wire).map(|wire| &mut wire.ends[side]) else { return };
        end.under_way = end.under_way.saturating_sub(bytes);
        if std::mem::take(&mut end.blocked) {
            let (node, start) = (end.node, end.start);
            self.queue.push(self.now_ns, Due::Pump(node, start));
        }
    }

    /// What arrived at an end that waits for it.
    fn take_in(&mut self, number: u64, side: usize, payload: Payload) {
        let now_ns = self.now_ns;
        let Some(wire) = self.wires.all.get_mut(&number) else { return };
        wire.ends[side].heard_ns = now_ns;
        let (open, conn) = (wire.ends[side].open, wire.ends[side].conn);
        let (from, to) = (wire.ends[1 - side].node, wire.ends[side].node);
        let (name, rtt_ns) = (self.machines[from].name.clone(), self.rtt_ns(from, to));
        let Some(process) = self.machines[to].awake() else { return };
        let hub = process.body.hub();
        match payload {
            Payload::Hello(hello) => match hub.accept(conn, true, &hello, &|vouched| *vouched == name, rtt_ns) {
                Ok(_) => {
                    hub.tried(name.as_str(), false);
                    if let Some(wire) = self.wires.all.get_mut(&number) {
                        wire.ends[side].open = true;
                    }
                    self.idle(to, from);
                }
                Err(why) => {
                    self.send(number, side, Payload::Close(why));
                    self.refused(to, from);
                }
            },
            Payload::Frame(frame) => {
                if let Err(why) = hub.receive(conn, &frame, rtt_ns) {
                    self.record.hit(Sometimes::FrameRefused);
                    self.close(number, side, why);
                }
            }
            Payload::Close(why) => {
                if matches!(why, Refusal::Duplicate(_)) {
                    hub.outlived(&name);
                }
                match open {
                    true => self.close_end(number, side, "the peer closed it"),
                    false => self.refused(to, from),
                }
            }
            Payload::Reset => self.close_end(number, side, "the peer does not know it"),
        }
    }

    /// This side ends a connection, and says why.
    pub(super) fn close(&mut self, wire: u64, side: usize, why: Refusal) {
        let met_twice = matches!(why, Refusal::AlreadyConnected(_) | Refusal::Replaced);
        self.record.seen().states.hit_if(met_twice, Sometimes::MetTwice);
        self.send(wire, side, Payload::Close(why));
        self.close_end(wire, side, "closed");
    }

    /// A side takes a connection for ended.
    pub(super) fn close_end(&mut self, wire: u64, side: usize, why: &str) {
        let Some(ended) = self.wires.all.get_mut(&wire) else { return };
        let (made_ns, end) = (ended.made_ns, &mut ended.ends[side]);
        end.open = false;
        let (node, conn, in_state) = (end.node, end.conn, end.in_state);
        let to = ended.ends[1 - side].node;
        self.record.seen().states.hit_if(in_state, Sometimes::StateInterrupted);
        self.record.event(self.now_ns, node, "closed", &[to as u64]);
        let name = self.machines[to].name.clone();
        let Some(process) = self.machines[node].awake() else { return };
        process.body.hub().closed(conn, why);
        let connected = process.body.hub().connected(&name);
        let dialer = &mut self.dialers[node * self.machines.len() + to];
        let mut in_ns = 0;
        if side == 0 {
            dialer.ended(self.now_ns - made_ns);
            in_ns = dialer.wait_ns(&mut self.rng);
        }
        if !connected {
            self.want_dial(node, to, in_ns);
        }
    }

    pub(super) fn heal(&mut self, from: usize, to: usize) {
        self.wires.set_cut(from, to, false);
        let one_way_ns = self.one_way_ns(from, to);
        for (wire, side, at_ns, payload) in self.wires.unstall(from, to, self.now_ns, one_way_ns) {
            self.queue.push(at_ns, Due::Arrives { wire, side, payload });
        }
    }

    /// A node writes what it has to send, as far as streams take it.
    pub(super) fn pump(&mut self, node: usize) {
        for (wire, side) in self.wires.ends_of(node) {
            self.pump_end(wire, side);
        }
    }

    pub(super) fn pump_end(&mut self, wire: u64, side: usize) {
        loop {
            let Some(end) = self.wires.all.get_mut(&wire).map(|wire| &mut wire.ends[side]) else { return };
            if !end.open {
                return;
            }
            if !end.has_room() {
                end.blocked = true;
                return;
            }
            let (node, conn) = (end.node, end.conn);
            let Some(process) = self.machines[node].awake() else { return };
            match process.body.hub().poll(conn) {
                Next::Frame(frame) => {
                    self.tell_frame(wire, side, &frame);
                    self.send(wire, side, Payload::Frame(frame));
                }
                Next::Idle => return,
                Next::Close(why) => return self.close(wire, side, why),
            }
        }
    }

    /// Which states a frame tells of.
    pub(super) fn tell_frame(&mut self, wire: u64, side: usize, frame: &[u8]) {
        let Some(end) = self.wires.all.get_mut(&wire).map(|wire| &mut wire.ends[side]) else { return };
        let state = match Frame::decode(frame) {
            Ok(Frame::StateBegin { .. }) => {
                end.in_state = true;
                Some(Sometimes::StateSent)
            }
            Ok(Frame::Chunk(chunk)) => {
                let mut hasher = SipHasher13::new();
                hasher.write(&chunk);
                (!end.sent_chunks.insert(hasher.finish())).then_some(Sometimes::SentAgain)
            }
            _ => None,
        };
        state.into_iter().for_each(|state| self.record.hit(state));
    }

    /// Someone connects who does not belong here: refused, by a reason that says why.
    pub(super) fn stranger(&mut self, node: usize, who: Stranger) {
        let Some(process) = self.machines[node].awake() else { return };
        let good = Hello {
            cluster: ClusterId([0; 16]),
            replica: ReplicaId { node: NodeName::new("stranger").expect("a good name"), generation: 1, nonce: 1 },
            region: "nowhere".to_owned(),
            stamp_ns: 0,
            expected_nodes: 8,
            have: Vec::new(),
        };
        let own = Hello::decode(&process.body.hub().hello()).expect("a node's own hello is well formed");
        let hello = match who {
            Stranger::ForeignCluster => good.encode(),
            Stranger::WrongName => Hello { cluster: own.cluster, ..good }.encode(),
            Stranger::UnknownVersion => {
                let mut bytes = Hello { cluster: own.cluster, ..good }.encode();
                bytes[4] ^= 0xff;
                bytes
            }
            Stranger::Rubbish => (0..self.rng.random_range(0..200)).map(|_| self.rng.random()).collect(),
        };
        self.last_conn += 2;
        let told = process.body.hub().accept(ConnId(self.last_conn), false, &hello, &|_| false, 0);
        let right = matches!(
            (who, &told),
            (Stranger::ForeignCluster, Err(Refusal::Cluster))
                | (Stranger::WrongName, Err(Refusal::Certificate(_)))
                | (Stranger::UnknownVersion, Err(Refusal::Version { .. }))
                | (Stranger::Rubbish, Err(Refusal::Malformed(_)))
        );
        match right {
            true => self.record.hit(Sometimes::StrangerRefused),
            false => self.record.wrong(self.now_ns, node, &format!("a stranger ({who:?}) was told {told:?}")),
        }
    }
}
