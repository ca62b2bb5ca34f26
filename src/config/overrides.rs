//! `[[overrides]]`: keys that have their own allowance, each named with its limit.

use std::collections::BTreeMap;

use super::section::Section;
use crate::limits::{MAX_OVERRIDES, OverrideSpec};

/// The overrides of a document by the limit they are of, each with its table.
#[derive(Default)]
pub(super) struct Overriding<'p>(BTreeMap<String, Vec<(Section<'p>, OverrideSpec)>>);

impl<'p> Overriding<'p> {
    /// Reads all of them.
    pub(super) fn read(root: &mut Section<'p>) -> Self {
        let sections = root.sections("overrides");
        if sections.len() > MAX_OVERRIDES {
            root.wrong("overrides", format!("{} are too many: at most {MAX_OVERRIDES}", sections.len()));
        }
        let mut all = Self::default();
        for mut section in sections.into_iter().take(MAX_OVERRIDES) {
            let of = section.text("of", "the name of a limit");
            let spec = OverrideSpec {
                key: section.text("key", "a key of that limit").unwrap_or_default(),
                limit: section.integer("limit"),
                window: section.text("window", "a duration, e.g. \"60s\""),
                burst: section.integer("burst"),
            };
            section.require("of", &of, "the name of the limit that this key has its own allowance of");
            section.finish(&[]);
            if let Some(of) = of {
                all.0.entry(of).or_default().push((section, spec));
            }
        }
        all
    }

    /// Those of a limit, which is asked for once.
    pub(super) fn take(&mut self, limit: &str) -> (Vec<Section<'p>>, Vec<OverrideSpec>) {
        self.0.remove(limit).unwrap_or_default().into_iter().unzip()
    }

    /// Refuses those that nobody took.
    pub(super) fn finish(self) {
        for (of, overrides) in self.0 {
            for (section, _) in overrides {
                section.wrong("of", format!("no limit is called {of:?}: name one of this file's [[limits]]"));
            }
        }
    }
}
