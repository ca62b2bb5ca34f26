//! A limit as it would be written: for answers, and for the journal.

use std::hash::Hasher;

use serde::Deserializer;
use serde_json::{Map, Value};
use siphasher::sip::SipHasher13;

use super::spec::{SpecError, error};
use super::{Algorithm, Limit, LimitSpec, OnFull};
use crate::time::{MS, SECOND};

/// The key of the hash by which definitions are compared: the same on every node of every version.
const FINGERPRINT_KEY: [u8; 16] = *b"tidegate limit 1";

impl LimitSpec {
    /// The definition that makes this limit. What was left to its default is said too, where it changes decisions.
    pub fn of(limit: &Limit) -> Self {
        let tokens = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let burst = limit.burst.unwrap_or(limit.limit).max(1);
        let mut spec = Self {
            name: limit.name.to_string(),
            algorithm: Some(limit.algorithm.as_str().to_owned()),
            limit: Some(tokens(limit.limit)),
            window: Some(duration(limit.window_ns)),
            burst: limit.algorithm.is_bucket().then(|| tokens(burst)),
            enforce: limit.is_shadow().then(|| "shadow".to_owned()),
            consistency: Some("eventual".to_owned()),
            max_keys: limit.max_keys.map(tokens),
            on_full: limit.on_full.map(|on_full| match on_full {
                OnFull::Allow => "allow".to_owned(),
                OnFull::Deny => "deny".to_owned(),
            }),
            ..Self::default()
        };
        match limit.algorithm {
            Algorithm::SlidingSlots(slots) => spec.slots = Some(slots.into()),
            Algorithm::LeakyBucket(queue_ns) => spec.queue = Some(duration(queue_ns)),
            Algorithm::CalendarWindow(calendar) => {
                spec.window = Some(calendar.period.as_str().to_owned());
                spec.align = Some("calendar".to_owned());
                spec.time_zone = Some(calendar.zone.as_str().to_owned());
            }
            _ => {}
        }
        spec.with_keying(&limit.keying).with_overrides(limit)
    }

    /// The limit with other fields: those of `set` as they are there, the others as `limit`, which this is, was written.
    ///
    /// # Errors
    /// What is wrong with a field.
    pub fn changed(mut self, limit: &Limit, set: Map<String, Value>) -> Result<Limit, SpecError> {
        // What the burst is by default follows the limit.
        self.burst = self.burst.filter(|_| limit.burst.is_some());
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else {
            unreachable!("plain fields always serialise, to an object")
        };
        fields.extend(set);
        Self::read(Value::Object(fields))?.check()
    }

    /// A definition as a format has it that names fields.
    ///
    /// # Errors
    /// A field that is none, or is of the wrong kind.
    pub fn read<'de>(from: impl Deserializer<'de>) -> Result<Self, SpecError> {
        serde_path_to_error::deserialize(from).map_err(|e| error(e.path().to_string(), e.inner().to_string()))
    }

    /// The definition as text: the same for limits that decide alike, on every platform.
    pub fn canonical(limit: &Limit) -> String {
        serde_json::to_string(&Self::of(limit)).expect("plain fields always serialise")
    }

    /// A hash of [`LimitSpec::canonical`].
    pub fn fingerprint(limit: &Limit) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&FINGERPRINT_KEY);
        hasher.write(Self::canonical(limit).as_bytes());
        hasher.finish()
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
        let text = |text: &str| Some(text.to_owned());
        let bases = [
            LimitSpec { algorithm: text("fixed_window"), ..LimitSpec::default() },
            LimitSpec { algorithm: text("sliding_window"), ..LimitSpec::default() },
            LimitSpec { slots: Some(10), ..LimitSpec::default() },
            LimitSpec { algorithm: text("sliding_log"), enforce: text("shadow"), ..LimitSpec::default() },
            LimitSpec { algorithm: text("token_bucket"), burst: Some(7), ..LimitSpec::default() },
            LimitSpec { algorithm: text("leaky_bucket"), queue: text("250ms"), burst: Some(7), ..LimitSpec::default() },
        ];
        for base in bases {
            for window in ["1ms", "1500ms", "60s", "365d"] {
                let spec = LimitSpec {
                    name: "a/b".into(),
                    limit: Some(i64::MAX / 1_000_000_000),
                    window: text(window),
                    max_keys: Some(3),
                    on_full: text("deny"),
                    ..base.clone()
                };
                let limit = spec.check().unwrap();
                assert_eq!(LimitSpec::of(&limit).check().unwrap(), limit);
            }
        }
        let month = LimitSpec {
            name: "m".into(),
            algorithm: text("fixed_window"),
            limit: Some(1),
            window: text("month"),
            align: text("calendar"),
            time_zone: text("asia/tokyo"),
            ..LimitSpec::default()
        };
        let limit = month.check().unwrap();
        assert_eq!(LimitSpec::of(&limit).time_zone, text("Asia/Tokyo"));
        assert_eq!(LimitSpec::of(&limit).check().unwrap(), limit);
    }

    fn limit(change: impl Fn(&mut LimitSpec)) -> Limit {
        let mut spec =
            LimitSpec { name: "a".into(), limit: Some(5), window: Some("1s".into()), ..LimitSpec::default() };
        change(&mut spec);
        spec.check().unwrap()
    }

    #[test]
    fn definitions_are_equal_when_they_decide_alike() {
        let bucket = |burst| limit(|spec| (spec.algorithm, spec.burst) = (Some("token_bucket".into()), burst));
        assert_eq!(LimitSpec::fingerprint(&bucket(None)), LimitSpec::fingerprint(&bucket(Some(5))));
        let different = [
            limit(|_| {}),
            limit(|spec| spec.limit = Some(6)),
            limit(|spec| spec.window = Some("2s".into())),
            limit(|spec| spec.algorithm = Some("fixed_window".into())),
            limit(|spec| spec.max_keys = Some(5)),
            limit(|spec| spec.on_full = Some("deny".into())),
            limit(|spec| spec.on_full = Some("allow".into())),
            bucket(None),
            bucket(Some(6)),
        ];
        let hashes: std::collections::BTreeSet<_> = different.iter().map(LimitSpec::fingerprint).collect();
        assert_eq!(hashes.len(), different.len());
        // Never changes, whatever the platform: peers of other versions compare it.
        assert_eq!(LimitSpec::fingerprint(&limit(|_| {})), 8_483_459_211_822_626_861);
    }
}
