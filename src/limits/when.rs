//! Conditions: which requests a limit is for.
//!
//! Written `field = "text"`, `field = ["one", "of"]`, or `field = { kind = .. }` with one of the kinds `equals`,
//! `one_of`, `prefix`, `glob`, `cidr`, `present` and `not`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use glob::{MatchOptions, Pattern};
use ipnet::IpNet;
use serde_json::{Map, Value};

use super::address::parse_address;
use super::descriptors::MAX_VALUE_BYTES;

/// The most fields that a limit's conditions name.
pub const MAX_CONDITIONS: usize = 16;
/// The most texts in one condition.
pub const MAX_TEXTS: usize = 1_000;
/// The longest pattern, bytes: matching takes the longer the more stars there are.
pub const MAX_GLOB_BYTES: usize = 256;

const KINDS: &str = "equals, one_of, prefix, glob, cidr, present and not";

/// `*` is any run of characters but `/`, `**` between slashes any number of path segments, `?` one character.
const GLOB: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// What is asked of one field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// It is one of these texts.
    OneOf(BTreeSet<String>),
    /// It begins with one of these.
    Prefix(BTreeSet<String>),
    /// It fits one of these patterns.
    Glob(Vec<Pattern>),
    /// It is an address in one of these networks.
    Cidr(Vec<IpNet>),
    /// It is there, or it is not.
    Present(bool),
    /// The opposite, also of a field that is not there.
    Not(Box<Test>),
}

/// What is wrong with a condition, and where below its field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TestError {
    /// `.glob[1]`; empty when it is about all of it.
    pub path: String,
    pub problem: String,
}

impl Test {
    /// Reads a condition.
    pub(super) fn parse(written: &Value) -> Result<Self, TestError> {
        match written {
            Value::Object(kinds) => match kinds.iter().collect::<Vec<_>>().as_slice() {
                [(kind, value)] => Self::of_kind(kind, value).map_err(|error| error.below(&format!(".{kind}"))),
                _ => Err(wrong(format!("a condition has exactly one of {KINDS}, this one has {}", kinds.len()))),
            },
            Value::String(_) | Value::Array(_) => Ok(Self::OneOf(texts(written)?.into_iter().collect())),
            other => Err(wrong(format!("{other} is no condition: text, a list of texts, or one of {KINDS}"))),
        }
    }

    fn of_kind(kind: &str, value: &Value) -> Result<Self, TestError> {
        match kind {
            "equals" if value.is_string() => Ok(Self::OneOf(texts(value)?.into_iter().collect())),
            "equals" => Err(wrong(format!("{value} is no text; for several write one_of"))),
            "one_of" => Ok(Self::OneOf(texts(value)?.into_iter().collect())),
            "prefix" => Ok(Self::Prefix(texts(value)?.into_iter().collect())),
            "glob" => each(value, pattern).map(Self::Glob),
            "cidr" => each(value, network).map(Self::Cidr),
            "present" => match value {
                Value::Bool(present) => Ok(Self::Present(*present)),
                other => Err(wrong(format!("{other} is neither true nor false"))),
            },
            "not" => match Self::parse(value)? {
                Self::Not(_) => Err(wrong("not of not: write what is meant".to_owned())),
                test => Ok(Self::Not(Box::new(test))),
            },
            _ => Err(TestError { path: String::new(), problem: format!("there is no such condition: {KINDS}") }),
        }
    }

    /// Whether it holds of a field, None for one that is not there.
    pub fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::Not(test), value) => !test.holds(value),
            (Self::Present(present), value) => value.is_some() == *present,
            (_, None) => false,
            (Self::OneOf(texts), Some(value)) => texts.contains(value),
            (Self::Prefix(texts), Some(value)) => texts.iter().any(|text| value.starts_with(text)),
            (Self::Glob(patterns), Some(value)) => patterns.iter().any(|pattern| pattern.matches_with(value, GLOB)),
            (Self::Cidr(nets), Some(value)) => {
                parse_address(value).is_some_and(|address| nets.iter().any(|net| net.contains(&address)))
            }
        }
    }

    /// As it would be written.
    pub(super) fn written(&self) -> Value {
        let kind = |kind: &str, value: Value| Value::Object(Map::from_iter([(kind.to_owned(), value)]));
        match self {
            Self::OneOf(texts) => list(texts.iter().cloned()),
            Self::Prefix(texts) => kind("prefix", list(texts.iter().cloned())),
            Self::Glob(patterns) => kind("glob", list(patterns.iter().map(|pattern| pattern.as_str().to_owned()))),
            Self::Cidr(nets) => kind("cidr", list(nets.iter().map(IpNet::to_string))),
            Self::Present(present) => kind("present", Value::Bool(*present)),
            Self::Not(test) => kind("not", test.written()),
        }
    }
}

impl TestError {
    fn below(self, path: &str) -> Self {
        Self { path: format!("{path}{}", self.path), ..self }
    }
}

fn wrong(problem: String) -> TestError {
    TestError { path: String::new(), problem }
}

/// A text or a list of texts, none of them empty: an empty value is no value.
fn texts(value: &Value) -> Result<Vec<String>, TestError> {
    let one = |value: &Value| match value {
        Value::String(text) if (1..=MAX_VALUE_BYTES).contains(&text.len()) => Ok(text.clone()),
        Value::String(text) => {
            Err(wrong(format!("a text here has 1 to {MAX_VALUE_BYTES} bytes, this one {}", text.len())))
        }
        other => Err(wrong(format!("{other} is no text"))),
    };
    match value {
        Value::Array(items) if (1..=MAX_TEXTS).contains(&items.len()) => {
            let item = |(index, item)| one(item).map_err(|error| error.below(&format!("[{index}]")));
            items.iter().enumerate().map(item).collect()
        }
        Value::Array(items) => Err(wrong(format!("a list here has 1 to {MAX_TEXTS} texts, this one {}", items.len()))),
        value => one(value).map(|text| vec![text]),
    }
}

fn each<T>(value: &Value, parse: fn(&str) -> Result<T, String>) -> Result<Vec<T>, TestError> {
    let place = |index: usize| if value.is_array() { format!("[{index}]") } else { String::new() };
    let item = |(index, text): (usize, String)| parse(&text).map_err(|problem| wrong(problem).below(&place(index)));
    texts(value)?.into_iter().enumerate().map(item).collect()
}

fn pattern(text: &str) -> Result<Pattern, String> {
    if text.len() > MAX_GLOB_BYTES {
        return Err(format!("a pattern has at most {MAX_GLOB_BYTES} bytes, this one {}", text.len()));
    }
    Pattern::new(text).map_err(|error| format!("{text:?} is no pattern: {} at character {}", error.msg, error.pos))
}

fn network(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    net.map(|net| net.trunc())
        .ok_or_else(|| format!("{text:?} is no network: e.g. \"10.0.0.0/8\" or \"2001:db8::/32\""))
}

fn list(mut texts: impl Iterator<Item = String>) -> Value {
    match (texts.next(), texts.next()) {
        (Some(only), None) => only.into(),
        (first, second) => first.into_iter().chain(second).chain(texts).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_hold_of_what_they_say() {
        let cases = [
            (json!("free"), &["free"][..], &["", "Free", "freer"][..]),
            (json!(["free", "trial"]), &["free", "trial"], &["", "paid"]),
            (json!({"equals": "x"}), &["x"], &["", "y"]),
            (json!({"one_of": ["x", "y"]}), &["x", "y"], &["z"]),
            (json!({"prefix": "/admin"}), &["/admin", "/admin/x"], &["", "/Admin"]),
            (json!({"prefix": ["a", "b"]}), &["ax", "b"], &["c"]),
            (json!({"glob": "POST /users/*"}), &["POST /users/7"], &["POST /users/7/keys", "GET /users/7"]),
            (json!({"glob": ["/a/**", "/b?"]}), &["/a/b/c", "/bc"], &["/b", "/b/"]),
            (json!({"cidr": "10.0.0.0/8"}), &["10.1.2.3", "::ffff:10.9.9.9"], &["11.0.0.1", "ten", "", "::1"]),
            (json!({"cidr": ["2001:db8::/32", "192.0.2.1"]}), &["2001:db8:9::1", "192.0.2.1"], &["192.0.2.2"]),
            (json!({"present": true}), &["x"], &[""]),
            (json!({"present": false}), &[""], &["x"]),
            (json!({"not": "free"}), &["paid", ""], &["free"]),
            (json!({"not": {"cidr": "10.0.0.0/8"}}), &["11.0.0.1", ""], &["10.0.0.1"]),
        ];
        for (written, yes, no) in cases {
            let test = Test::parse(&written).unwrap();
            let holds = |value: &&str| test.holds(Some(*value).filter(|value| !value.is_empty()));
            assert!(yes.iter().all(holds) && !no.iter().any(holds), "{written}");
            assert_eq!(Test::parse(&test.written()).unwrap(), test, "{written}");
        }
    }

    #[test]
    fn what_is_no_condition_says_where() {
        for (written, path, says) in [
            (json!(5), "", "5 is no condition"),
            (json!([]), "", "1 to 1000 texts"),
            (json!(["a", 5]), "[1]", "5 is no text"),
            (json!(""), "", "1 to 1024 bytes"),
            (json!({}), "", "exactly one of"),
            (json!({"prefix": "a", "glob": "b"}), "", "exactly one of"),
            (json!({"regex": "a"}), ".regex", "no such condition"),
            (json!({"equals": ["a"]}), ".equals", "write one_of"),
            (json!({"glob": ["a", "[b"]}), ".glob[1]", "is no pattern"),
            (json!({"glob": "a**"}), ".glob", "is no pattern"),
            (json!({"cidr": "10.0.0.0/33"}), ".cidr", "is no network"),
            (json!({"present": "yes"}), ".present", "neither true nor false"),
            (json!({"not": {"cidr": ["x"]}}), ".not.cidr[0]", "is no network"),
            (json!({"not": {"not": "a"}}), ".not", "not of not"),
        ] {
            let error = Test::parse(&written).unwrap_err();
            assert_eq!(error.path, path, "{written}");
            assert!(error.problem.contains(says), "{written}: {}", error.problem);
        }
    }
}
