//! Clients: they ask the node of their own host through its real HTTP API, and at the end put its promises to the test.

use std::sync::Arc;

use anyhow::{Context, bail};
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use serde::Deserialize;
use tidegate::engine::{self, Op};
use tidegate::node::Inspector;
use tidegate::time::MS;

use super::clock::{elapsed_ns, sleep_until_ms};
use super::http::{Client, Reply};
use super::machine::Machine;
use crate::history::{Outcome, Request, Trial};
use crate::schedule::{Ask, KeyPlan, Operation};
use crate::states::Sometimes;

/// How many tokens a trial takes one by one before it expects a denial.
const LAST_FEW: u64 = 5;
/// A bucket may refill a little while it is emptied; after this many more the trial gives up.
const MOST_ASKED: usize = 60;
/// Whoever asks this much too early is too early, although the answer that told the wait took a while to arrive.
const TOO_EARLY_MS: u64 = 5;
/// Waits told are longer by up to a thousandth while the slot clock is slewed, twice 500 ppm, whether it goes on or not.
const SLEWING_PARTS: u64 = 1_000;

/// A client of one key at one node. It asks one thing at a time, so that what it has been told is all there is.
pub struct Asker {
    machine: Arc<Machine>,
    node: Inspector,
    key: usize,
    client: Client,
}

/// What an answer says.
#[derive(Clone, Copy, Debug)]
struct Told {
    allowed: bool,
    reason: Option<Reason>,
    remaining: u64,
    retry_after_ms: Option<u64>,
}

/// The part of an answer's body that clients here look at.
#[derive(Deserialize)]
struct Body {
    allowed: bool,
    retry_after_ms: Option<u64>,
    results: Vec<BodyResult>,
}

#[derive(Deserialize)]
struct BodyResult {
    remaining: u64,
    reason: Option<Reason>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    Quota,
    CostOverLimit,
    TableFull,
}

impl Asker {
    /// A client of the node of this host.
    pub fn new(machine: Arc<Machine>, node: Inspector, key: usize) -> Self {
        let client = Client::new(machine.name());
        Self { machine, node, key, client }
    }

    /// Asks, each at its time. A slow answer makes the next request late, but none is left out.
    pub async fn load(mut self, asks: Vec<(u64, Ask)>) -> anyhow::Result<()> {
        for (at_ms, ask) in asks {
            sleep_until_ms(at_ms).await;
            let in_cut = ask.op == Operation::Reset && self.machine.common.sky.any_cut();
            self.machine.common.record.seen().states.hit_if(in_cut, Sometimes::ResetInCut);
            self.ask(ask.op, ask.cost).await?;
        }
        Ok(())
    }

    /// With nothing else arriving: takes what is said to remain, goes on until denied, waits as told, and asks again.
    pub async fn try_promises(mut self) -> anyhow::Result<()> {
        let mut trial = Trial { node: self.machine.index, key: self.key, ..Trial::default() };
        trial.remaining = self.peek().await?.remaining;
        // Most of it at once: the last few one by one are what tells.
        let at_once = u32::try_from(trial.remaining.saturating_sub(LAST_FEW)).unwrap_or(u32::MAX);
        let mut allowed = true;
        if at_once > 0 {
            allowed = self.ask(Operation::Check, at_once).await?.allowed;
            trial.admitted = if allowed { u64::from(at_once) } else { 0 };
        }
        for _ in 0..MOST_ASKED {
            let told = self.ask(Operation::Check, 1).await?;
            if told.allowed {
                trial.admitted += u64::from(allowed);
                continue;
            }
            if let Some(wait_ms) = told.retry_after_ms {
                self.wait_as_told(wait_ms, &mut trial).await?;
            }
            break;
        }
        self.machine.common.record.tried(trial);
        Ok(())
    }

    async fn wait_as_told(&mut self, wait_ms: u64, trial: &mut Trial) -> anyhow::Result<()> {
        let told_at_ms = elapsed_ns() / MS;
        trial.retry_after_ns = Some(wait_ms * MS);
        let too_early_ms = TOO_EARLY_MS + wait_ms.div_ceil(SLEWING_PARTS);
        if let Some(early_ms) = wait_ms.checked_sub(too_early_ms).filter(|ms| *ms > 0) {
            sleep_until_ms(told_at_ms + early_ms).await;
            trial.admitted_early = Some(self.peek().await?.allowed);
        }
        sleep_until_ms(told_at_ms + wait_ms).await;
        trial.admitted_then = self.ask(Operation::Check, 1).await?.allowed;
        Ok(())
    }

    async fn peek(&mut self) -> anyhow::Result<Told> {
        Ok(self.post("/v1/peek", 1).await?.0)
    }

    fn plan(&self) -> &KeyPlan {
        &self.machine.common.schedule.keys[self.key]
    }

    fn limit(&self) -> &str {
        &self.machine.common.schedule.limits[self.plan().limit].name
    }

    fn slot_now_ns(&self) -> u64 {
        self.node.now().slot_ns
    }

    /// Asks, and writes down what came of it.
    async fn ask(&mut self, op: Operation, cost: u32) -> anyhow::Result<Told> {
        let record = self.machine.common.record.clone();
        let (engine, slot_from_ns, sent_ns) = (self.node.engine(), self.slot_now_ns(), elapsed_ns());
        let ask = engine::Ask { limit: self.limit(), key: &self.plan().key, cost };
        let before = engine.decide(slot_from_ns, Op::Peek, &[ask])?.results.swap_remove(0);
        let request = record.sent(Request {
            life: record.life(&engine.own(), sent_ns),
            key: self.key,
            cost: u64::from(cost),
            op,
            sent_ns,
            answered_ns: u64::MAX,
            slot_from_ns,
            slot_to_ns: u64::MAX,
            before: before.verdict,
            outcome: Outcome::Unknown,
        });
        let path = match op {
            Operation::Check => "/v1/check",
            Operation::Debit => "/v1/debit",
            Operation::Reset => "/v1/reset",
        };
        let (told, reply) = self.post(path, cost).await?;
        let outcome = match (told.allowed, told.reason) {
            (true, _) => Outcome::Admitted,
            (false, Some(Reason::TableFull)) => Outcome::TableFull,
            (false, _) => Outcome::Denied,
        };
        record.answered(request, outcome, elapsed_ns(), self.slot_now_ns(), told.remaining);
        if let Some(wrong) = wrong_by_itself(&told, &reply) {
            record.wrong(elapsed_ns(), self.machine.index, &wrong);
        }
        let mut seen = record.seen();
        seen.states.hit_if(outcome == Outcome::Denied, Sometimes::Denied);
        seen.states.hit_if(outcome == Outcome::TableFull, Sometimes::TableFull);
        seen.states.hit_if(told.reason == Some(Reason::CostOverLimit), Sometimes::DeniedNever);
        let beyond = op == Operation::Debit && before.remaining < u64::from(cost);
        seen.states.hit_if(beyond, Sometimes::DebitBeyondLimit);
        Ok(told)
    }

    async fn post(&mut self, path: &str, cost: u32) -> anyhow::Result<(Told, Reply)> {
        let json = serde_json::json!({ "limit": self.limit(), "key": self.plan().key, "cost": cost }).to_string();
        let reply = self.client.post(path, json).await;
        let reply = reply.with_context(|| format!("{path} on {}", self.machine.name()))?;
        let body: Body = serde_json::from_slice(&reply.body)
            .with_context(|| format!("{path} answered {}: {:?}", reply.status, reply.body))?;
        let [BodyResult { remaining, reason }] = body.results[..] else {
            bail!("{path} answered one check with {} results", body.results.len())
        };
        let told = Told { allowed: body.allowed, reason, remaining, retry_after_ms: body.retry_after_ms };
        Ok((told, reply))
    }
}

/// What contradicts itself in an answer.
fn wrong_by_itself(told: &Told, reply: &Reply) -> Option<String> {
    let status = if told.allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    if reply.status != status {
        return Some(format!("status {} for allowed {}", reply.status, told.allowed));
    }
    let seconds = match reply.headers.get(RETRY_AFTER).map(|value| value.to_str().map(str::parse::<u64>)) {
        None => None,
        Some(Ok(Ok(seconds))) => Some(seconds),
        Some(_) => return Some("Retry-After is no number".to_owned()),
    };
    let expected = told.retry_after_ms.filter(|_| !told.allowed);
    match (seconds, expected) {
        (None, None) => None,
        (Some(seconds), Some(ms)) if seconds == ms.div_ceil(1000) => None,
        _ => Some(format!("Retry-After {seconds:?} for a wait of {expected:?} ms")),
    }
}
