//! Limits: what an operator may ask for, checked into types that cannot be wrong, and the shapes of their state.
//!
//! [`LimitSpec`] is the definition as written; [`Limit`] is one that was found valid; [`LimitSet`] is all of a node's.
//! [`Keying`] finds the limits of a request that only describes itself, and its key under each.

mod address;
mod descriptors;
mod keying;
mod limit;
mod overrides;
mod set;
mod shape;
mod spec;
mod template;
pub mod when;
mod written;

pub use address::Prefixes;
pub use descriptors::{DescriptorError, Descriptors, FIELD_PATTERN, MAX_DESCRIPTORS, MAX_FIELD_BYTES, MAX_VALUE_BYTES};
pub use keying::Keying;
pub use limit::{Algorithm, Enforce, Limit, LimitName, MAX_LIMIT, OnFull, Policy};
pub use overrides::{MAX_OVERRIDES, OverrideSpec, Overrides};
pub use set::{DuplicateLimit, LimitSet, MAX_LIMITS};
pub use shape::{MIN_MARK_KEPT_NS, Retention, Shape};
pub use spec::{LATER_FIELDS, LimitSpec, MAX_SLOTS, SpecError, parse_duration};
pub use template::{KeyTemplate, MAX_TEMPLATE_BYTES, MAX_TEMPLATE_FIELDS};
pub use when::{MAX_CONDITIONS, MAX_GLOB_BYTES, MAX_TEXTS};
