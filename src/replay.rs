//! A trace decided in virtual time: the same engine, told the times of the trace.
//!
//! [`Replay`] is the pure part. [`run`] reads a trace as JSON lines and writes the answers, [`summarise`] counts who was
//! denied; the command line calls them.

mod summary;
#[cfg(feature = "node")]
mod trace;

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub use summary::{MAX_DENIED_KEYS, Summary};
#[cfg(feature = "node")]
pub use trace::{MAX_LINE_BYTES, ReplayError, run, summarise};

use crate::algorithms::Verdict;
use crate::engine::{Answer, Ask, AskError, Engine, Op, Settings};
use crate::id::{NodeName, ReplicaId, Secret};
use crate::limits::{Descriptors, Limit, LimitName, LimitSet, LimitSpec, SpecError};
use crate::time::SECOND;

/// The latest time that a limit's integers have room for, nanoseconds: the year 2262.
pub const MAX_AT_NS: u64 = 1 << 63;

/// Steps between two sweeps: what has expired is forgotten, so that a long trace needs no more memory than a node.
const SWEEP_STEPS: u64 = 65_536;

/// An engine in virtual time.
#[derive(Debug)]
pub struct Replay {
    engine: Engine,
    at_ns: u64,
    steps: u64,
    swept_at_ns: u64,
}

/// A step that cannot be decided.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// A step is earlier than the one before it.
    #[error("`at_ns`: time runs backwards, {at_ns} after {last_ns}; sort the trace by time")]
    Backwards {
        /// The step's time.
        at_ns: u64,
        /// That of the step before.
        last_ns: u64,
    },
    /// A time beyond [`MAX_AT_NS`].
    #[error("`at_ns`: {0} is beyond {MAX_AT_NS} (the year 2262)")]
    TooLate(u64),
    /// The engine refused it.
    #[error("`{}`: {}", .0.field(true), .0)]
    Ask(#[from] AskError),
    /// A change of a limit that is not there.
    #[error("`set.name`: {0}")]
    NoLimit(String),
    /// A change that makes no limit.
    #[error("`set.{}`: {}", .0.field, .0.problem)]
    Set(SpecError),
}

impl Replay {
    /// An engine with no state and default settings.
    pub fn new(limits: LimitSet) -> Self {
        let node = NodeName::new("replay").expect("it is a node name");
        // One node that talks to nobody: any id and any secret give the same answers.
        let engine = Engine::new(Settings::default(), ReplicaId { node, generation: 1, nonce: 0 }, &Secret([0; 32]));
        engine.install(0, limits);
        Self { engine, at_ns: 0, steps: 0, swept_at_ns: 0 }
    }

    /// Decides one step. A step that is an error changes nothing.
    pub fn step<'a>(&mut self, at_ns: u64, op: Op, asks: &[Ask<'a>]) -> Result<Line<'a>, StepError> {
        let answer = self.decide(at_ns, |engine| engine.decide(at_ns, op, asks))?;
        Ok(Line::new(answer, asks.iter().map(|ask| ask.key)))
    }

    /// Decides one step of a request that says only what it is.
    pub fn step_matching(
        &mut self,
        at_ns: u64,
        op: Op,
        request: &Descriptors<'_>,
        cost: u32,
    ) -> Result<Line<'static>, StepError> {
        let answer = self.decide(at_ns, |engine| engine.decide_matching(at_ns, op, request, cost))?;
        Ok(Line::new(answer, std::iter::repeat("")))
    }

    /// Changes fields of a limit. What was used stays, as far as the two allow.
    pub fn set_limit(&mut self, at_ns: u64, set: Map<String, Value>) -> Result<(), StepError> {
        self.in_order(at_ns)?;
        let limits = self.engine.limits();
        let name = set.get("name").and_then(Value::as_str).ok_or(StepError::NoLimit("it names none".to_owned()))?;
        let old = limits.iter().find(|limit| limit.name.as_str() == name);
        let old = old.ok_or_else(|| StepError::NoLimit(format!("no limit is called {name:?}")))?;
        let new = LimitSpec::of(old).changed(old, set).map_err(StepError::Set)?;
        let others = limits.iter().filter(|limit| limit.name != new.name).map(|limit| Limit::clone(limit));
        let others: Vec<_> = others.collect();
        let limits = LimitSet::new(others.into_iter().chain([new])).expect("the others have other names");
        self.engine.install(at_ns, limits);
        self.at_ns = at_ns;
        Ok(())
    }

    fn decide(
        &mut self,
        at_ns: u64,
        decide: impl FnOnce(&Engine) -> Result<Answer, AskError>,
    ) -> Result<Answer, StepError> {
        self.in_order(at_ns)?;
        let answer = decide(&self.engine)?;
        self.at_ns = at_ns;
        self.steps += 1;
        if self.steps.is_multiple_of(SWEEP_STEPS) && at_ns - self.swept_at_ns >= SECOND {
            self.swept_at_ns = at_ns;
            // Nobody is told: but what waits to be told is not forgotten.
            self.engine.drain(at_ns);
            self.engine.sweep(at_ns);
        }
        Ok(answer)
    }

    fn in_order(&self, at_ns: u64) -> Result<(), StepError> {
        match at_ns {
            _ if at_ns < self.at_ns => Err(StepError::Backwards { at_ns, last_ns: self.at_ns }),
            _ if at_ns > MAX_AT_NS => Err(StepError::TooLate(at_ns)),
            _ => Ok(()),
        }
    }
}

/// What one step is answered; serialised it is a line of the output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Line<'a> {
    /// Whether the request was admitted.
    pub allowed: bool,
    /// One a part, in request order; of a request that says only what it is, one a limit that applies, by name.
    pub results: Vec<LineResult<'a>>,
}

/// One limit's own answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LineResult<'a> {
    /// The limit.
    #[serde(serialize_with = "name")]
    pub limit: LimitName,
    /// The key it was counted under.
    pub key: Cow<'a, str>,
    /// This limit's own decision.
    pub allowed: bool,
    /// Of a limit in shadow mode: whether it would have denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_deny: Option<bool>,
    /// Requests of cost 1 that would be admitted now.
    pub remaining: u64,
    /// `null`, nanoseconds or `"never"`.
    #[serde(rename = "retry_after_ns", serialize_with = "retry_after")]
    pub verdict: Verdict,
    /// When nothing counts any more.
    pub reset_after_ns: u64,
    /// How long an admitted caller waits for its turn.
    pub delay_ns: u64,
}

impl<'a> Line<'a> {
    /// `keys`: as the request names them.
    fn new(answer: Answer, keys: impl Iterator<Item = &'a str>) -> Self {
        let results = answer.results.into_iter().zip(keys).map(|(outcome, key)| LineResult {
            limit: outcome.limit.name.clone(),
            allowed: outcome.allowed(),
            would_deny: outcome.limit.is_shadow().then(|| !outcome.allowed()),
            remaining: outcome.remaining,
            verdict: outcome.verdict,
            reset_after_ns: outcome.reset_after_ns,
            delay_ns: outcome.delay_ns(),
            key: outcome.counted_as.map_or(Cow::Borrowed(key), Cow::Owned),
        });
        Self { allowed: answer.allowed, results: results.collect() }
    }
}

fn name<S: Serializer>(name: &LimitName, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name.as_str())
}

fn retry_after<S: Serializer>(verdict: &Verdict, to: S) -> Result<S::Ok, S::Error> {
    match verdict {
        Verdict::Admitted(_) => to.serialize_none(),
        Verdict::After(ns) => to.serialize_u64(*ns),
        Verdict::Never => to.serialize_str("never"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitSpec;

    fn limits() -> LimitSet {
        let spec = LimitSpec { name: "l".into(), limit: Some(1), window: Some("1s".into()), ..LimitSpec::default() };
        LimitSet::new([spec.check().unwrap()]).unwrap()
    }

    const ASK: Ask<'static> = Ask { limit: "l", key: "k", cost: 1 };

    #[test]
    fn time_never_runs_backwards() {
        let mut replay = Replay::new(limits());
        assert!(replay.step(10, Op::Check, &[ASK]).unwrap().allowed);
        let error = replay.step(9, Op::Check, &[ASK]).unwrap_err();
        assert_eq!(error, StepError::Backwards { at_ns: 9, last_ns: 10 });
        assert!(!replay.step(10, Op::Check, &[ASK]).unwrap().allowed);
        assert_eq!(replay.step(MAX_AT_NS + 1, Op::Check, &[ASK]), Err(StepError::TooLate(MAX_AT_NS + 1)));
        assert!(replay.step(MAX_AT_NS, Op::Check, &[ASK]).unwrap().allowed);
    }

    #[test]
    fn sweeping_changes_no_answer() {
        let mut replay = Replay::new(limits());
        for step in 0..2 * SWEEP_STEPS {
            // Two requests a window: the first is admitted, unless the window before weighs on it.
            let line = replay.step(step * SECOND, Op::Check, &[ASK]).unwrap();
            assert_eq!(line.allowed, step % 2 == 0, "{step}");
        }
    }
}
