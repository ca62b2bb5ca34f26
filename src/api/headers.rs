//! The rate-limit headers of an answer: those of the IETF draft (draft-ietf-httpapi-ratelimit-headers) and the older set
//! that most clients read. The draft still moves: every name is in this file.

use std::cmp::Reverse;
use std::fmt::Write;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};

use super::waits::Waits;
use crate::algorithms::Verdict;
use crate::engine::{Answer, Outcome};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const OLD_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const OLD_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const OLD_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Parameters of an item: the quota and its window in seconds; what remains and the seconds until there is more.
const QUOTA: &str = "q";
const WINDOW: &str = "w";
const REMAINING: &str = "r";
const RESET: &str = "t";

/// The largest integer of a structured field (RFC 9651).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The headers here.
const MOST_HEADERS: usize = 6;
/// Headers of most answers: those here, `Content-Type` and `Content-Length`.
const USUAL_HEADERS: usize = 8;

/// A text that holds most answers' values without growing.
const USUAL_BYTES: usize = 128;

/// Adds what `answer` says. Limits in shadow mode are not told of: nobody is to slow down for them.
pub(super) fn add(headers: &mut HeaderMap, answer: &Answer, waits: Waits) {
    let Some(summary) = answer.summary() else { return };
    headers.reserve(USUAL_HEADERS);
    let mut values = Values::default();
    list(&mut values.text, &answer.results, |list, outcome, _| policy(list, outcome));
    values.end(POLICY);
    list(&mut values.text, &answer.results, |list, _, worst| limit(list, worst, waits));
    values.end(LIMIT);

    values.number(OLD_LIMIT, integer(summary.limit.capacity()));
    values.number(OLD_REMAINING, integer(summary.remaining));
    values.number(OLD_RESET, integer(waits.seconds(summary.reset_after_ns)));
    if let (false, Verdict::After(ns)) = (answer.allowed, summary.verdict) {
        values.number(RETRY_AFTER, waits.seconds(ns));
    }
    values.insert_into(headers);
}

/// The values of all headers in one text: they share its allocation, where one each cost a check as much as its decision.
struct Values {
    text: String,
    /// Each header and where its value ends; it begins where the one before ends.
    ends: [Option<(HeaderName, usize)>; MOST_HEADERS],
}

impl Default for Values {
    fn default() -> Self {
        Self { text: String::with_capacity(USUAL_BYTES), ends: Default::default() }
    }
}

impl Values {
    /// What was written since the last end is the value of `name`.
    fn end(&mut self, name: HeaderName) {
        let end = self.text.len();
        let free = self.ends.iter_mut().find(|end| end.is_none()).expect("there are no more headers than places");
        *free = Some((name, end));
    }

    fn number(&mut self, name: HeaderName, number: u64) {
        write!(self.text, "{number}").expect("a String takes everything");
        self.end(name);
    }

    fn insert_into(self, headers: &mut HeaderMap) {
        let (text, mut begin) = (Bytes::from(self.text), 0);
        for (name, end) in self.ends.into_iter().flatten() {
            let value = HeaderValue::from_maybe_shared(text.slice(begin..end));
            headers.insert(name, value.expect("limit names are printable ASCII"));
            begin = end;
        }
    }
}

/// Writes the items of a list: for each limit named, `item` of its first outcome and the one that speaks for it.
fn list(text: &mut String, results: &[Outcome], item: impl Fn(&mut String, &Outcome, &Outcome)) {
    let begin = text.len();
    for (at, outcome) in results.iter().enumerate() {
        if let Some(worst) = speaks_for_its_limit(results, at, outcome) {
            if text.len() > begin {
                text.push_str(", ");
            }
            item(text, outcome, worst);
        }
    }
}

/// A list names a limit once, at its first place in the request, whatever the number of its keys; it then tells the
/// result that leaves least. None at any later place.
fn speaks_for_its_limit<'a>(results: &'a [Outcome], at: usize, outcome: &'a Outcome) -> Option<&'a Outcome> {
    let same = |other: &&Outcome| other.limit.name == outcome.limit.name;
    if outcome.limit.is_shadow() || results[..at].iter().any(|earlier| same(&earlier)) {
        return None;
    }
    let later = results[at + 1..].iter().filter(same);
    Some(later.fold(outcome, |worst, other| if tightness(other) > tightness(worst) { other } else { worst }))
}

/// Denials above admissions, the longest wait highest; then the fewest remaining.
fn tightness(outcome: &Outcome) -> (bool, Option<u64>, Reverse<u64>) {
    let wait = match outcome.verdict {
        Verdict::Admitted(_) => None,
        Verdict::After(ns) => Some(ns),
        Verdict::Never => Some(u64::MAX),
    };
    (!outcome.allowed(), wait, Reverse(outcome.remaining))
}

fn policy(list: &mut String, outcome: &Outcome) {
    let policy = outcome.limit.policy();
    item(list, outcome.limit.name.as_str());
    parameter(list, QUOTA, policy.quota);
    if let Some(seconds) = policy.window_s {
        parameter(list, WINDOW, seconds);
    }
}

fn limit(list: &mut String, outcome: &Outcome, waits: Waits) {
    item(list, outcome.limit.name.as_str());
    parameter(list, REMAINING, outcome.remaining);
    let wait_ns = match outcome.verdict {
        Verdict::After(ns) => ns,
        Verdict::Never => 0,
        Verdict::Admitted(_) => outcome.next_after_ns,
    };
    if wait_ns > 0 {
        parameter(list, RESET, waits.seconds(wait_ns));
    }
}

/// An item of a list: a string, quoted and escaped.
fn item(list: &mut String, name: &str) {
    list.push('"');
    for c in name.chars() {
        if matches!(c, '"' | '\\') {
            list.push('\\');
        }
        list.push(c);
    }
    list.push('"');
}

fn parameter(list: &mut String, name: &str, number: u64) {
    write!(list, ";{name}={}", integer(number)).expect("a String takes everything");
}

fn integer(number: u64) -> u64 {
    number.min(MAX_INTEGER)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::Reason;
    use crate::limits::{Limit, LimitSpec};
    use crate::time::{MS, SECOND};

    fn a_limit(name: &str, algorithm: &str, limit: i64, window: &str, burst: Option<i64>) -> Arc<Limit> {
        let (algorithm, window) = (Some(algorithm.to_owned()), Some(window.to_owned()));
        let spec =
            LimitSpec { name: name.into(), algorithm, limit: Some(limit), window, burst, ..LimitSpec::default() };
        Arc::new(spec.check().unwrap())
    }

    fn outcome(limit: &Arc<Limit>, remaining: u64, verdict: Verdict, next_after_ns: u64) -> Outcome {
        Outcome {
            counted_as: None,
            limit: limit.clone(),
            verdict,
            reason: (verdict != Verdict::Admitted(0)).then_some(Reason::Quota),
            used: limit.capacity().saturating_sub(remaining),
            remaining,
            reset_after_ns: next_after_ns + 500 * MS,
            next_after_ns,
        }
    }

    fn headers(results: Vec<Outcome>, summary: usize) -> Vec<String> {
        let allowed = results.iter().all(|r| r.allowed());
        let mut headers = HeaderMap::new();
        add(&mut headers, &Answer { allowed, summary: Some(summary), results, urgent: false }, Waits::new(0));
        let told = [POLICY, LIMIT, OLD_LIMIT, OLD_REMAINING, OLD_RESET, RETRY_AFTER].into_iter();
        told.map(|name| headers.get(name).map_or("-", |v| v.to_str().unwrap()).to_owned()).collect()
    }

    #[test]
    fn one_admitted() {
        let limit = a_limit("per-user", "sliding_window", 100, "60s", None);
        let told = headers(vec![outcome(&limit, 37, Verdict::Admitted(0), 20 * SECOND + 1)], 0);
        assert_eq!(told, ["\"per-user\";q=100;w=60", "\"per-user\";r=37;t=21", "100", "37", "21", "-"]);
    }

    #[test]
    fn a_full_one_has_no_t_and_a_short_window_no_w() {
        let limit = a_limit("a", "fixed_window", 5, "999ms", None);
        let mut full = outcome(&limit, 5, Verdict::Admitted(0), 0);
        full.reset_after_ns = 0;
        assert_eq!(headers(vec![full], 0), ["\"a\";q=5", "\"a\";r=5", "5", "5", "0", "-"]);
    }

    #[test]
    fn a_denial_says_when_rounded_up() {
        let limit = a_limit("a", "token_bucket", 10, "1s", Some(25));
        let told = headers(vec![outcome(&limit, 0, Verdict::After(SECOND + 1), 5)], 0);
        // A bucket's w is the time of its burst: 25 in 2.5 s, rounded up.
        assert_eq!(told, ["\"a\";q=25;w=3", "\"a\";r=0;t=2", "25", "0", "1", "2"]);
    }

    #[test]
    fn never_has_no_retry_after_and_no_t() {
        let limit = a_limit("a", "fixed_window", 0, "60s", None);
        assert_eq!(headers(vec![outcome(&limit, 0, Verdict::Never, 0)], 0)[..2], ["\"a\";q=0", "\"a\";r=0"]);
        assert_eq!(headers(vec![outcome(&limit, 0, Verdict::Never, 0)], 0)[5], "-");
    }

    #[test]
    fn integers_are_cut() {
        let limit = a_limit("a", "fixed_window", i64::MAX, "60s", None);
        let told = headers(vec![outcome(&limit, i64::MAX as u64, Verdict::Admitted(0), 0)], 0);
        assert_eq!(told[0], "\"a\";q=999999999999999;w=60");
        assert_eq!(told[1], "\"a\";r=999999999999999");
        assert_eq!(told[2..4], ["999999999999999", "999999999999999"]);
    }

    #[test]
    fn several_are_one_list_that_names_each_limit_once() {
        let (a, b) = (a_limit("a", "fixed_window", 5, "1s", None), a_limit("b", "fixed_window", 9, "2s", None));
        let results = vec![
            outcome(&a, 4, Verdict::Admitted(0), SECOND),
            outcome(&b, 8, Verdict::Admitted(0), SECOND),
            outcome(&a, 0, Verdict::After(2 * SECOND), SECOND),
        ];
        let told = headers(results, 2);
        assert_eq!(told[0], "\"a\";q=5;w=1, \"b\";q=9;w=2");
        assert_eq!(told[1], "\"a\";r=0;t=2, \"b\";r=8;t=1");
        assert_eq!(told[2..], ["5", "0", "2", "2"]);
    }

    #[test]
    fn names_are_quoted_and_escaped() {
        let mut list = String::new();
        item(&mut list, r#"a"b\c"#);
        assert_eq!(list, r#""a\"b\\c""#);
    }
}
