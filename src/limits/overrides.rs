//! Single keys that have more or less than the rest: this customer has 5,000 an hour.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Limit;
use super::spec::{LimitSpec, SpecError, error, missing};

/// The most keys of one limit, and of all limits of a file, that have their own.
pub const MAX_OVERRIDES: usize = 10_000;
/// The longest key that can be named, bytes: what the engine takes.
const MAX_KEY_BYTES: usize = super::descriptors::MAX_VALUE_BYTES;

/// One key's own allowance as written. What is left out is as the limit has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverrideSpec {
    /// The key, as answers tell it.
    pub key: String,
    /// Tokens per window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// A duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// A bucket's capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<i64>,
}

/// By key, the limit as it holds for that key.
pub type Overrides = Arc<BTreeMap<String, Arc<Limit>>>;

impl LimitSpec {
    /// The keys of `limit`, which this defines, that have their own.
    pub(super) fn checked_overrides(&self, limit: &Limit) -> Result<Overrides, SpecError> {
        if self.overrides.len() > MAX_OVERRIDES {
            return Err(error("overrides", format!("{} are too many: at most {MAX_OVERRIDES}", self.overrides.len())));
        }
        let mut all = BTreeMap::new();
        for (index, one) in self.overrides.iter().enumerate() {
            let below = |e: SpecError| SpecError { field: format!("overrides[{index}].{}", e.field), ..e };
            let key = one.checked_key(limit).map_err(below)?;
            if all.insert(key, Arc::new(self.overridden(one).map_err(below)?)).is_some() {
                return Err(below(error("key", format!("{:?} is named already", one.key))));
            }
        }
        Ok(Arc::new(all))
    }

    fn overridden(&self, one: &OverrideSpec) -> Result<Limit, SpecError> {
        if one.limit.is_none() {
            return Err(missing("limit", "tokens per window for this key, e.g. 5000"));
        }
        let own = Self {
            limit: one.limit,
            window: one.window.clone().or_else(|| self.window.clone()),
            burst: one.burst.or(self.burst),
            overrides: Vec::new(),
            ..self.clone()
        };
        own.check()
    }

    /// Writes those of `limit`.
    pub(super) fn with_overrides(self, limit: &Limit) -> Self {
        let write = |(key, own): (&String, &Arc<Limit>)| {
            let written = Self::of(own);
            let window = written.window.filter(|_| own.window_ns != limit.window_ns);
            OverrideSpec { key: key.clone(), limit: written.limit, window, burst: written.burst }
        };
        Self { overrides: limit.overrides.iter().map(write).collect(), ..self }
    }
}

impl OverrideSpec {
    fn checked_key(&self, limit: &Limit) -> Result<String, SpecError> {
        match self.key.len() {
            0 => Err(missing("key", "the key that has its own limit, as answers tell it")),
            1..=MAX_KEY_BYTES => {
                limit.keying.fold(&self.key).map(|key| key.into_owned()).map_err(|what| error("key", what))
            }
            len => Err(error("key", format!("a key has at most {MAX_KEY_BYTES} bytes, this one {len}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(overrides: &[OverrideSpec]) -> LimitSpec {
        LimitSpec {
            name: "l".into(),
            algorithm: Some("token_bucket".into()),
            limit: Some(10),
            window: Some("1s".into()),
            overrides: overrides.to_vec(),
            ..LimitSpec::default()
        }
    }

    fn own(key: &str, limit: Option<i64>) -> OverrideSpec {
        OverrideSpec { key: key.into(), limit, ..OverrideSpec::default() }
    }

    #[test]
    fn what_is_left_out_is_as_the_limit_has_it() {
        let hourly = OverrideSpec { window: Some("1h".into()), burst: Some(7), ..own("b", Some(5_000)) };
        let mut spec = spec(&[own("a", Some(50)), hourly]);
        let limit = spec.check().unwrap();
        let told = |key: &str| {
            let own = &limit.overrides[key];
            (own.limit, own.window_ns / 1_000_000_000, own.capacity())
        };
        assert_eq!((told("a"), told("b")), ((50, 1, 50), (5_000, 3_600, 7)));
        assert_eq!(LimitSpec::of(&limit).check().unwrap().overrides["b"].capacity(), 7);
        spec.burst = Some(3);
        assert_eq!(spec.check().unwrap().overrides["a"].capacity(), 3);
    }

    #[test]
    fn a_limit_is_written_as_it_decides() {
        let limit = spec(&[own("a", Some(50)), own("b", Some(5))]).check().unwrap();
        let again = LimitSpec::of(&limit).check().unwrap();
        assert_eq!(LimitSpec::canonical(&again), LimitSpec::canonical(&limit));
    }

    #[test]
    fn addresses_are_named_in_any_form() {
        let mut spec = spec(&[own("::1", Some(50))]);
        spec.key_type = Some("ip".into());
        assert!(spec.check().unwrap().overrides.contains_key("::/64"));
        spec.overrides.push(own("::2", Some(1)));
        assert_eq!(spec.check().unwrap_err().field, "overrides[1].key");
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        let field = |one: OverrideSpec| spec(&[own("x", Some(1)), one]).check().unwrap_err().field;
        assert_eq!(field(own("", Some(1))), "overrides[1].key");
        assert_eq!(field(own("x", Some(1))), "overrides[1].key");
        assert_eq!(field(own("a", None)), "overrides[1].limit");
        assert_eq!(field(own("a", Some(-1))), "overrides[1].limit");
        assert_eq!(field(OverrideSpec { window: Some("x".into()), ..own("a", Some(1)) }), "overrides[1].window");
        assert_eq!(field(OverrideSpec { burst: Some(0), ..own("a", Some(1)) }), "overrides[1].burst");
    }
}
