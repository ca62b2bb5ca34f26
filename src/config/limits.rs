//! `[[limits]]`.

use std::collections::BTreeMap;

use super::problem::{Place, Problems};
use super::section::Section;
use crate::limits::{LATER_FIELDS, Limit, LimitName, LimitSet, LimitSpec, MAX_LIMITS};

/// Fields of matching and of keys that are addresses, which a later version will know too.
const LATER_HERE: [&str; 4] = ["when", "key", "key_type", "ipv6_prefix"];

/// Reads all limits of a document.
pub(super) fn read(root: &mut Section<'_>, problems: &Problems) -> LimitSet {
    let sections = root.sections("limits");
    if sections.len() > MAX_LIMITS {
        root.wrong("limits", format!("{} are too many: at most {MAX_LIMITS}", sections.len()));
    }
    let later: Vec<&str> = LATER_FIELDS.iter().chain(&LATER_HERE).copied().collect();
    let mut limits: BTreeMap<LimitName, (Limit, Place)> = BTreeMap::new();
    for mut section in sections.into_iter().take(MAX_LIMITS) {
        let limit = read_one(&mut section, problems);
        section.finish(&later);
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
    LimitSet::new(limits.into_values().map(|(limit, _)| limit)).expect("the names are keys of a map")
}

fn read_one(section: &mut Section<'_>, problems: &Problems) -> Option<Limit> {
    let before = problems.count();
    let spec = LimitSpec {
        name: section.text("name", "a limit's name").unwrap_or_default(),
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
    };
    if problems.count() > before {
        return None;
    }
    spec.check().map_err(|error| section.wrong(error.field, error.problem)).ok()
}
