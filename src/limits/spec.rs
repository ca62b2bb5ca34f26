//! A limit as written, and what may be wrong with it.

use serde::{Deserialize, Serialize};

use super::{Algorithm, Limit, LimitName, MAX_LIMIT, OnFull};
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
    pub limit: Option<i64>,
    /// A duration: a whole number and one of `ms s m h d`.
    pub window: Option<String>,
    /// A bucket's capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<i64>,
    /// Only `eventual` in this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<String>,
    /// The most keys of this limit that a node itself spends on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<i64>,
    /// `allow` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_full: Option<String>,
}

/// What is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// The field of the definition.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// Fields that a later version will know: refused by name, so that nobody believes them to be in force.
pub const LATER_FIELDS: [&str; 6] = ["slots", "queue", "enforce", "align", "key_type", "on_partition"];

impl LimitSpec {
    /// The limit that this defines.
    pub fn check(&self) -> Result<Limit, SpecError> {
        let limit = Limit {
            name: self.checked_name()?,
            algorithm: self.checked_algorithm()?,
            limit: whole("limit", self.limit, 0)?.ok_or_else(|| missing("limit", "tokens per window, e.g. 100"))?,
            window_ns: self.checked_window()?,
            burst: whole("burst", self.burst, 1)?,
            max_keys: whole("max_keys", self.max_keys, 1)?,
            on_full: self.on_full.as_deref().map(parse_on_full).transpose()?,
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
        if limit.burst.is_some() && limit.algorithm != Algorithm::TokenBucket {
            return Err(error("burst", format!("only a token_bucket has one, not a {}", limit.algorithm.as_str())));
        }
        fits_integers(&limit)?;
        Ok(limit)
    }

    fn checked_name(&self) -> Result<LimitName, SpecError> {
        if self.name.is_empty() {
            return Err(missing("name", "1 to 64 of A-Z a-z 0-9 . _ : / -"));
        }
        LimitName::new(&self.name)
            .ok_or_else(|| error("name", format!("{:?} is no limit name: 1 to 64 of A-Z a-z 0-9 . _ : / -", self.name)))
    }

    fn checked_algorithm(&self) -> Result<Algorithm, SpecError> {
        match self.algorithm.as_deref() {
            None | Some("sliding_window") => Ok(Algorithm::SlidingWindow),
            Some("fixed_window") => Ok(Algorithm::FixedWindow),
            Some("token_bucket" | "leaky_bucket") => Ok(Algorithm::TokenBucket),
            Some(later @ ("sliding_log" | "concurrency")) => {
                Err(error("algorithm", format!("{later:?} is not in this version; {KNOWN_ALGORITHMS}")))
            }
            Some(other) => Err(error("algorithm", format!("{other:?} is no algorithm; {KNOWN_ALGORITHMS}"))),
        }
    }

    fn checked_window(&self) -> Result<u64, SpecError> {
        let window = self.window.as_deref().ok_or_else(|| missing("window", "a duration, e.g. \"60s\""))?;
        match parse_duration(window) {
            Some(0) => Err(error("window", "a window of 0 counts nothing; write at least \"1ms\"".to_owned())),
            Some(ns) if ns <= MAX_LIMIT => Ok(ns),
            _ => Err(error(
                "window",
                format!("{window:?} is no duration: a whole number and one of ms s m h d, e.g. \"60s\""),
            )),
        }
    }
}

const KNOWN_ALGORITHMS: &str =
    "this version knows \"fixed_window\", \"sliding_window\", \"token_bucket\" and \"leaky_bucket\"";

fn error(field: &'static str, problem: String) -> SpecError {
    SpecError { field, problem }
}

fn missing(field: &'static str, what: &str) -> SpecError {
    error(field, format!("is missing: {what}"))
}

fn whole(field: &'static str, value: Option<i64>, least: i64) -> Result<Option<u64>, SpecError> {
    match value {
        Some(value) if value < least => Err(error(field, format!("{value} is too small: at least {least}"))),
        Some(value) => Ok(Some(value as u64)),
        None => Ok(None),
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
    // A bucket's T goes up to L*t + W*(C + a cost); times end at 2^63, costs at 2^32. Overdraft room saturates.
    let rate = u128::from(limit.limit).checked_mul(1 << 63);
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
            spec.check().map_err(|e| e.field)
        };
        assert!(with(&|_| {}).is_ok());
        assert_eq!(with(&|s| s.name = "a b".into()), Err("name"));
        assert_eq!(with(&|s| s.algorithm = Some("sliding_log".into())), Err("algorithm"));
        assert_eq!(with(&|s| s.limit = None), Err("limit"));
        assert_eq!(with(&|s| s.limit = Some(-1)), Err("limit"));
        assert_eq!(with(&|s| s.window = Some("0s".into())), Err("window"));
        assert_eq!(with(&|s| s.window = Some("60".into())), Err("window"));
        assert_eq!(with(&|s| s.burst = Some(5)), Err("burst"));
        assert_eq!(with(&|s| (s.algorithm, s.burst) = (Some("token_bucket".into()), Some(0))), Err("burst"));
        assert_eq!(with(&|s| s.consistency = Some("strict".into())), Err("consistency"));
        assert_eq!(with(&|s| s.on_full = Some("evict".into())), Err("on_full"));
        assert_eq!(with(&|s| s.max_keys = Some(0)), Err("max_keys"));
    }

    #[test]
    fn the_largest_legal_limit_fits() {
        let spec = LimitSpec { algorithm: Some("token_bucket".into()), limit: Some(i64::MAX), ..good() };
        assert!(spec.check().is_ok());
    }
}
