//! What clients ask, and the trials of what they are told.

use tidegate::algorithms::Verdict;
use tidegate::engine::{self, Answer, Op, Reason};

use super::world::{Due, EXPIRED_AFTER_NS, World};
use crate::history::{Outcome, Request, Trial};
use crate::schedule::{Ask, Operation};
use crate::states::Sometimes;

/// How many tokens a trial takes one by one before it expects a denial.
const LAST_FEW: u64 = 5;
/// A bucket may refill a little while it is emptied; after this many more the trial gives up.
const MOST_ASKED: usize = 60;

/// A trial that waits as it was told.
#[derive(Debug)]
pub struct Waiting {
    trial: Trial,
    /// The slot clock at which it is to be admitted.
    until_slot_ns: u64,
}

impl World {
    pub(super) fn ask(&mut self, ask: &Ask) {
        let op = match ask.op {
            Operation::Check => Op::Check,
            Operation::Debit => Op::Debit,
            Operation::Reset => Op::Reset,
        };
        self.record.seen().states.hit_if(op == Op::Reset && self.wires.any_cut(), Sometimes::ResetInCut);
        self.decide(ask.node, ask.key, ask.cost, op, ask.op);
    }

    /// A client asks a node; None when it does not answer.
    fn decide(&mut self, node: usize, key: usize, cost: u32, op: Op, operation: Operation) -> Option<Answer> {
        let plan = &self.schedule.keys[key];
        let (limit, key_text) = (self.schedule.limits[plan.limit].name.clone(), plan.key.clone());
        let process = self.machines[node].awake()?;
        let (engine, slot_ns) = (process.inspector.engine(), process.inspector.now().slot_ns);
        let ask = [engine::Ask { limit: &limit, key: &key_text, cost }];
        let peeked = engine.decide(slot_ns, Op::Peek, &ask).expect("schedules ask for what there is");
        let request = self.record.sent(Request {
            life: self.record.life(&engine.own(), self.now_ns),
            key,
            cost: u64::from(cost),
            op: operation,
            sent_ns: self.now_ns,
            answered_ns: u64::MAX,
            slot_from_ns: slot_ns,
            slot_to_ns: u64::MAX,
            before: peeked.results[0].verdict,
            outcome: Outcome::Unknown,
        });
        let answer = engine.decide(slot_ns, op, &ask).expect("schedules ask for what there is");
        let result = &answer.results[0];
        let outcome = match (answer.allowed, result.reason) {
            (true, _) => Outcome::Admitted,
            (false, Some(Reason::TableFull)) => Outcome::TableFull,
            (false, _) => Outcome::Denied,
        };
        self.record.answered(request, outcome, self.now_ns, slot_ns, result.remaining);
        {
            let mut seen = self.record.seen();
            seen.states.hit_if(outcome == Outcome::Denied, Sometimes::Denied);
            seen.states.hit_if(outcome == Outcome::TableFull, Sometimes::TableFull);
            seen.states.hit_if(!answer.allowed && result.verdict == Verdict::Never, Sometimes::DeniedNever);
            let beyond = op == Op::Debit && peeked.results[0].remaining < u64::from(cost);
            seen.states.hit_if(beyond, Sometimes::DebitBeyondLimit);
        }
        if op == Op::Reset && result.remaining != result.limit.capacity() {
            self.record.wrong(self.now_ns, node, "a key that was reset has not its full allowance");
        }
        if answer.urgent {
            self.urge(node);
        }
        Some(answer)
    }

    /// The load is over and all is settled: how nodes stand, and whether what they promise is true.
    pub(super) fn begin_trials(&mut self) {
        self.look_at_all();
        for (node, machine) in self.machines.iter().enumerate() {
            if let Some(process) = machine.awake() {
                self.record.settled(node, &process.inspector);
            }
        }
        for key in 0..self.schedule.keys.len() {
            let Some(node) = self.schedule.keys[key].tried_at else { continue };
            if let Some(waiting) = self.try_key(node, key) {
                let in_ns = waiting.trial.retry_after_ns.unwrap_or(0);
                self.waiting.push(waiting);
                self.queue.push(self.now_ns + in_ns, Due::Trial(self.waiting.len() - 1));
            }
        }
        self.open_trials = self.waiting.len();
        self.end_when_tried();
    }

    /// Takes what is said to remain, goes on until denied, and sees what would be admitted right before and at the time
    /// told. None: there is nothing to wait for.
    fn try_key(&mut self, node: usize, key: usize) -> Option<Waiting> {
        let mut trial = Trial { node, key, ..Trial::default() };
        trial.remaining = self.peek(node, key, 0)?.results[0].remaining;
        let at_once = trial.remaining.saturating_sub(LAST_FEW);
        let mut allowed = true;
        if at_once > 0 {
            let cost = u32::try_from(at_once).unwrap_or(u32::MAX);
            allowed = self.decide(node, key, cost, Op::Check, Operation::Check)?.allowed;
            trial.admitted = if allowed { u64::from(cost) } else { 0 };
        }
        for _ in 0..MOST_ASKED {
            let answer = self.decide(node, key, 1, Op::Check, Operation::Check)?;
            if answer.allowed {
                trial.admitted += u64::from(allowed);
                continue;
            }
            if let Verdict::After(ns) = answer.results[0].verdict {
                trial.retry_after_ns = Some(ns);
                trial.admitted_early = Some(self.peek(node, key, ns - 1)?.allowed);
            }
            break;
        }
        let slot_ns = self.machines[node].awake()?.inspector.now().slot_ns;
        match trial.retry_after_ns {
            Some(ns) => Some(Waiting { trial, until_slot_ns: slot_ns + ns }),
            None => {
                self.record.tried(trial);
                None
            }
        }
    }

    /// What would be answered `in_ns` from now.
    fn peek(&self, node: usize, key: usize, in_ns: u64) -> Option<Answer> {
        let plan = &self.schedule.keys[key];
        let (limit, key) = (&self.schedule.limits[plan.limit].name, &plan.key);
        let process = self.machines[node].awake()?;
        let slot_ns = process.inspector.now().slot_ns + in_ns;
        let ask = [engine::Ask { limit, key, cost: 1 }];
        Some(process.inspector.engine().decide(slot_ns, Op::Peek, &ask).expect("schedules ask for what there is"))
    }

    pub(super) fn go_on_with_trial(&mut self, at: usize) {
        let Waiting { mut trial, until_slot_ns } = self.waiting[at];
        let Some(process) = self.machines[trial.node].awake() else { return };
        let slot_ns = process.inspector.now().slot_ns;
        if slot_ns < until_slot_ns {
            // The slot clock slews: it takes a little longer.
            return self.queue.push(self.now_ns + (until_slot_ns - slot_ns), Due::Trial(at));
        }
        let answer = self.decide(trial.node, trial.key, 1, Op::Check, Operation::Check);
        trial.admitted_then = answer.is_some_and(|answer| answer.allowed);
        self.record.tried(trial);
        self.open_trials -= 1;
        self.end_when_tried();
    }

    fn end_when_tried(&mut self) {
        if self.open_trials == 0 {
            let in_ns = if self.schedule.until_expired { EXPIRED_AFTER_NS } else { 0 };
            self.queue.push(self.now_ns + in_ns, Due::End);
        }
    }
}
