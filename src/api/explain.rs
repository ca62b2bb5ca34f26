//! `explain=true`: what a decision was made from, for each limit that had a say in it.

use serde::Serialize;

use super::App;
use super::usage::Replica;
use crate::engine::AskError;
use crate::engine::spec::AskSpec;
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
    /// Explains every part of a request.
    pub(super) fn explain(&self, now_ns: u64, asked: &[AskSpec<'_>]) -> Result<Vec<Explained>, AskError> {
        let explain = |spec: &AskSpec<'_>| {
            let usage = self.service.engine.usage(now_ns, &spec.limit, &spec.key)?;
            let definition = LimitSpec::of(&usage.limit);
            Ok(Explained { definition, used: usage.used, replicas: self.replicas(&usage) })
        };
        asked.iter().map(explain).collect()
    }
}
