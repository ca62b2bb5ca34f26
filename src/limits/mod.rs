//! Limits: what an operator may ask for, checked into types that cannot be wrong, and the shapes of their state.
//!
//! [`LimitSpec`] is the definition as written; [`Limit`] is one that was found valid; [`LimitSet`] is all of a node's.

mod limit;
mod set;
mod shape;
mod spec;
mod written;

pub use limit::{Algorithm, Enforce, Limit, LimitName, MAX_LIMIT, OnFull, Policy};
pub use set::{DuplicateLimit, LimitSet, MAX_LIMITS};
pub use shape::{MIN_MARK_KEPT_NS, Retention, Shape};
pub use spec::{LATER_FIELDS, LimitSpec, MAX_SLOTS, SpecError, parse_duration};
