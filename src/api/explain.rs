//! `explain=true`: what a decision was made from, for each limit that had a say in it.

use serde::Serialize;

use super::App;
use super::body::Asked;
use super::usage::Replica;
use crate::engine::{AskError, Outcome};
use crate::limits::LimitSpec;

/// What is known of one key, right after the decision.
#[derive(Serialize)]
pub(super) struct Explained {
    /// The definition in force for this key, in full.
    definition: LimitSpec,
    /// Tokens used, whole.
    used: u64,
    /// By replica: what each counted, and how old the newest complete knowledge of it is.
    replicas: Vec<Replica>,
}

impl App {
    /// Explains every result of an answer.
    pub(super) fn explain(
        &self,
        now_ns: u64,
        asked: &Asked<'_>,
        results: &[Outcome],
    ) -> Result<Vec<Explained>, AskError> {
        let explain = |(index, outcome): (usize, &Outcome)| {
            let (limit, key) = (outcome.limit.name.as_str(), asked.key(index, outcome));
            let usage = self.service.engine.usage(now_ns, limit, key)?;
            let definition = LimitSpec::of(&usage.limit);
            Ok(Explained { definition, used: usage.used, replicas: self.replicas(&usage) })
        };
        results.iter().enumerate().map(explain).collect()
    }
}
