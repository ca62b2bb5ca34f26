//! Clients: they ask a node of their own region through its real HTTP API, and at the end put its promises to the test.

use std::time::Duration;

use anyhow::{Context, bail};
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use rand::Rng;
use rand::rngs::StdRng;
use serde::Deserialize;
use tidegate::engine::{Ask, Op};

use crate::clock::elapsed_ns;
use crate::history::{Outcome, Request, Trial};
use crate::http::{Client, Reply};
use crate::observe::{Observed, Record};
use crate::scenario::KeyPlan;

/// Where nodes serve their API.
pub const HTTP_PORT: u16 = 8080;
const MS: u64 = 1_000_000;

/// A client of one key at one node. It asks one thing at a time, so that what it has been told is all there is.
pub struct Asker {
    /// Index of the node.
    pub node: usize,
    /// Index of the key.
    pub key: usize,
    /// The key.
    pub plan: KeyPlan,
    /// Where what happens is written down.
    pub record: Record,
    /// The node.
    pub observed: Observed,
    client: Client,
}

/// What an answer says.
#[derive(Clone, Copy, Debug)]
struct Told {
    allowed: bool,
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
}

impl Asker {
    /// Connects to the node of this host.
    pub async fn connect(
        (node, host): (usize, &str),
        (key, plan): (usize, KeyPlan),
        record: Record,
        observed: Observed,
    ) -> anyhow::Result<Self> {
        let client = Client::connect(host, HTTP_PORT).await.with_context(|| format!("connecting to {host}"))?;
        Ok(Self { node, key, plan, record, observed, client })
    }

    /// Asks at times drawn from `rng`, `gap_ms` apart in the mean, until `until_ms` of the run. A slow answer makes the
    /// next request late, but none is left out.
    pub async fn load(mut self, mut rng: StdRng, gap_ms: u64, until_ms: u64) -> anyhow::Result<()> {
        let mut at_ms = elapsed_ns() / MS;
        loop {
            at_ms += rng.random_range(1..2 * gap_ms.max(1));
            let cost = rng.random_range(1..=self.plan.most_cost);
            sleep_until_ms(at_ms).await;
            if at_ms >= until_ms || elapsed_ns() / MS >= until_ms {
                return Ok(());
            }
            self.check(u64::from(cost)).await?;
        }
    }

    /// With nothing else arriving: takes what is said to remain, goes on until denied, waits as told, and asks again.
    pub async fn try_promises(mut self) -> anyhow::Result<()> {
        let mut trial = Trial { node: self.node, key: self.key, ..Trial::default() };
        trial.remaining = self.post("/v1/peek", 1).await?.0.remaining;
        // Most of it at once: the last few one by one are what tells.
        let at_once = trial.remaining.saturating_sub(LAST_FEW);
        if at_once == 0 || self.check(at_once).await?.allowed {
            trial.admitted = at_once;
            let denied = self.until_denied(&mut trial).await?;
            trial.retry_after_ms = denied.and_then(|told| told.retry_after_ms);
        }
        if let Some(wait_ms) = trial.retry_after_ms {
            let told_at_ms = elapsed_ns() / MS;
            let too_early_ms = TOO_EARLY_MS + wait_ms.div_ceil(SLEWING_PARTS);
            if let Some(early_ms) = wait_ms.checked_sub(too_early_ms).filter(|ms| *ms > 0) {
                sleep_until_ms(told_at_ms + early_ms).await;
                trial.admitted_early = Some(self.post("/v1/peek", 1).await?.0.allowed);
            }
            sleep_until_ms(told_at_ms + wait_ms).await;
            trial.admitted_then = self.check(1).await?.allowed;
        }
        self.record.tried(trial);
        Ok(())
    }

    async fn until_denied(&mut self, trial: &mut Trial) -> anyhow::Result<Option<Told>> {
        for _ in 0..MOST_ASKED {
            let told = self.check(1).await?;
            if !told.allowed {
                return Ok(Some(told));
            }
            trial.admitted += 1;
        }
        Ok(None)
    }

    /// Asks for tokens, and writes down what came of it.
    async fn check(&mut self, cost: u64) -> anyhow::Result<Told> {
        let slot_from_ns = self.observed.slot_now_ns();
        let ask = Ask { limit: &self.plan.limit.name, key: &self.plan.key, cost: cost as u32 };
        let before = self.observed.engine.decide(slot_from_ns, Op::Peek, &[ask])?.results[0].retry_after;
        let request = self.record.sent(Request {
            life: self.record.life(&self.observed.engine.own()),
            key: self.key,
            cost,
            sent_ns: elapsed_ns(),
            answered_ns: u64::MAX,
            slot_from_ns,
            slot_to_ns: u64::MAX,
            before,
            outcome: Outcome::Unknown,
        });
        let (told, reply) = self.post("/v1/check", cost).await?;
        let outcome = if told.allowed { Outcome::Admitted } else { Outcome::Denied };
        self.record.answered(request, outcome, self.observed.slot_now_ns(), told.remaining);
        if let Some(wrong) = wrong_by_itself(&told, &reply) {
            self.record.bad_answer(self.node, wrong);
        }
        Ok(told)
    }

    async fn post(&mut self, path: &str, cost: u64) -> anyhow::Result<(Told, Reply)> {
        let (limit, key) = (&self.plan.limit.name, &self.plan.key);
        let json = serde_json::json!({ "limit": limit, "key": key, "cost": cost }).to_string();
        let reply = self.client.post(path, json).await.with_context(|| format!("{path} on {}", self.node))?;
        let body: Body = serde_json::from_slice(&reply.body)
            .with_context(|| format!("{path} answered {}: {:?}", reply.status, reply.body))?;
        let [result] = &body.results[..] else {
            bail!("{path} answered one check with {} results", body.results.len())
        };
        let told = Told { allowed: body.allowed, remaining: result.remaining, retry_after_ms: body.retry_after_ms };
        Ok((told, reply))
    }
}

/// How many tokens a trial takes one by one before it expects a denial.
const LAST_FEW: u64 = 5;
/// A bucket may refill a little while it is emptied; after this many more the trial gives up.
const MOST_ASKED: usize = 60;
/// Whoever asks this much too early is too early, although the answer that told the wait took a while to arrive.
const TOO_EARLY_MS: u64 = 5;
/// Waits told are longer by up to a thousandth while the slot clock slews, twice 500 ppm, whether it goes on or not.
const SLEWING_PARTS: u64 = 1_000;

async fn sleep_until_ms(ms: u64) {
    tokio::time::sleep(Duration::from_nanos((ms * MS).saturating_sub(elapsed_ns()))).await;
}

/// What contradicts itself in an answer to a check.
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
