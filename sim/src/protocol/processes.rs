//! Processes: how they start and die, and what they do from time to time.

use rand::Rng;
use tidegate::time::{Discipline, MS};

use super::machine::{FLUSH_APART_NS, JOURNAL_NS, SECOND_NS, TICK_NS};
use super::wires::{Dialer, IDLE_NS};
use super::world::{Due, World};
use crate::reach::RESTART_MS;
use crate::schedule::DiskState;
use crate::seed::Seed;
use crate::states::Sometimes;

/// A process that does not start is tried again after this, nanoseconds.
const RESTART_NS: u64 = RESTART_MS * MS;

impl World {
    pub(super) fn start(&mut self, node: usize, disk: DiskState) {
        self.machines[node].insert(disk);
        let first = self.machines[node].starts == 0;
        let rng = Seed(self.schedule.seed).rng(&format!("node/{node}/{}", self.machines[node].starts + 1));
        if let Err(error) = self.machines[node].start(self.now_ns, rng) {
            tracing::debug!(node, %error, "does not start");
            return self.queue.push(self.now_ns + RESTART_NS, Due::Restart(node));
        }
        let (start, Some(process)) = (self.machines[node].starts, &self.machines[node].process) else { return };
        self.record.begins(&process.inspector.engine().own(), self.now_ns);
        {
            let mut seen = self.record.seen();
            seen.states.hit_if(process.inspector.sizes().cells > 0, Sometimes::RecoveredRecords);
            seen.states.hit_if(process.inspector.damaged() > 0, Sometimes::RecoveredDamaged);
            seen.states.hit_if(!first && disk == DiskState::Empty, Sometimes::StartedEmpty);
        }
        // Nodes do not start in step.
        let phase_ns = self.rng.random_range(0..10 * MS);
        let interval_ns = self.schedule.setup.interval_ms * MS;
        self.set_next_flush(node, self.now_ns + interval_ns + phase_ns);
        self.queue.push(self.now_ns + TICK_NS + phase_ns, Due::Tick(node, start));
        self.queue.push(self.now_ns + SECOND_NS + phase_ns, Due::Second(node, start));
        self.queue.push(self.now_ns + JOURNAL_NS + phase_ns, Due::Journal(node, start));
        for to in self.schedule.others(node) {
            self.dialers[node * self.machines.len() + to] = Dialer::new();
            self.want_dial(node, to, phase_ns);
        }
    }

    pub(super) fn crash(&mut self, node: usize) {
        if self.machines[node].process.is_none() {
            return;
        }
        self.tell_process(node);
        self.deferred[node].clear();
        self.machines[node].crash(&mut self.rng);
        for (wire, side) in self.wires.ends_of(node) {
            if let Some(wire) = self.wires.all.get_mut(&wire) {
                wire.ends[side].open = false;
            }
        }
    }

    pub(super) fn timed_flush(&mut self, node: usize, start: u64) {
        let due = self.machines[node].process.as_ref().is_some_and(|process| process.flush_ns <= self.now_ns);
        if self.runs(node, start) && due {
            self.flush(node);
        }
    }

    pub(super) fn flush(&mut self, node: usize) {
        let now_ns = self.now_ns;
        let Some(process) = &mut self.machines[node].process else { return };
        (process.flushed_ns, process.urged_ns) = (now_ns, None);
        process.body.flush();
        self.set_next_flush(node, now_ns + self.schedule.setup.interval_ms * MS);
        self.pump(node);
    }

    pub(super) fn set_next_flush(&mut self, node: usize, at_ns: u64) {
        let start = self.machines[node].starts;
        if let Some(process) = &mut self.machines[node].process {
            process.flush_ns = at_ns;
        }
        self.queue.push(at_ns, Due::Flush(node, start));
    }

    /// A check was urgent.
    pub(super) fn urge(&mut self, node: usize) {
        let (start, now_ns) = (self.machines[node].starts, self.now_ns);
        let Some(process) = &mut self.machines[node].process else { return };
        if process.urged_ns.is_none() {
            let at_ns = now_ns.max(process.flushed_ns + FLUSH_APART_NS);
            process.urged_ns = Some(at_ns);
            self.queue.push(at_ns, Due::Urged(node, start));
        }
    }

    pub(super) fn tick(&mut self, node: usize, start: u64) {
        if !self.runs(node, start) {
            return;
        }
        self.queue.push(self.now_ns + TICK_NS, Due::Tick(node, start));
        for (wire, side) in self.wires.ends_of(node) {
            let idle = self.wires.all.get(&wire).is_some_and(|wire| wire.ends[side].heard_ns + IDLE_NS < self.now_ns);
            if idle {
                self.record.hit(Sometimes::ConnectionTimedOut);
                self.close_end(wire, side, "nothing was heard");
            }
        }
        if let Some(process) = self.machines[node].awake() {
            process.body.tick();
        }
        self.pump(node);
    }

    pub(super) fn second(&mut self, node: usize, start: u64) {
        if !self.runs(node, start) {
            return;
        }
        self.queue.push(self.now_ns + SECOND_NS, Due::Second(node, start));
        let discipline = self.machines[node].awake().map(|process| process.body.second());
        let state = match discipline {
            Some(Discipline::Stepped(by)) if by > 0 => Some(Sometimes::ClockSteppedForward),
            Some(Discipline::Stepped(_)) => Some(Sometimes::ClockSteppedBack),
            Some(Discipline::NewLife) => Some(Sometimes::NewLife),
            _ => None,
        };
        state.into_iter().for_each(|state| self.record.hit(state));
        self.tell_process(node);
        self.wires.sweep(self.now_ns);
        self.pump(node);
    }

    /// Which states a process tells of itself.
    pub(super) fn tell_process(&self, node: usize) {
        let Some(process) = &self.machines[node].process else { return };
        self.record.tell(&process.inspector);
    }

    pub(super) fn journal(&mut self, node: usize, start: u64) {
        if !self.runs(node, start) {
            return;
        }
        self.queue.push(self.now_ns + JOURNAL_NS, Due::Journal(node, start));
        if self.machines[node].disk_slow {
            return;
        }
        if let Some(process) = &mut self.machines[node].process {
            process.writer.step();
        }
    }
}
