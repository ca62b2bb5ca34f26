//! A TOML document as a tree in which every value knows its line, and the environment variables laid over it.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::environment::Override;
use super::problem::{Place, Problem, Problems};

/// What is read again while a node runs.
const LIMITS: [&str; 2] = ["limits", "overrides"];

/// A value and where it was written.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// A TOML value. Numbers keep the text they were written as, for messages.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Text(String),
    Integer {
        written: String,
        /// None: does not fit.
        value: Option<i64>,
    },
    Truth(bool),
    /// Kinds that no field takes: what was written, and what it is called.
    Other(String, &'static str),
    List(Vec<Entry>),
    Table(Table),
}

/// A table and where its header is.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Table {
    pub(super) place: Place,
    pub(super) entries: BTreeMap<String, Entry>,
}

impl Value {
    /// What stands there instead of what was wanted.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?} is text"),
            Self::Integer { written, .. } => format!("{written} is a number"),
            Self::Truth(truth) => format!("{truth} is a truth value"),
            Self::Other(written, kind) => format!("{written} is a {kind}"),
            Self::List(_) => "this is a list".to_owned(),
            Self::Table(_) => "this is a table".to_owned(),
        }
    }
}

impl Entry {
    /// The value at a path below this one, `plan.glob[1]`, or the last on the way there that was written.
    pub(super) fn below(&self, path: &str) -> &Self {
        let Some(end) = path.find(|c| c != '.' && c != '[' && c != ']') else { return self };
        let (_, path) = path.split_at(end);
        let (name, rest) = path.split_at(path.find(['.', '[', ']']).unwrap_or(path.len()));
        let inner = match &self.value {
            Value::Table(table) => table.entries.get(name),
            Value::List(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        };
        inner.map_or(self, |inner| inner.below(rest))
    }

    /// The same as JSON; what JSON has not is text.
    pub(super) fn json(&self) -> serde_json::Value {
        match &self.value {
            Value::Text(text) => text.as_str().into(),
            Value::Integer { value: Some(value), .. } => (*value).into(),
            Value::Integer { written, value: None } => written.as_str().into(),
            Value::Truth(truth) => (*truth).into(),
            Value::Other(written, _) => written.as_str().into(),
            Value::List(items) => items.iter().map(Self::json).collect(),
            Value::Table(table) => {
                let field = |(name, entry): (&String, &Self)| (name.clone(), entry.json());
                serde_json::Value::Object(table.entries.iter().map(field).collect())
            }
        }
    }
}

impl Table {
    /// A table that nobody wrote.
    pub(super) fn empty(place: Place) -> Self {
        Self { place, entries: BTreeMap::new() }
    }

    /// Parses a document.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let lines = Lines::of(text);
        match DeTable::parse(text) {
            Ok(root) => {
                let mut table = lines.table(root.into_inner(), 0);
                table.place = Place::File;
                Ok(table)
            }
            Err(error) => {
                let place = error.span().map_or(Place::File, |span| lines.at(span.start));
                let at = error.span().and_then(|span| text.get(span)).unwrap_or_default().trim();
                let at = if at.is_empty() || at.contains('\n') { String::new() } else { format!(", at {at:?}") };
                let what = format!("this is not valid TOML: {}{at}", error.message().replace('\n', " "));
                Err(Problem { place, field: String::new(), what })
            }
        }
    }

    /// Lays the value of a variable over the field it names.
    pub(super) fn lay_over(&mut self, variable: &Override, problems: &Problems) {
        let place = Place::Variable(variable.name.clone());
        let Some((last, sections)) = variable.path.split_last() else { return };
        let mut table = self;
        for name in sections {
            let new = || Entry { place: place.clone(), value: Value::Table(Self::empty(place.clone())) };
            match &mut table.entries.entry(name.clone()).or_insert_with(new).value {
                Value::Table(inner) => table = inner,
                _ => return problems.add(place, variable.path.join("."), format!("{name} has no such fields")),
            }
        }
        match table.entries.get(last).map(|entry| &entry.value) {
            Some(Value::Table(_)) => {
                let what = "is a table: a variable sets a single field, joined to its table by two underscores";
                problems.add(place, variable.path.join("."), what);
            }
            _ => {
                table.entries.insert(last.clone(), Entry { place, value: Value::Text(variable.value.clone()) });
            }
        }
    }

    /// Every single field as (path, what was written), limits left out: to tell what changed between two
    /// versions of a file.
    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        self.collect("", &mut settings);
        settings
    }

    fn collect(&self, prefix: &str, settings: &mut BTreeMap<String, String>) {
        for (name, entry) in &self.entries {
            match &entry.value {
                Value::Table(table) => table.collect(&format!("{prefix}{name}."), settings),
                _ if prefix.is_empty() && LIMITS.contains(&name.as_str()) => {}
                value => {
                    settings.insert(format!("{prefix}{name}"), value.flat());
                }
            }
        }
    }
}

impl Value {
    fn flat(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Integer { written, .. } | Self::Other(written, _) => written.clone(),
            Self::Truth(truth) => truth.to_string(),
            Self::List(items) => items.iter().map(|item| item.value.flat()).collect::<Vec<_>>().join(","),
            Self::Table(table) => format!("{:?}", table.settings()),
        }
    }
}

/// Where lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    fn at(&self, offset: usize) -> Place {
        Place::Line(self.0.partition_point(|start| *start <= offset))
    }

    fn table(&self, table: DeTable<'_>, at: usize) -> Table {
        let entry = |(key, value): (toml::Spanned<std::borrow::Cow<'_, str>>, toml::Spanned<DeValue<'_>>)| {
            let at = key.span().start;
            (key.into_inner().into_owned(), self.entry(value.into_inner(), at))
        };
        Table { place: self.at(at), entries: table.into_iter().map(entry).collect() }
    }

    fn entry(&self, value: DeValue<'_>, at: usize) -> Entry {
        let value = match value {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => {
                let value = i64::from_str_radix(number.as_str(), number.radix()).ok();
                Value::Integer { written: number.to_string(), value }
            }
            DeValue::Float(number) => Value::Other(number.as_str().to_owned(), "fraction"),
            DeValue::Boolean(truth) => Value::Truth(truth),
            DeValue::Datetime(date) => Value::Other(date.to_string(), "date"),
            DeValue::Array(items) => {
                let item = |item: toml::Spanned<DeValue<'_>>| {
                    let at = item.span().start;
                    self.entry(item.into_inner(), at)
                };
                Value::List(items.into_iter().map(item).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(table, at)),
        };
        Entry { place: self.at(at), value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of<'a>(table: &'a Table, path: &[&str]) -> &'a Entry {
        let (first, rest) = path.split_first().unwrap();
        let entry = &table.entries[*first];
        match &entry.value {
            Value::Table(inner) if !rest.is_empty() => line_of(inner, rest),
            Value::List(items) if !rest.is_empty() => match &items[rest[0].parse::<usize>().unwrap()].value {
                Value::Table(inner) if rest.len() > 1 => line_of(inner, &rest[1..]),
                _ => &items[rest[0].parse::<usize>().unwrap()],
            },
            _ => entry,
        }
    }

    #[test]
    fn every_value_knows_its_line() {
        let text = "a = 1\n\n[node]\nname = \"x\" # c\n[gossip.tls]\nca = 5\n[[limits]]\nname = \"a\"\n[[limits]]\nname = \
                    \"b\"\nlist = [\n  1,\n  2,\n]\n";
        let table = Table::parse(text).unwrap();
        let at = |path: &[&str]| line_of(&table, path).place.clone();
        assert_eq!(at(&["a"]), Place::Line(1));
        assert_eq!(at(&["node"]), Place::Line(3));
        assert_eq!(at(&["node", "name"]), Place::Line(4));
        assert_eq!(at(&["gossip"]), Place::Line(5));
        assert_eq!(at(&["gossip", "tls", "ca"]), Place::Line(6));
        assert_eq!(at(&["limits", "0"]), Place::Line(7));
        assert_eq!(at(&["limits", "1"]), Place::Line(9));
        assert_eq!(at(&["limits", "1", "name"]), Place::Line(10));
        assert_eq!(at(&["limits", "1", "list", "1"]), Place::Line(13));
    }

    #[test]
    fn what_stands_deep_is_found() {
        let text = "[[limits]]\n[limits.when]\nplan = \"a\"\n[limits.when.route]\nglob = [\n  \"a\",\n  \"b\",\n]\n";
        let table = Table::parse(text).unwrap();
        let Value::List(limits) = &table.entries["limits"].value else { panic!("{table:?}") };
        let at = |path: &str| limits[0].below(path).place.clone();
        assert_eq!(at("when.plan"), Place::Line(3));
        assert_eq!(at("when.route.glob[1]"), Place::Line(7));
        assert_eq!(at("when.route.glob.x"), Place::Line(5));
        assert_eq!(limits[0].json()["when"]["route"], serde_json::json!({"glob": ["a", "b"]}));
    }

    #[test]
    fn what_is_no_toml_names_its_line() {
        let bad = Table::parse("[node]\nname = \"a\"\nname = \"b\"\n").unwrap_err();
        assert_eq!(bad.place, Place::Line(3));
        assert!(bad.what.contains("duplicate key"), "{}", bad.what);
        assert_eq!(Table::parse("[node]\nname = a b\n").unwrap_err().place, Place::Line(2));
    }

    #[test]
    fn settings_leave_the_limits_out() {
        let table = Table::parse("b = [1, 2]\n[n]\na = \"x\"\n[[limits]]\nname = \"l\"\n[[overrides]]\n").unwrap();
        let want = [("b", "1,2"), ("n.a", "\"x\"")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(table.settings(), want.into());
    }
}
