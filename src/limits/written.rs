//! A limit as it would be written: for answers, and for the journal.

use super::{Algorithm, Limit, LimitSpec, OnFull};
use crate::time::{MS, SECOND};

impl LimitSpec {
    /// The definition that makes this limit.
    pub fn of(limit: &Limit) -> Self {
        let tokens = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let burst = limit.burst.unwrap_or(limit.limit).max(1);
        Self {
            name: limit.name.to_string(),
            algorithm: Some(limit.algorithm.as_str().to_owned()),
            limit: Some(tokens(limit.limit)),
            window: Some(duration(limit.window_ns)),
            // What it comes to, said also where it was left to its default.
            burst: (limit.algorithm == Algorithm::TokenBucket).then(|| tokens(burst)),
            consistency: Some("eventual".to_owned()),
            max_keys: limit.max_keys.map(tokens),
            on_full: limit.on_full.map(|on_full| match on_full {
                OnFull::Allow => "allow".to_owned(),
                OnFull::Deny => "deny".to_owned(),
            }),
        }
    }
}

fn duration(ns: u64) -> String {
    if ns.is_multiple_of(SECOND) { format!("{}s", ns / SECOND) } else { format!("{}ms", ns / MS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_makes_the_same_limit() {
        for (algorithm, burst) in [("fixed_window", None), ("sliding_window", None), ("token_bucket", Some(7))] {
            for window in ["1ms", "1500ms", "60s", "365d"] {
                let spec = LimitSpec {
                    name: "a/b".into(),
                    algorithm: Some(algorithm.into()),
                    limit: Some(i64::MAX / 1_000_000_000),
                    window: Some(window.into()),
                    burst,
                    max_keys: Some(3),
                    on_full: Some("deny".into()),
                    ..LimitSpec::default()
                };
                let limit = spec.check().unwrap();
                assert_eq!(LimitSpec::of(&limit).check().unwrap(), limit);
            }
        }
    }
}
