//! Traces as JSON lines: one step a line in, one answer a line out.

use std::io::{self, BufRead, Read, Write};

use serde::Deserialize;
use serde::de::Deserializer;

use super::{Replay, StepError};
use crate::engine::Op;
use crate::engine::spec::{self, AskSpec, Object, Whole};
use crate::limits::LimitSet;

/// The longest line of a trace, bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Why a replay ended before its trace.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read on.
    #[error("line {line}: cannot read: {source}")]
    Read {
        /// The line, from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// The answers cannot be written.
    #[error("cannot write the answers: {0}")]
    Write(#[from] io::Error),
    /// A line that is too long to be a step.
    #[error("line {line}: longer than {MAX_LINE_BYTES} bytes")]
    TooLong {
        /// The line, from 1.
        line: u64,
    },
    /// A line that is no step. The message names the field.
    #[error("line {line}: {problem}")]
    NoStep {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// A step that cannot be decided. The message names the field.
    #[error("line {line}: {source}")]
    Step {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        source: StepError,
    },
}

/// Decides every step of `trace` and writes the answers to `out`. What was decided before an error is written.
pub fn run(limits: LimitSet, mut trace: impl BufRead, mut out: impl Write) -> Result<(), ReplayError> {
    let mut replay = Replay::new(limits);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let most = MAX_LINE_BYTES as u64 + 1;
        let read = trace.by_ref().take(most).read_until(b'\n', &mut text);
        if read.map_err(|source| ReplayError::Read { line, source })? == 0 {
            break;
        }
        if text.len() > MAX_LINE_BYTES {
            out.flush()?;
            return Err(ReplayError::TooLong { line });
        }
        if !text.trim_ascii().is_empty() {
            decide(&mut replay, line, &text, &mut out)?;
        }
    }
    Ok(out.flush()?)
}

fn decide(replay: &mut Replay, line: u64, text: &[u8], out: &mut impl Write) -> Result<(), ReplayError> {
    let answer = parse(text).map_err(|problem| ReplayError::NoStep { line, problem }).and_then(|step| {
        let asks: Vec<_> = step.checks.iter().map(AskSpec::ask).collect();
        let answer = replay.step(step.at_ns, step.op, &asks).map_err(|source| ReplayError::Step { line, source })?;
        Ok(serde_json::to_vec(&answer).map_err(io::Error::from)?)
    });
    match answer {
        Ok(mut answer) => {
            answer.push(b'\n');
            Ok(out.write_all(&answer)?)
        }
        Err(error) => {
            out.flush()?;
            Err(error)
        }
    }
}

/// A step as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step<'a> {
    #[serde(deserialize_with = "at_ns")]
    at_ns: u64,
    #[serde(deserialize_with = "spec::op")]
    op: Op,
    #[serde(borrow, deserialize_with = "spec::checks")]
    checks: Vec<AskSpec<'a>>,
}

fn parse(text: &[u8]) -> Result<Step<'_>, String> {
    // The position is given as a column alone: the line that serde counts is always the first.
    let step = serde_json::from_slice::<Object<Step<'_>>>(text);
    step.map(|object| object.0).map_err(|e| e.to_string().replace(" at line 1 column ", " at column "))
}

fn at_ns<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_u64(Whole { field: "at_ns", most: super::MAX_AT_NS })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitSpec;

    fn replay(trace: &str) -> (String, Option<String>) {
        let spec = LimitSpec { name: "l".into(), limit: Some(1), window: Some("1s".into()), ..LimitSpec::default() };
        let mut out = Vec::new();
        let end = run(LimitSet::new([spec.check().unwrap()]).unwrap(), trace.as_bytes(), &mut out);
        (String::from_utf8(out).unwrap(), end.err().map(|e| e.to_string()))
    }

    #[test]
    fn lines_in_lines_out() {
        let trace = concat!(
            r#"{"at_ns":9007199254740993,"op":"check","checks":[{"limit":"l","key":"k","cost":1}]}"#,
            "\n\n",
            r#"{"op":"check","checks":[{"limit":"l","key":"k","cost":2}],"at_ns":9007199254740993}"#,
        );
        let (out, end) = replay(trace);
        assert_eq!(end, None);
        let after = 1_000_000_000 - 9_007_199_254_740_993u64 % 1_000_000_000 + 1;
        let first = format!(
            r#"{{"allowed":true,"results":[{{"limit":"l","key":"k","allowed":true,"remaining":0,"retry_after_ns":null,"reset_after_ns":{after},"delay_ns":0}}]}}"#
        );
        let second = first.replace("true", "false").replace("null", "\"never\"");
        assert_eq!(out, format!("{first}\n{second}\n"));
    }

    #[test]
    fn errors_name_line_and_field_and_come_after_the_answers() {
        let good = r#"{"at_ns":5,"op":"check","checks":[{"limit":"l","key":"k","cost":1}]}"#;
        for (bad, says) in [
            (
                r#"{"at_ns":4,"op":"check","checks":[{"limit":"l","key":"k"}]}"#,
                "`at_ns`: time runs backwards, 4 after 5",
            ),
            (r#"{"at_ns":-1,"op":"check","checks":[]}"#, "`at_ns` to be a whole number"),
            (r#"{"at_ns":9223372036854775809,"op":"check","checks":[]}"#, "`at_ns` to be a whole number"),
            (r#"{"at_ns":5,"op":"take","checks":[]}"#, "`op`: \"take\" is none of"),
            (r#"{"at_ns":5,"op":"check"}"#, "missing field `checks`"),
            (r#"{"at_ns":5,"op":"check","checks":[]}"#, "`checks`: a request has 1 to 64"),
            (r#"{"at_ns":5,"op":"check","checks":[],"expect":{}}"#, "unknown field `expect`"),
            (
                r#"{"at_ns":5,"op":"check","checks":[{"limit":"m","key":"k"}]}"#,
                "`checks[0].limit`: no limit is called \"m\"",
            ),
            (r#"{"at_ns":5,"op":"check","checks":[{"limit":"l","key":""}]}"#, "`checks[0].key`: a key has 1 to"),
            (
                r#"{"at_ns":5,"op":"check","checks":[{"limit":"l","key":"k","cost":1.5}]}"#,
                "`checks[0]`: invalid type: floating point `1.5`, expected `cost`",
            ),
            ("nonsense", "at column"),
        ] {
            let (out, end) = replay(&format!("{good}\n{bad}\n{good}\n"));
            let end = end.unwrap();
            assert!(end.starts_with("line 2: ") && end.contains(says), "{bad}: {end}");
            assert_eq!(out.lines().count(), 1);
        }
        let (_, end) = replay(&"x".repeat(MAX_LINE_BYTES + 1));
        assert_eq!(end.unwrap(), format!("line 1: longer than {MAX_LINE_BYTES} bytes"));
    }
}
