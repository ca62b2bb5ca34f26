//! A limit as written, and what may be wrong with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Algorithm, Enforce, Limit, LimitName, MAX_LIMIT, OnFull, OverrideSpec, Overrides};
use crate::algorithms::calendar::{Calendar, Period, Zone};
use crate::time::{MS, SECOND};

/// A limit's definition as it stands in a configuration or a request. Every field may be absent, and every value is as
/// written: [`LimitSpec::check`] finds what is wrong and names the field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSpec {
    /// `[A-Za-z0-9._:/-]{1,64}`.
    pub name: String,
    /// `sliding_window` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Tokens per window, 0 to 2^63 - 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// A duration: a whole number and one of `ms s m h d`; with `align = "calendar"` one of `day week month year`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// `sliding_window`: how many sub-windows; two weighted counters when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<i64>,
    /// `fixed_window`: `epoch` or `calendar`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub align: Option<String>,
    /// With `align = "calendar"`: whose midnight, a name of the IANA database; `UTC` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// A bucket's capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<i64>,
    /// `leaky_bucket`: a duration, the longest that a request may be made to wait for its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `deny` or `shadow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforce: Option<String>,
    /// Only `eventual` in this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<String>,
    /// The most keys of this limit that a node itself spends on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<i64>,
    /// `allow` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_full: Option<String>,
    /// A template of the key of requests that describe themselves, e.g. `{user}:{route}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `text` or `ip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_type: Option<String>,
    /// `key_type = "ip"`: leading bits of an IPv4 address that are counted together, 1 to 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_prefix: Option<i64>,
    /// `key_type = "ip"`: leading bits of an IPv6 address that are counted together, 1 to 128.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_prefix: Option<i64>,
    /// By field, what must hold of a request that describes itself; [`super::when`] has the forms.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, Value>,
    /// Keys that have their own allowance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideSpec>,
}

/// What is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// The field of the definition, e.g. `window` or `overrides[3].limit`.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// Fields that a later version will know: refused by name, so that nobody believes them to be in force.
pub const LATER_FIELDS: [&str; 1] = ["on_partition"];

/// The most sub-windows of a `sliding_window`: a key holds a cell for each and for each replica, and a check reads all.
pub const MAX_SLOTS: i64 = 1_000;

impl LimitSpec {
    /// The limit that this defines.
    pub fn check(&self) -> Result<Limit, SpecError> {
        let name = self.checked_name()?;
        let (algorithm, window_ns) = self.checked_algorithm()?;
        let mut limit = Limit {
            name,
            algorithm,
            limit: whole("limit", self.limit, 0)?.ok_or_else(|| missing("limit", "tokens per window, e.g. 100"))?,
            window_ns,
            burst: whole("burst", self.burst, 1)?,
            enforce: self.enforce.as_deref().map(parse_enforce).transpose()?.unwrap_or_default(),
            max_keys: whole("max_keys", self.max_keys, 1)?,
            on_full: self.on_full.as_deref().map(parse_on_full).transpose()?,
            keying: self.checked_keying()?,
            overrides: Overrides::default(),
        };
        if let Some(word) = self.consistency.as_deref().filter(|word| *word != "eventual") {
            return Err(match word {
                "auto" | "tight" | "strict" => error(
                    "consistency",
                    format!("{word:?} is not in this version; leave the field out or write \"eventual\""),
                ),
                _ => error("consistency", format!("{word:?} is no consistency; this version knows \"eventual\"")),
            });
        }
        if limit.burst.is_some() && !limit.algorithm.is_bucket() {
            let only = "only a token_bucket or leaky_bucket has one";
            return Err(error("burst", format!("{only}, not a {}", limit.algorithm.as_str())));
        }
        fits_integers(&limit)?;
        limit.overrides = self.checked_overrides(&limit)?;
        Ok(limit)
    }

    fn checked_name(&self) -> Result<LimitName, SpecError> {
        if self.name.is_empty() {
            return Err(missing("name", "1 to 64 of A-Z a-z 0-9 . _ : / -"));
        }
        LimitName::new(&self.name)
            .ok_or_else(|| error("name", format!("{:?} is no limit name: 1 to 64 of A-Z a-z 0-9 . _ : / -", self.name)))
    }

    /// How it counts, and W.
    fn checked_algorithm(&self) -> Result<(Algorithm, u64), SpecError> {
        let word = self.algorithm.as_deref().unwrap_or("sliding_window");
        if word == "concurrency" {
            return Err(error("algorithm", format!("{word:?} is not in this version; {KNOWN_ALGORITHMS}")));
        }
        if !Algorithm::NAMES.contains(&word) {
            return Err(error("algorithm", format!("{word:?} is no algorithm; {KNOWN_ALGORITHMS}")));
        }
        let only = |field, written: bool, of: &str| match written && word != of {
            true => Err(error(field, format!("only a {of} has it, not a {word}"))),
            false => Ok(()),
        };
        only("slots", self.slots.is_some(), "sliding_window")?;
        only("queue", self.queue.is_some(), "leaky_bucket")?;
        only("align", self.align.is_some(), "fixed_window")?;
        if let Some(calendar) = self.checked_calendar()? {
            return Ok((Algorithm::CalendarWindow(calendar), calendar.period.nominal_ns()));
        }
        let window_ns = self.checked_window()?;
        let algorithm = match word {
            "fixed_window" => Algorithm::FixedWindow,
            "sliding_window" => {
                self.checked_slots(window_ns)?.map_or(Algorithm::SlidingWindow, Algorithm::SlidingSlots)
            }
            "sliding_log" => Algorithm::SlidingLog,
            _ => match self.checked_queue()? {
                0 => Algorithm::TokenBucket,
                queue_ns => Algorithm::LeakyBucket(queue_ns),
            },
        };
        Ok((algorithm, window_ns))
    }

    fn checked_calendar(&self) -> Result<Option<Calendar>, SpecError> {
        match self.align.as_deref() {
            None | Some("epoch") if self.time_zone.is_some() => {
                Err(error("time_zone", "only a window with `align = \"calendar\"` has one".to_owned()))
            }
            None | Some("epoch") => Ok(None),
            Some("calendar") => {
                let window = self.window.as_deref().ok_or_else(|| missing("window", PERIODS))?;
                let period = Period::ALL.into_iter().find(|period| period.as_str() == window);
                let no_period = || error("window", format!("{window:?} is no page of a calendar: {PERIODS}"));
                let zone = self.time_zone.as_deref().unwrap_or("UTC");
                let no_zone = || {
                    let like = "a name of the IANA database, e.g. \"Europe/Berlin\"";
                    error("time_zone", format!("no time zone is called {zone:?}: {like}"))
                };
                let period = period.ok_or_else(no_period)?;
                Ok(Some(Calendar { period, zone: Zone::new(zone).ok_or_else(no_zone)? }))
            }
            Some(other) => Err(error("align", format!("{other:?} is neither \"epoch\" nor \"calendar\""))),
        }
    }

    fn checked_window(&self) -> Result<u64, SpecError> {
        let window = self.window.as_deref().ok_or_else(|| missing("window", "a duration, e.g. \"60s\""))?;
        match parse_duration(window) {
            Some(0) => Err(error("window", "a window of 0 counts nothing; write at least \"1ms\"".to_owned())),
            Some(ns) if ns <= MAX_LIMIT => Ok(ns),
            _ if Period::ALL.iter().any(|period| period.as_str() == window) => {
                Err(error("window", format!("{window:?} needs a fixed_window with `align = \"calendar\"`")))
            }
            _ => Err(error("window", no_duration(window))),
        }
    }

    fn checked_slots(&self, window_ns: u64) -> Result<Option<u32>, SpecError> {
        let Some(slots) = self.slots else { return Ok(None) };
        if !(1..=MAX_SLOTS).contains(&slots) {
            return Err(error("slots", format!("{slots} is out of bounds: 1 to {MAX_SLOTS}")));
        }
        if !window_ns.is_multiple_of(slots as u64) {
            let problem = format!("a window of {window_ns} ns cannot be cut into {slots} of whole nanoseconds");
            return Err(error("slots", problem));
        }
        Ok(Some(slots as u32))
    }

    fn checked_queue(&self) -> Result<u64, SpecError> {
        let Some(queue) = self.queue.as_deref() else { return Ok(0) };
        parse_duration(queue).filter(|ns| *ns <= MAX_LIMIT).ok_or_else(|| error("queue", no_duration(queue)))
    }
}

const PERIODS: &str = "one of \"day\", \"week\", \"month\" and \"year\"";

fn no_duration(text: &str) -> String {
    format!("{text:?} is no duration: a whole number and one of ms s m h d, e.g. \"60s\"")
}

const KNOWN_ALGORITHMS: &str = "this version knows \"fixed_window\", \"sliding_window\", \"sliding_log\", \
     \"token_bucket\" and \"leaky_bucket\"";

pub(super) fn error(field: impl Into<String>, problem: impl Into<String>) -> SpecError {
    SpecError { field: field.into(), problem: problem.into() }
}

pub(super) fn missing(field: &'static str, what: &str) -> SpecError {
    error(field, format!("is missing: {what}"))
}

fn whole(field: &'static str, value: Option<i64>, least: i64) -> Result<Option<u64>, SpecError> {
    match value {
        Some(value) if value < least => Err(error(field, format!("{value} is too small: at least {least}"))),
        Some(value) => Ok(Some(value as u64)),
        None => Ok(None),
    }
}

fn parse_enforce(word: &str) -> Result<Enforce, SpecError> {
    match word {
        "deny" => Ok(Enforce::Deny),
        "shadow" => Ok(Enforce::Shadow),
        _ => Err(error("enforce", format!("{word:?} is neither \"deny\" nor \"shadow\""))),
    }
}

fn parse_on_full(word: &str) -> Result<OnFull, SpecError> {
    match word {
        "allow" => Ok(OnFull::Allow),
        "deny" => Ok(OnFull::Deny),
        _ => Err(error("on_full", format!("{word:?} is neither \"allow\" nor \"deny\""))),
    }
}

/// Refuses a limit for which the products in a decision would leave 128 bits.
fn fits_integers(limit: &Limit) -> Result<(), SpecError> {
    // A bucket's T goes up to L*(t + queue) + W*(C + a cost); times and queues end at 2^63, costs at 2^32. Overdraft room
    // saturates.
    let latest = if limit.algorithm.queue_ns() > 0 { 1 << 64 } else { 1 << 63 };
    let rate = u128::from(limit.limit).checked_mul(latest);
    let full = u128::from(limit.capacity()).checked_add(1 << 32).and_then(|c| c.checked_mul(limit.window_ns.into()));
    match rate.zip(full).and_then(|(a, b)| a.checked_add(b)) {
        Some(_) => Ok(()),
        None => Err(error(
            "limit",
            "limit or burst times window does not fit 128 bits: make one of them smaller".to_owned(),
        )),
    }
}

/// Nanoseconds of a duration as written: a whole number and one of `ms s m h d`, nothing else. None when it is no
/// duration or does not fit u64.
pub fn parse_duration(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit {
        "ms" => MS,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3600 * SECOND,
        "d" => 86_400 * SECOND,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> LimitSpec {
        LimitSpec { name: "a".into(), limit: Some(5), window: Some("1s".into()), ..LimitSpec::default() }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("250ms"), Some(250 * MS));
        assert_eq!(parse_duration("2d"), Some(172_800 * SECOND));
        for bad in ["", "s", "1", "1.5s", "-1s", "1 s", "1S", "1s ", "99999999999999999999s", "18446744073709551615d"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        let with = |change: &dyn Fn(&mut LimitSpec)| {
            let mut spec = good();
            change(&mut spec);
            spec.check().err().map(|error| error.field).unwrap_or_default()
        };
        assert_eq!(with(&|_| {}), "");
        assert_eq!(with(&|s| s.name = "a b".into()), "name");
        assert_eq!(with(&|s| s.algorithm = Some("concurrency".into())), "algorithm");
        assert_eq!(with(&|s| s.slots = Some(0)), "slots");
        assert_eq!(with(&|s| s.slots = Some(1001)), "slots");
        assert_eq!(with(&|s| s.slots = Some(7)), "slots");
        assert_eq!(with(&|s| (s.algorithm, s.slots) = (Some("sliding_log".into()), Some(2))), "slots");
        assert_eq!(with(&|s| s.queue = Some("1s".into())), "queue");
        assert_eq!(with(&|s| (s.algorithm, s.queue) = (Some("leaky_bucket".into()), Some("1".into()))), "queue");
        let fixed = |s: &mut LimitSpec| s.algorithm = Some("fixed_window".into());
        assert_eq!(with(&|s| s.align = Some("calendar".into())), "align");
        assert_eq!(with(&|s| (fixed(s), s.align = Some("moon".into())).0), "align");
        assert_eq!(with(&|s| (fixed(s), s.align = Some("calendar".into())).0), "window");
        assert_eq!(with(&|s| (fixed(s), s.window = Some("day".into())).0), "window");
        assert_eq!(with(&|s| (fixed(s), s.time_zone = Some("UTC".into())).0), "time_zone");
        let calendar = |s: &mut LimitSpec, zone: &str| {
            fixed(s);
            (s.align, s.window, s.time_zone) = (Some("calendar".into()), Some("day".into()), Some(zone.into()));
        };
        assert_eq!(with(&|s| calendar(s, "Europe/Berlin")), "");
        assert_eq!(with(&|s| calendar(s, "Europe/Atlantis")), "time_zone");
        assert_eq!(with(&|s| s.enforce = Some("maybe".into())), "enforce");
        assert_eq!(with(&|s| s.limit = None), "limit");
        assert_eq!(with(&|s| s.limit = Some(-1)), "limit");
        assert_eq!(with(&|s| s.window = Some("0s".into())), "window");
        assert_eq!(with(&|s| s.window = Some("60".into())), "window");
        assert_eq!(with(&|s| s.burst = Some(5)), "burst");
        assert_eq!(with(&|s| (s.algorithm, s.burst) = (Some("token_bucket".into()), Some(0))), "burst");
        assert_eq!(with(&|s| s.consistency = Some("strict".into())), "consistency");
        assert_eq!(with(&|s| s.on_full = Some("evict".into())), "on_full");
        assert_eq!(with(&|s| s.max_keys = Some(0)), "max_keys");
    }

    #[test]
    fn the_largest_legal_limit_fits() {
        let spec = LimitSpec { algorithm: Some("token_bucket".into()), limit: Some(i64::MAX), ..good() };
        assert!(spec.check().is_ok());
    }
}
