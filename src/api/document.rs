//! The JSON of an answer.

use axum::http::StatusCode;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::body::Asked;
use super::explain::Explained;
use super::waits::Waits;
use crate::algorithms::Verdict;
use crate::engine::{Answer, Outcome, Reason};

pub(super) const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Bytes that hold one result with a short key.
const RESULT_BYTES: usize = 256;

/// An answer as JSON. `denial`: the status under which a denial goes out as a problem document; None where a denial is
/// an answer like any other.
pub(super) fn answer(
    answer: &Answer,
    asked: &Asked<'_>,
    waits: Waits,
    denial: Option<StatusCode>,
    explained: Option<&[Explained]>,
) -> Vec<u8> {
    let mut body = Vec::with_capacity(RESULT_BYTES * (1 + answer.results.len()));
    let document = Document { answer, asked, waits, denial, explained };
    serde_json::to_writer(&mut body, &document).expect("plain fields always serialise, and a Vec takes everything");
    body
}

struct Document<'a> {
    answer: &'a Answer,
    asked: &'a Asked<'a>,
    waits: Waits,
    denial: Option<StatusCode>,
    explained: Option<&'a [Explained]>,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let answer = self.answer;
        let mut map = to.serialize_map(None)?;
        if let Some(status) = self.denial {
            map.serialize_entry("type", QUOTA_EXCEEDED)?;
            map.serialize_entry("title", "Quota exceeded")?;
            map.serialize_entry("status", &status.as_u16())?;
        }
        map.serialize_entry("allowed", &answer.allowed)?;
        map.serialize_entry(
            "retry_after_ms",
            &answer.summary().filter(|_| !answer.allowed).and_then(|summary| retry_after_ms(summary, self.waits)),
        )?;
        map.serialize_entry("delay_ms", &self.waits.delay_ms(answer.delay_ns()))?;
        map.serialize_entry("results", &Results(self))?;
        if self.denial.is_some() {
            map.serialize_entry("violated-policies", &Violated(&answer.results))?;
        }
        map.end()
    }
}

struct Results<'a>(&'a Document<'a>);

impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.answer.results.iter().enumerate().map(|(index, outcome)| Told {
            limit: outcome.limit.name.as_str(),
            key: self.0.asked.key(index, outcome),
            allowed: outcome.allowed(),
            would_deny: outcome.limit.is_shadow().then(|| !outcome.allowed()),
            reason: outcome.reason.map(Reason::as_str),
            quota: outcome.limit.capacity(),
            remaining: outcome.remaining,
            retry_after_ms: retry_after_ms(outcome, self.0.waits),
            reset_after_ms: self.0.waits.ms(outcome.reset_after_ns),
            delay_ms: self.0.waits.delay_ms(outcome.delay_ns()),
            explain: self.0.explained.and_then(|all| all.get(index)),
        }))
    }
}

/// One limit's own answer.
#[derive(serde::Serialize)]
struct Told<'a> {
    limit: &'a str,
    key: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_deny: Option<bool>,
    reason: Option<&'static str>,
    quota: u64,
    remaining: u64,
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
    delay_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<&'a Explained>,
}

/// Null when admitted and when never; the reason tells the two apart.
fn retry_after_ms(outcome: &Outcome, waits: Waits) -> Option<u64> {
    match outcome.verdict {
        Verdict::After(ns) => Some(waits.ms(ns)),
        Verdict::Admitted(_) | Verdict::Never => None,
    }
}

/// The limits that denied, each once.
struct Violated<'a>(&'a [Outcome]);

impl Serialize for Violated<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let denied = |outcome: &&Outcome| outcome.denies();
        to.collect_seq(self.0.iter().enumerate().filter(|(_, outcome)| denied(outcome)).filter_map(|(at, outcome)| {
            let name = &outcome.limit.name;
            let named = self.0[..at].iter().filter(denied).any(|earlier| earlier.limit.name == *name);
            (!named).then_some(name.as_str())
        }))
    }
}
