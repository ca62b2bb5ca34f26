//! All limits of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Limit, LimitName};

/// Limits a node holds at most.
pub const MAX_LIMITS: usize = 10_000;

/// A name that stands twice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the limit {0:?} is defined twice")]
pub struct DuplicateLimit(pub LimitName);

/// Limits by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitSet(BTreeMap<LimitName, Arc<Limit>>);

impl LimitSet {
    /// All of `limits`, unless two share a name.
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Result<Self, DuplicateLimit> {
        let mut set = BTreeMap::new();
        for limit in limits {
            let name = limit.name.clone();
            if set.insert(name.clone(), Arc::new(limit)).is_some() {
                return Err(DuplicateLimit(name));
            }
        }
        Ok(Self(set))
    }

    /// All of `limits`; of those that share a name the last.
    pub fn of(limits: impl IntoIterator<Item = Arc<Limit>>) -> Self {
        Self(limits.into_iter().map(|limit| (limit.name.clone(), limit)).collect())
    }

    /// The limit of this name.
    pub fn get(&self, name: &LimitName) -> Option<&Arc<Limit>> {
        self.0.get(name)
    }

    /// By name, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Limit>> {
        self.0.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
