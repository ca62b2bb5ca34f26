//! Who would have been denied: a trace counted up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::Line;
use crate::limits::LimitName;

/// Denied keys of one limit that are told apart at the least; up to twice as many are held.
pub const MAX_DENIED_KEYS: usize = 100_000;
/// Keys that are named of each limit.
const TOLD_KEYS: usize = 10;
/// Characters of a key that are shown.
const TOLD_CHARACTERS: usize = 60;

/// What a trace came to.
#[derive(Debug, Default)]
pub struct Summary {
    requests: u64,
    denied: u64,
    unmatched: u64,
    limits: BTreeMap<LimitName, Tally>,
}

/// What came of one limit.
#[derive(Debug, Default)]
struct Tally {
    asked: u64,
    denied: u64,
    would_deny: u64,
    keys: Denials,
}

/// Denials by key, in bounded memory: beyond [`MAX_DENIED_KEYS`] those with the fewest are let go now and then (as in
/// Manku and Motwani, "Approximate Frequency Counts over Data Streams", 2002).
#[derive(Debug, Default)]
struct Denials {
    by_key: HashMap<String, u64>,
    /// No key has more denials than are counted for it and these.
    let_go: u64,
}

impl Summary {
    /// Counts one answer.
    pub fn add(&mut self, line: &Line<'_>) {
        self.requests += 1;
        self.denied += u64::from(!line.allowed);
        self.unmatched += u64::from(line.results.is_empty());
        for result in &line.results {
            if !self.limits.contains_key(&result.limit) {
                self.limits.insert(result.limit.clone(), Tally::default());
            }
            let Some(tally) = self.limits.get_mut(&result.limit) else { continue };
            tally.asked += 1;
            if !result.allowed {
                match result.would_deny {
                    Some(_) => tally.would_deny += 1,
                    None => tally.denied += 1,
                }
                tally.keys.add(&result.key);
            }
        }
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }
}

impl Denials {
    fn add(&mut self, key: &str) {
        match self.by_key.get_mut(key) {
            Some(count) => *count += 1,
            None => {
                self.by_key.insert(key.to_owned(), 1);
            }
        }
        if self.by_key.len() > 2 * MAX_DENIED_KEYS {
            self.let_fewest_go();
        }
    }

    fn let_fewest_go(&mut self) {
        let mut counts: Vec<u64> = self.by_key.values().copied().collect();
        let at = counts.len() - MAX_DENIED_KEYS;
        let (_, most, _) = counts.select_nth_unstable(at);
        let most = *most;
        self.by_key.retain(|_, count| *count > most);
        self.let_go += most;
    }

    /// Those with the most denials, by key where they are equal.
    fn most(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self.by_key.iter().map(|(key, count)| (key.as_str(), *count)).collect();
        all.sort_unstable_by_key(|(key, count)| (Reverse(*count), *key));
        all.truncate(TOLD_KEYS);
        all
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, denied, unmatched, .. } = self;
        writeln!(f, "requests   {requests:>12}")?;
        writeln!(f, "allowed    {:>12}  {}", requests - denied, percent(requests - denied, *requests))?;
        writeln!(f, "denied     {denied:>12}  {}", percent(*denied, *requests))?;
        if *unmatched > 0 {
            writeln!(f, "no limit   {unmatched:>12}  {}", percent(*unmatched, *requests))?;
        }
        let width = self.limits.keys().map(|name| name.as_str().len()).max().unwrap_or(0).max("limit".len());
        let head = ["asked", "denied", "would deny", "keys denied"];
        writeln!(f, "\n{:width$}  {:>12} {:>12} {:>8} {:>12} {:>12}", "limit", head[0], head[1], "", head[2], head[3])?;
        for (name, tally) in &self.limits {
            let Tally { asked, denied, would_deny, keys } = tally;
            let share = percent(denied + would_deny, *asked);
            let more = if keys.let_go > 0 { "+" } else { "" };
            let keys = format!("{}{more}", keys.by_key.len());
            writeln!(f, "{:width$}  {asked:>12} {denied:>12} {share:>8} {would_deny:>12} {keys:>12}", name.as_str())?;
        }
        for (name, tally) in self.limits.iter().filter(|(_, tally)| !tally.keys.by_key.is_empty()) {
            let up_to = match tally.keys.let_go {
                0 => String::new(),
                more => format!(" (each at most {more} more)"),
            };
            writeln!(f, "\n{name}: denied most{up_to}")?;
            for (key, count) in tally.keys.most() {
                writeln!(f, "{count:>12}  {}", shown(key))?;
            }
        }
        Ok(())
    }
}

/// A key as it can be shown: on one line, without what a terminal would act on.
fn shown(key: &str) -> String {
    let mut shown: String = key.chars().take(TOLD_CHARACTERS).flat_map(char::escape_debug).collect();
    if key.chars().nth(TOLD_CHARACTERS).is_some() {
        shown.push_str("...");
    }
    shown
}

fn percent(part: u64, all: u64) -> String {
    match (u128::from(part) * 1_000).checked_div(all.into()) {
        Some(tenths) => format!("{}.{} %", tenths / 10, tenths % 10),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::LineResult;
    use super::*;
    use crate::algorithms::Verdict;

    fn line(limit: &str, key: &str, denied: bool, shadow: bool) -> Line<'static> {
        let result = LineResult {
            limit: LimitName::new(limit).unwrap(),
            key: Cow::Owned(key.to_owned()),
            allowed: !denied,
            would_deny: shadow.then_some(denied),
            remaining: 0,
            verdict: Verdict::Admitted(0),
            reset_after_ns: 0,
            delay_ns: 0,
        };
        Line { allowed: shadow || !denied, results: vec![result] }
    }

    #[test]
    fn a_table_says_who_was_denied() {
        let mut summary = Summary::default();
        for (key, denied) in [("a", true), ("b\u{1b}", true), ("a", true), ("c", false)] {
            summary.add(&line("l", key, denied, false));
        }
        summary.add(&line("watched", "a", true, true));
        summary.add(&Line { allowed: true, results: Vec::new() });
        let told = summary.to_string();
        let lines: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["requests", "6"]);
        assert_eq!(lines[2], ["denied", "3", "50.0", "%"]);
        assert_eq!(lines[3], ["no", "limit", "1", "16.6", "%"]);
        assert_eq!(lines[6], ["l", "4", "3", "75.0", "%", "0", "2"]);
        assert_eq!(lines[7], ["watched", "1", "0", "100.0", "%", "1", "1"]);
        assert_eq!(lines[10], ["2", "a"]);
        assert_eq!(lines[11], ["1", "b\\u{1b}"]);
    }

    #[test]
    fn memory_is_bounded_and_the_worst_are_still_named() {
        let mut denials = Denials::default();
        for number in 0..5 * MAX_DENIED_KEYS {
            denials.add(&number.to_string());
            denials.add(["often", "seldom"][usize::from(number % 10 == 0)]);
        }
        assert!(denials.by_key.len() <= 2 * MAX_DENIED_KEYS && denials.let_go > 0);
        let most = denials.most();
        assert_eq!((most[0].0, most[1].0), ("often", "seldom"));
        let all = 5 * MAX_DENIED_KEYS as u64;
        assert!(most[0].1 <= all * 9 / 10 && most[0].1 + denials.let_go >= all * 9 / 10, "{most:?}");
    }
}
