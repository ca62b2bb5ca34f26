//! Reading the fields of a table: what is asked for is known, what is left over at the end is refused.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::problem::{Place, Problems};
use super::tree::{Entry, Table, Value};
use crate::limits::parse_duration;
use crate::time::{MS, SECOND};

/// Duration fields show this when something else stands there.
const A_DURATION: &str = "a duration: a whole number and one of ms s m h d, e.g. \"60s\"";

/// A table being read. Wrong fields are reported and then read as absent, so that all of them are found at once.
pub(super) struct Section<'p> {
    /// `gossip.tls`; empty for the document.
    path: String,
    place: Place,
    left: BTreeMap<String, Entry>,
    /// Fields asked for, with their place where they were written.
    asked: BTreeMap<&'static str, Option<Place>>,
    problems: &'p Problems,
}

/// The name of a file, and the field that names it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FileField {
    /// As written.
    pub(super) path: PathBuf,
    pub(super) field: String,
    pub(super) place: Place,
}

impl<'p> Section<'p> {
    /// The document itself.
    pub(super) fn root(table: Table, problems: &'p Problems) -> Self {
        Self::new(String::new(), table, problems)
    }

    fn new(path: String, table: Table, problems: &'p Problems) -> Self {
        Self { path, place: table.place, left: table.entries, asked: BTreeMap::new(), problems }
    }

    /// Reports what is wrong with a field.
    pub(super) fn wrong(&self, name: &str, what: impl Into<String>) {
        let place = self.asked.get(name).cloned().flatten().unwrap_or_else(|| self.place.clone());
        self.problems.add(place, self.full(name), what);
    }

    /// Reports what is wrong inside a field: `path` begins with its name, `place` is where the inner value stands.
    pub(super) fn wrong_inside(&self, path: &str, place: &Place, what: impl Into<String>) {
        self.problems.add(place.clone(), self.full(path), what);
    }

    /// Reports a field that must be there and is not (one that is there but wrong was reported already).
    pub(super) fn require<T>(&self, name: &'static str, value: &Option<T>, what: &str) {
        if value.is_none() && !self.has(name) {
            self.wrong(name, format!("is missing: {what}"));
        }
    }

    /// Whether the field was written at all.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.contains_key(name) || matches!(self.asked.get(name), Some(Some(_)))
    }

    /// Where the table is.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Names `place` for what is missing when the table itself was not written.
    pub(super) fn standing_at(mut self, place: Place) -> Self {
        if self.place == Place::File {
            self.place = place;
        }
        self
    }

    fn full(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn take(&mut self, name: &'static str) -> Option<Entry> {
        let entry = self.left.remove(name);
        self.asked.insert(name, entry.as_ref().map(|entry| entry.place.clone()));
        entry
    }

    /// A text; `wanted` says of what kind.
    pub(super) fn text(&mut self, name: &'static str, wanted: &str) -> Option<String> {
        match self.take(name)?.value {
            Value::Text(text) => Some(text),
            other => {
                self.wrong(name, format!("{}; this is {wanted}", other.describe()));
                None
            }
        }
    }

    /// A value of any form, as it stands.
    pub(super) fn any(&mut self, name: &'static str) -> Option<Entry> {
        self.take(name)
    }

    /// A text that `parse` understands.
    pub(super) fn parsed<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(name, wanted)?;
        parse(&text).map_err(|what| self.wrong(name, what)).ok()
    }

    /// A whole number, whatever it is.
    pub(super) fn integer(&mut self, name: &'static str) -> Option<i64> {
        let entry = self.take(name)?;
        let (written, value) = match entry.value {
            Value::Integer { written, value } => (written, value),
            // A variable has no types.
            Value::Text(text) if matches!(entry.place, Place::Variable(_)) && is_digits(&text) => {
                let value = text.parse().ok();
                (text, value)
            }
            other => {
                self.wrong(name, format!("{}; this is a whole number", other.describe()));
                return None;
            }
        };
        if value.is_none() {
            self.wrong(name, format!("{written} does not fit: at most {}", i64::MAX));
        }
        value
    }

    /// A whole number within bounds, which are below 2^63.
    pub(super) fn count(&mut self, name: &'static str, within: RangeInclusive<u64>) -> Option<u64> {
        let value = self.integer(name)?;
        match u64::try_from(value) {
            Ok(value) if within.contains(&value) => Some(value),
            _ => {
                self.wrong(name, format!("{value} is out of bounds: {} to {}", within.start(), within.end()));
                None
            }
        }
    }

    /// A duration within bounds, nanoseconds.
    pub(super) fn duration_ns(&mut self, name: &'static str, within: RangeInclusive<u64>) -> Option<u64> {
        let text = self.text(name, A_DURATION)?;
        match parse_duration(&text) {
            Some(ns) if within.contains(&ns) => Some(ns),
            Some(_) => {
                let (least, most) = (written_duration(*within.start()), written_duration(*within.end()));
                self.wrong(name, format!("{text:?} is out of bounds: \"{least}\" to \"{most}\""));
                None
            }
            None => {
                self.wrong(
                    name,
                    format!("{text:?} is no duration: a whole number and one of ms s m h d, e.g. \"60s\""),
                );
                None
            }
        }
    }

    /// The name of a file or folder.
    pub(super) fn file(&mut self, name: &'static str) -> Option<FileField> {
        let text = self.text(name, "the name of a file")?;
        if text.is_empty() {
            self.wrong(name, "is empty: the name of a file, relative to the config file or absolute");
            return None;
        }
        let place = self.asked.get(name).cloned().flatten().unwrap_or_else(|| self.place.clone());
        Some(FileField { path: text.into(), field: self.full(name), place })
    }

    /// A list of texts that `parse` understands, at most `most`; empty when absent. A variable has them between commas.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        most: usize,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let Some(entry) = self.take(name) else { return Vec::new() };
        let items = match entry.value {
            Value::List(items) => items,
            Value::Text(text) if matches!(entry.place, Place::Variable(_)) => {
                let texts = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                texts.map(|item| Entry { place: entry.place.clone(), value: Value::Text(item.to_owned()) }).collect()
            }
            other => {
                self.wrong(name, format!("{}; this is a list of texts, e.g. [\"one\", \"two\"]", other.describe()));
                return Vec::new();
            }
        };
        if items.len() > most {
            self.wrong(name, format!("{} are too many: at most {most}", items.len()));
        }
        let mut parsed = Vec::new();
        for (index, item) in items.into_iter().take(most).enumerate() {
            let found = match &item.value {
                Value::Text(text) => parse(text),
                other => Err(format!("{}; this is text", other.describe())),
            };
            match found {
                Ok(value) => parsed.push(value),
                Err(what) => self.problems.add(item.place, format!("{}[{index}]", self.full(name)), what),
            }
        }
        parsed
    }

    /// A table within this one; an empty one at this one's place when absent.
    pub(super) fn section(&mut self, name: &'static str) -> Section<'p> {
        let table = match self.take(name).map(|entry| entry.value) {
            None => Table::empty(self.place.clone()),
            Some(Value::Table(table)) => table,
            Some(other) => {
                self.wrong(name, format!("{}; this is a table: write [{}]", other.describe(), self.full(name)));
                Table::empty(self.place.clone())
            }
        };
        Self::new(self.full(name), table, self.problems)
    }

    /// An array of tables; empty when absent.
    pub(super) fn sections(&mut self, name: &'static str) -> Vec<Section<'p>> {
        let items = match self.take(name).map(|entry| entry.value) {
            None => return Vec::new(),
            Some(Value::List(items)) => items,
            Some(other) => {
                let what = format!("{}; write [[{}]] in the file, once for each", other.describe(), self.full(name));
                self.wrong(name, what);
                return Vec::new();
            }
        };
        let mut sections = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            let path = format!("{}[{index}]", self.full(name));
            match item.value {
                Value::Table(table) => {
                    // The header of an array's table is known to the array alone.
                    let table = Table { place: item.place, ..table };
                    sections.push(Self::new(path, table, self.problems));
                }
                other => self.problems.add(item.place, path, format!("{}; this is a table", other.describe())),
            }
        }
        sections
    }

    /// Refuses what nobody asked for. `later` are fields that a later version will know.
    pub(super) fn finish(&self, later: &[&str]) {
        for (name, entry) in &self.left {
            let what = if later.contains(&name.as_str()) {
                "is not in this version: leave it out".to_owned()
            } else {
                let known: Vec<&str> = self.asked.keys().copied().collect();
                format!("there is no such field; known here: {}", known.join(", "))
            };
            self.problems.add(entry.place.clone(), self.full(name), what);
        }
    }
}

fn is_digits(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A duration as a configuration has it, in the largest unit that it is whole in.
pub fn written_duration(ns: u64) -> String {
    let units = [(86_400 * SECOND, "d"), (3600 * SECOND, "h"), (60 * SECOND, "m"), (SECOND, "s"), (MS, "ms")];
    match units.into_iter().find(|(unit, _)| ns >= *unit && ns.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ns / unit),
        None => format!("{}ms", ns / MS),
    }
}
