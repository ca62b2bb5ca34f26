//! The limits in force: those of the node's own file, and beside them those that were made at run time, anywhere.
//!
//! The file of a node goes first. Over the API a limit is only made, changed or deleted where no file that is known of
//! defines it; whoever's file takes up its name later has what the file says.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shared::{Core, Shared};
use crate::api::{DefineError, Definer};
use crate::codec::MAX_DEFINITION_BYTES;
use crate::crdt::{MAX_REGISTRY_BYTES, Registry};
use crate::limits::{Limit, LimitName, LimitSet, LimitSpec, MAX_LIMITS};

/// The limits of the file and those made at run time.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    pub file: LimitSet,
    made: BTreeMap<LimitName, Arc<Limit>>,
    /// Definitions of later versions, which this one cannot read, by name: kept, passed on, not in force.
    unread: BTreeMap<String, String>,
}

impl Definitions {
    /// Those of a file, and what the journal remembers.
    pub fn new(file: LimitSet, registry: &Registry) -> Self {
        let mut definitions = Self { file, ..Self::default() };
        registry.iter().for_each(|(name, _)| definitions.follow(name, registry));
        definitions
    }

    /// What was written of a limit changed.
    pub fn follow(&mut self, name: &str, registry: &Registry) {
        self.unread.remove(name);
        let Some(limit_name) = LimitName::new(name) else { return };
        self.made.remove(&limit_name);
        let Some(text) = registry.get(name).and_then(|written| written.value.as_ref()) else { return };
        match read(&limit_name, text) {
            Ok(limit) => _ = self.made.insert(limit_name, Arc::new(limit)),
            Err(problem) => {
                tracing::warn!(limit = name, problem, "a limit made at run time cannot be read here");
                self.unread.insert(name.to_owned(), problem);
            }
        }
    }

    /// Those in force, at most [`MAX_LIMITS`]: all of the file, then by name.
    pub fn in_force(&self) -> LimitSet {
        let beside = self.made.values().filter(|limit| self.file.get(&limit.name).is_none());
        let all = self.file.iter().chain(beside).take(MAX_LIMITS).cloned();
        LimitSet::of(all)
    }

    /// What is not as whoever made them would expect.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let hidden = self.made.keys().filter(|name| self.file.get(name).is_some());
        let hidden = hidden.map(|name| {
            format!("the limit \"{name}\" was made at run time, but this node's file defines it too, and goes first")
        });
        let unread = self.unread.iter().map(|(name, problem)| {
            format!("the limit {name:?}, made at run time elsewhere, cannot be read by this version: {problem}")
        });
        hidden.chain(unread)
    }
}

fn read(name: &LimitName, text: &str) -> Result<Limit, String> {
    let spec = LimitSpec::read(&mut serde_json::Deserializer::from_str(text)).map_err(|e| e.to_string())?;
    let limit = spec.check().map_err(|e| e.to_string())?;
    if limit.name == *name { Ok(limit) } else { Err(format!("it is one of {:?}", limit.name.as_str())) }
}

impl Core {
    /// Puts in force what is defined now.
    fn install(&mut self, shared: &Shared) {
        let limits = self.definitions.in_force();
        self.gossip.set_limits(&limits, &self.definitions.file);
        shared.engine.install(shared.now().slot_ns, limits);
    }

    fn may_define(&self, name: &LimitName) -> Result<(), DefineError> {
        match self.gossip.defined_in_file_of(name.as_str()) {
            Some(node) => Err(DefineError::OfFile(node.clone())),
            None => Ok(()),
        }
    }

    fn write(&mut self, shared: &Shared, name: &LimitName, value: Option<Arc<str>>) -> Result<(), DefineError> {
        let full =
            |_| DefineError::Full(format!("all limits made at run time have at most {MAX_REGISTRY_BYTES} bytes"));
        self.gossip.define(name.as_str(), value, &shared.now()).map_err(full)?;
        self.definitions.follow(name.as_str(), self.gossip.definitions());
        self.install(shared);
        Ok(())
    }
}

impl Shared {
    /// Replaces the limits of the file.
    pub fn install(&self, limits: LimitSet) {
        {
            let mut core = self.core.lock();
            core.definitions.file = limits;
            core.install(self);
        }
        self.wake();
    }

    /// A peer told of limits made at run time.
    pub fn heard_of(&self, names: &[String]) {
        let mut core = self.core.lock();
        let Core { gossip, definitions, .. } = &mut *core;
        names.iter().for_each(|name| definitions.follow(name, gossip.definitions()));
        tracing::info!(limits = names.join(", "), "limits changed at run time");
        core.install(self);
    }
}

impl Definer for Shared {
    fn define(&self, limit: Limit, may: &dyn Fn(Option<&Limit>) -> bool) -> Result<bool, DefineError> {
        let text = LimitSpec::canonical(&limit);
        if text.len() > MAX_DEFINITION_BYTES {
            return Err(DefineError::Full(format!("a definition has at most {MAX_DEFINITION_BYTES} bytes")));
        }
        let created = {
            let mut core = self.core.lock();
            core.may_define(&limit.name)?;
            let in_force = core.definitions.in_force();
            let old = in_force.get(&limit.name);
            if !may(old.map(|old| &**old)) {
                return Err(DefineError::Precondition);
            }
            if old.is_none() && in_force.len() >= MAX_LIMITS {
                return Err(DefineError::Full(format!("a node has at most {MAX_LIMITS} limits")));
            }
            let created = old.is_none();
            core.write(self, &limit.name, Some(text.into()))?;
            created
        };
        tracing::info!(limit = limit.name.as_str(), created, "a limit was defined over the API");
        self.wake();
        Ok(created)
    }

    fn delete(&self, name: &LimitName, may: &dyn Fn(Option<&Limit>) -> bool) -> Result<(), DefineError> {
        {
            let mut core = self.core.lock();
            core.may_define(name)?;
            let in_force = core.definitions.in_force();
            let Some(old) = in_force.get(name) else { return Err(DefineError::Unknown) };
            if !may(Some(&**old)) {
                return Err(DefineError::Precondition);
            }
            core.write(self, name, None)?;
        }
        tracing::info!(limit = name.as_str(), "a limit was deleted over the API");
        self.wake();
        Ok(())
    }

    fn is_of_file(&self, name: &LimitName) -> bool {
        self.core.lock().definitions.file.get(name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crdt::{Stamp, Written};
    use crate::id::NodeName;

    fn spec(name: &str, limit: i64) -> LimitSpec {
        LimitSpec { name: name.into(), limit: Some(limit), window: Some("1s".into()), ..LimitSpec::default() }
    }

    fn registry(values: &[(&str, Option<String>)]) -> Registry {
        let mut registry = Registry::default();
        for (name, value) in values {
            let stamp = Stamp { at_ns: 1, by: NodeName::new("b").unwrap() };
            let value = value.as_deref().map(Into::into);
            registry.merge(name, &Written { stamp, value }).unwrap();
        }
        registry
    }

    #[test]
    fn the_file_goes_first_and_what_cannot_be_read_is_told() {
        let text = |name, limit| Some(LimitSpec::canonical(&spec(name, limit).check().unwrap()));
        let file = LimitSet::new([spec("a", 1).check().unwrap()]).unwrap();
        let made = registry(&[
            ("a", text("a", 9)),
            ("b", text("b", 2)),
            ("c", None),
            ("later", Some(r#"{"name":"later","limit":1,"window":"1s","phase":"full moon"}"#.into())),
            ("other", text("b", 7)),
        ]);
        let definitions = Definitions::new(file, &made);
        let in_force: Vec<_> = definitions.in_force().iter().map(|l| (l.name.to_string(), l.limit)).collect();
        assert_eq!(in_force, [("a".into(), 1), ("b".into(), 2)]);
        let problems: Vec<_> = definitions.problems().collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, says) in problems.iter().zip(["goes first", "unknown field `phase`", "it is one of \"b\""]) {
            assert!(problem.contains(says), "{problem}");
        }
    }
}
