//! Traces as JSON lines: one step a line in, one answer a line out.

use std::borrow::Cow;
use std::io::{self, BufRead, Read, Write};

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::{Map, Value};

use super::{Line, Replay, StepError, Summary};
use crate::engine::spec::{self, AskSpec, Object, Whole};
use crate::limits::{Descriptors, LimitSet};

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
pub fn run(limits: LimitSet, trace: impl BufRead, mut out: impl Write) -> Result<(), ReplayError> {
    let decided = decide_all(limits, trace, |answer| {
        serde_json::to_writer(&mut out, &answer).map_err(io::Error::from)?;
        Ok(out.write_all(b"\n")?)
    });
    if !matches!(decided, Err(ReplayError::Write(_))) {
        out.flush()?;
    }
    decided
}

/// Decides every step of `trace` and counts the answers.
pub fn summarise(limits: LimitSet, trace: impl BufRead) -> Result<Summary, ReplayError> {
    let mut summary = Summary::default();
    decide_all(limits, trace, |answer| {
        summary.add(&answer);
        Ok(())
    })?;
    Ok(summary)
}

fn decide_all(
    limits: LimitSet,
    mut trace: impl BufRead,
    mut each: impl FnMut(Line<'_>) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
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
            return Err(ReplayError::TooLong { line });
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let step = parse(&text).map_err(|problem| ReplayError::NoStep { line, problem })?;
        if let Some(answer) = step.decide(&mut replay).map_err(|error| error.at(line))? {
            each(answer)?;
        }
    }
    Ok(())
}

/// A step as written: one of three forms.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step<'a> {
    #[serde(deserialize_with = "at_ns")]
    at_ns: u64,
    #[serde(borrow, deserialize_with = "spec::text_op")]
    op: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "checks")]
    checks: Option<Vec<AskSpec<'a>>>,
    #[serde(borrow, default, deserialize_with = "descriptors")]
    descriptors: Option<Descriptors<'a>>,
    #[serde(default, deserialize_with = "cost")]
    cost: Option<u32>,
    #[serde(default)]
    set: Option<Map<String, Value>>,
}

/// Why a step has no answer.
enum Refused {
    /// It is none of the forms.
    Form(String),
    Step(StepError),
}

impl Refused {
    fn at(self, line: u64) -> ReplayError {
        match self {
            Self::Form(problem) => ReplayError::NoStep { line, problem },
            Self::Step(source) => ReplayError::Step { line, source },
        }
    }
}

impl Step<'_> {
    /// None: the step asks nothing.
    fn decide(&self, replay: &mut Replay) -> Result<Option<Line<'_>>, Refused> {
        let form = |problem: &str| Err(Refused::Form(problem.to_owned()));
        if self.op == "set_limit" {
            return match (&self.set, &self.checks, &self.descriptors) {
                (Some(set), None, None) => {
                    replay.set_limit(self.at_ns, set.clone()).map(|()| None).map_err(Refused::Step)
                }
                _ => form("`set_limit` has `set`, the fields of a limit, and neither `checks` nor `descriptors`"),
            };
        }
        let op = spec::named_op(&self.op).ok_or_else(|| {
            Refused::Form(format!("`op`: {:?} is none of check, peek, debit, refund, reset and set_limit", self.op))
        })?;
        let answer = match self {
            Self { checks: Some(checks), descriptors: None, cost: None, set: None, .. } => {
                let asks: Vec<_> = checks.iter().map(AskSpec::ask).collect();
                replay.step(self.at_ns, op, &asks)
            }
            Self { checks: None, descriptors: Some(request), cost, set: None, .. } => {
                replay.step_matching(self.at_ns, op, request, cost.unwrap_or(1))
            }
            Self { set: Some(_), .. } => return form("`set` is for `set_limit`"),
            Self { checks: Some(_), .. } => {
                return form("`checks` and `descriptors` or `cost`: a step has one of them");
            }
            Self { checks: None, .. } => return form("neither `checks` nor `descriptors`"),
        };
        answer.map(Some).map_err(Refused::Step)
    }
}

fn parse(text: &[u8]) -> Result<Step<'_>, String> {
    // The position is given as a column alone: the line that serde counts is always the first.
    let step = serde_json::from_slice::<Object<Step<'_>>>(text);
    step.map(|object| object.0).map_err(|e| e.to_string().replace(" at line 1 column ", " at column "))
}

fn checks<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<AskSpec<'de>>>, D::Error> {
    spec::checks(from).map(Some)
}

fn descriptors<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Descriptors<'de>>, D::Error> {
    spec::descriptors(from).map(Some)
}

fn cost<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    spec::cost(from).map(Some)
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
    fn requests_say_what_they_are_and_limits_change() {
        let spec = LimitSpec {
            name: "l".into(),
            algorithm: Some("fixed_window".into()),
            limit: Some(1),
            window: Some("1s".into()),
            key: Some("{user}".into()),
            ..LimitSpec::default()
        };
        let trace = concat!(
            r#"{"at_ns":5,"op":"check","descriptors":{"user":"u"}}"#,
            "\n",
            r#"{"at_ns":5,"op":"check","descriptors":{"user":"u"},"cost":2}"#,
            "\n",
            r#"{"at_ns":5,"op":"check","descriptors":{"ip":"::1"}}"#,
            "\n",
            r#"{"at_ns":6,"op":"set_limit","set":{"name":"l","limit":4}}"#,
            "\n",
            r#"{"at_ns":6,"op":"check","descriptors":{"user":"u"},"cost":2}"#,
        );
        let mut out = Vec::new();
        run(LimitSet::new([spec.check().unwrap()]).unwrap(), trace.as_bytes(), &mut out).unwrap();
        let lines: Vec<Value> = out.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect();
        let told = |line: &Value| (line["allowed"].clone(), line["results"][0]["key"].clone());
        let want = [(true.into(), "u".into()), (false.into(), "u".into()), (true.into(), Value::Null)];
        assert_eq!(lines[..3].iter().map(told).collect::<Vec<_>>(), want);
        assert_eq!((&lines[3]["results"][0]["remaining"], lines.len()), (&1.into(), 4));
        let summary = summarise(LimitSet::new([spec.check().unwrap()]).unwrap(), trace.as_bytes()).unwrap();
        assert_eq!(summary.requests(), 4);
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
            (r#"{"at_ns":5,"op":"check"}"#, "neither `checks` nor `descriptors`"),
            (r#"{"at_ns":5,"op":"check","checks":[],"cost":1}"#, "a step has one of them"),
            (r#"{"at_ns":5,"op":"check","descriptors":{},"set":{}}"#, "`set` is for `set_limit`"),
            (r#"{"at_ns":5,"op":"check","descriptors":{"ip":7}}"#, "`descriptors.ip`: invalid type"),
            (r#"{"at_ns":5,"op":"set_limit","set":{"name":"m"}}"#, "`set.name`: no limit is called \"m\""),
            (r#"{"at_ns":5,"op":"set_limit","set":{"name":"l","limit":-1}}"#, "`set.limit`: -1 is too small"),
            (r#"{"at_ns":5,"op":"set_limit","set":{"name":"l","limits":1}}"#, "`set.limits`: unknown field"),
            (r#"{"at_ns":5,"op":"set_limit"}"#, "`set_limit` has `set`"),
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
