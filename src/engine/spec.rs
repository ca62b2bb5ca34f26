//! The parts of a request as written in JSON, by the HTTP API and in a trace alike: `{"limit":..,"key":..,"cost":..}`.
//!
//! Every error names its field. Unknown fields are refused (a mistyped `cst` would take 1), and so are arrays where an
//! object is due, which serde's derive would read by position.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use super::{Ask, MAX_ASKS, Op};
use crate::limits::Descriptors;

/// One part of a request as written. The engine checks the key's length and whether the limit exists.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskSpec<'a> {
    /// The limit's name.
    #[serde(borrow, deserialize_with = "limit")]
    pub limit: Cow<'a, str>,
    /// The key.
    #[serde(borrow, deserialize_with = "key")]
    pub key: Cow<'a, str>,
    /// Tokens; 1 when it is not written.
    #[serde(deserialize_with = "cost", default = "one")]
    pub cost: u32,
}

impl AskSpec<'_> {
    /// What the engine is asked.
    pub fn ask(&self) -> Ask<'_> {
        Ask { limit: &self.limit, key: &self.key, cost: self.cost }
    }
}

fn one() -> u32 {
    1
}

/// Reads the field `limit`.
pub fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<Cow<'de, str>, D::Error> {
    from.deserialize_str(Text("limit"))
}

/// Reads the field `key`.
pub fn key<'de, D: Deserializer<'de>>(from: D) -> Result<Cow<'de, str>, D::Error> {
    from.deserialize_str(Text("key"))
}

/// Reads the field `cost`.
pub fn cost<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let cost = from.deserialize_u64(Whole { field: "cost", most: u32::MAX.into() })?;
    Ok(u32::try_from(cost).expect("Whole lets nothing above `most` through"))
}

/// Reads the field `checks`: a list of at most [`MAX_ASKS`].
pub fn checks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<AskSpec<'de>>, D::Error> {
    from.deserialize_seq(List::new("checks", MAX_ASKS, "objects with `limit`, `key` and `cost`"))
}

/// Reads the field `descriptors`: an object of texts.
pub fn descriptors<'de, D: Deserializer<'de>>(from: D) -> Result<Descriptors<'de>, D::Error> {
    from.deserialize_map(Fields)
}

/// Reads the field `op`: what is to be done.
pub fn op<'de, D: Deserializer<'de>>(from: D) -> Result<Op, D::Error> {
    let word = text_op(from)?;
    let none = || D::Error::custom(format_args!("`op`: {word:?} is none of check, peek, debit, refund and reset"));
    named_op(&word).ok_or_else(none)
}

/// Reads the field `op` as it is written.
pub fn text_op<'de, D: Deserializer<'de>>(from: D) -> Result<Cow<'de, str>, D::Error> {
    from.deserialize_str(Text("op"))
}

/// The operation of a name.
pub fn named_op(word: &str) -> Option<Op> {
    Op::ALL.into_iter().find(|op| op.as_str() == word)
}

/// A value that must be a JSON object.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Text, borrowed where it stands without escapes. Bears the name of its field.
pub struct Text(pub &'static str);

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` to be a string", self.0)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// The fields of a request that says what it is.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Descriptors<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`descriptors` to be an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Descriptors::default();
        while let Some(name) = map.next_key_seed(TextSeed("descriptors"))? {
            let value = map
                .next_value_seed(TextSeed("value"))
                .map_err(|error| A::Error::custom(format_args!("`descriptors.{name}`: {error}")))?;
            fields.add(name, value).map_err(|e| A::Error::custom(format_args!("`descriptors.{}`: {e}", e.field)))?;
        }
        Ok(fields)
    }
}

/// Text inside a map.
struct TextSeed(&'static str);

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(Text(self.0))
    }
}

/// A whole number from 0 to `most`.
pub struct Whole {
    /// Its field.
    pub field: &'static str,
    /// The largest value.
    pub most: u64,
}

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` to be a whole number from 0 to {}", self.field, self.most)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        if value <= self.most { Ok(value) } else { Err(E::invalid_value(Unexpected::Unsigned(value), &self)) }
    }
}

/// A list of at most `most` objects. Errors bear the name of the field and say which entry.
pub struct List<T> {
    field: &'static str,
    most: usize,
    of: &'static str,
    entry: PhantomData<T>,
}

impl<T> List<T> {
    /// The list `field`; `of` says of what.
    pub fn new(field: &'static str, most: usize, of: &'static str) -> Self {
        Self { field, most, of, entry: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` to be a list of 1 to {} {}", self.field, self.most, self.of)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Self { field, most, .. } = self;
        let mut entries = Vec::new();
        loop {
            let next = list.next_element::<Object<T>>();
            match next.map_err(|e| A::Error::custom(format_args!("`{field}[{}]`: {e}", entries.len())))? {
                None => return Ok(entries),
                Some(_) if entries.len() == most => {
                    return Err(A::Error::custom(format_args!("`{field}` has more than {most} entries")));
                }
                Some(Object(entry)) => entries.push(entry),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Many<'a> {
        #[serde(borrow, deserialize_with = "checks")]
        checks: Vec<AskSpec<'a>>,
    }

    fn parse(check: &str) -> Result<AskSpec<'_>, String> {
        serde_json::from_str::<Object<AskSpec<'_>>>(check).map(|o| o.0).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_well_is_read() {
        let spec = parse(r#"{"key":"k","cost":4294967295,"limit":"l"}"#).unwrap();
        assert_eq!(spec.ask(), Ask { limit: "l", key: "k", cost: u32::MAX });
        assert!(matches!(spec.key, Cow::Borrowed(_)));
        assert_eq!(parse(r#"{"limit":"l","key":"\u00e9"}"#).unwrap().ask(), Ask { limit: "l", key: "é", cost: 1 });
    }

    #[test]
    fn every_error_names_its_field() {
        for (text, field) in [
            (r#"{"limit":"l","key":"k","cst":1}"#, "`cst`"),
            (r#"{"limit":"l"}"#, "`key`"),
            (r#"{"key":"k"}"#, "`limit`"),
            (r#"{"limit":"l","key":"k","key":"k"}"#, "`key`"),
            (r#"{"limit":1,"key":"k"}"#, "`limit`"),
            (r#"{"limit":"l","key":null}"#, "`key`"),
            (r#"{"limit":"l","key":"k","cost":-1}"#, "`cost`"),
            (r#"{"limit":"l","key":"k","cost":1.0}"#, "`cost`"),
            (r#"{"limit":"l","key":"k","cost":"1"}"#, "`cost`"),
            (r#"{"limit":"l","key":"k","cost":null}"#, "`cost`"),
            (r#"{"limit":"l","key":"k","cost":4294967296}"#, "`cost`"),
            (r#"{"limit":"l","key":"k","cost":1e30}"#, "`cost`"),
            (r#"["l","k",1]"#, "an object"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(field), "{text}: {error}");
        }
    }

    #[derive(Debug, Deserialize)]
    struct Described<'a> {
        #[serde(borrow, deserialize_with = "descriptors")]
        descriptors: Descriptors<'a>,
    }

    #[test]
    fn descriptors_are_an_object_of_strings() {
        let parse = |text: &'static str| serde_json::from_str::<Described<'_>>(text);
        let described = parse(r#"{"descriptors":{"ip":"::1","route":"POST \/x"}}"#).unwrap().descriptors;
        assert_eq!((described.get("ip"), described.get("route")), (Some("::1"), Some("POST /x")));
        for (text, says) in [
            (r#"{"descriptors":["ip"]}"#, "`descriptors` to be an object of strings"),
            (r#"{"descriptors":{"ip":1}}"#, "`descriptors.ip`: invalid type: integer `1`"),
            (r#"{"descriptors":{"ip":null}}"#, "`descriptors.ip`: invalid type: null"),
            (r#"{"descriptors":{"ip":"a","ip":"b"}}"#, "`descriptors.ip`: is there twice"),
            (r#"{"descriptors":{"a b":"a"}}"#, "`descriptors.a b`: this is no name of a field"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn lists_are_bounded_and_say_which_entry() {
        let list = |n: usize| format!(r#"{{"checks":[{}]}}"#, vec![r#"{"limit":"l","key":"k"}"#; n].join(","));
        assert_eq!(serde_json::from_str::<Many<'_>>(&list(64)).unwrap().checks.len(), 64);
        let error = serde_json::from_str::<Many<'_>>(&list(65)).unwrap_err().to_string();
        assert!(error.contains("more than 64"), "{error}");
        let error = serde_json::from_str::<Many<'_>>(r#"{"checks":[{"limit":"l","key":"k"},{"limit":"l"}]}"#);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("`checks[1]`: missing field `key` at line 1 column"), "{error}");
    }
}
