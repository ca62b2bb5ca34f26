//! `[[limits]]`.

use std::collections::BTreeMap;

use super::overrides::Overriding;
use super::problem::{Place, Problems};
use super::section::Section;
use super::tree::{Entry, Value};
use crate::limits::{LATER_FIELDS, Limit, LimitName, LimitSet, LimitSpec, MAX_LIMITS, SpecError};

/// Reads all limits of a document.
pub(super) fn read(root: &mut Section<'_>, problems: &Problems) -> LimitSet {
    let sections = root.sections("limits");
    if sections.len() > MAX_LIMITS {
        root.wrong("limits", format!("{} are too many: at most {MAX_LIMITS}", sections.len()));
    }
    let mut overriding = Overriding::read(root);
    let mut limits: BTreeMap<LimitName, (Limit, Place)> = BTreeMap::new();
    for mut section in sections.into_iter().take(MAX_LIMITS) {
        let limit = read_one(&mut section, &mut overriding, problems);
        section.finish(&LATER_FIELDS);
        let Some(limit) = limit else { continue };
        match limits.get(&limit.name) {
            Some((_, first)) => {
                let at = if let Place::Line(line) = first { format!(", in line {line}") } else { String::new() };
                section.wrong("name", format!("\"{}\" is defined already{at}", limit.name));
            }
            None => {
                limits.insert(limit.name.clone(), (limit, section.place().clone()));
            }
        }
    }
    overriding.finish();
    LimitSet::new(limits.into_values().map(|(limit, _)| limit)).expect("the names are keys of a map")
}

fn read_one<'p>(section: &mut Section<'p>, overriding: &mut Overriding<'p>, problems: &Problems) -> Option<Limit> {
    let before = problems.count();
    let name = section.text("name", "a limit's name").unwrap_or_default();
    let when = section.any("when");
    let (keys, overrides) = overriding.take(&name);
    let spec = LimitSpec {
        name,
        algorithm: section.text("algorithm", "the name of an algorithm, e.g. \"sliding_window\""),
        limit: section.integer("limit"),
        window: section.text("window", "a duration, e.g. \"60s\""),
        slots: section.integer("slots"),
        align: section.text("align", "\"epoch\" or \"calendar\""),
        time_zone: section.text("time_zone", "a name of the IANA database, e.g. \"Europe/Berlin\""),
        burst: section.integer("burst"),
        queue: section.text("queue", "a duration, e.g. \"500ms\""),
        enforce: section.text("enforce", "\"deny\" or \"shadow\""),
        consistency: section.text("consistency", "\"eventual\""),
        max_keys: section.integer("max_keys"),
        on_full: section.text("on_full", "\"allow\" or \"deny\""),
        key: section.text("key", "a template of a key, e.g. \"{user}\""),
        key_type: section.text("key_type", "\"text\" or \"ip\""),
        ipv4_prefix: section.integer("ipv4_prefix"),
        ipv6_prefix: section.integer("ipv6_prefix"),
        when: when.as_ref().map(|when| conditions(section, when)).unwrap_or_default(),
        overrides,
    };
    if problems.count() > before {
        return None;
    }
    spec.check().map_err(|error| report(section, when.as_ref(), &keys, error)).ok()
}

fn conditions(section: &Section<'_>, when: &Entry) -> BTreeMap<String, serde_json::Value> {
    let Value::Table(fields) = &when.value else {
        let like = "this is a table: write e.g. when = { plan = \"free\" }";
        section.wrong("when", format!("{}; {like}", when.value.describe()));
        return BTreeMap::new();
    };
    fields.entries.iter().map(|(field, condition)| (field.clone(), condition.json())).collect()
}

/// Tells what is wrong with a definition where it was written. `keys`: the tables of its overrides.
fn report(section: &Section<'_>, when: Option<&Entry>, keys: &[Section<'_>], error: SpecError) {
    let SpecError { field, problem } = error;
    if let (Some(path), Some(when)) = (field.strip_prefix("when."), when) {
        return section.wrong_inside(&field, &when.below(path).place, problem);
    }
    let of_key = field.strip_prefix("overrides[").and_then(|rest| rest.split_once("]."));
    match of_key.and_then(|(index, field)| Some((keys.get(index.parse::<usize>().ok()?)?, field))) {
        Some((key, field)) => key.wrong(field, problem),
        None => section.wrong(&field, problem),
    }
}
