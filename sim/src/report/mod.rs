//! Runs in figures: each by itself, and many together.
//!
//! A run is a [`Report`]. A sweep is a [`Document`] of them, which a file keeps; [`groups`] puts many runs together,
//! [`table`], [`plots`] and [`docs`] show them.

pub mod docs;
mod document;
pub mod groups;
mod keys;
mod kinds;
pub mod plots;
pub mod promises;
mod run;
pub mod table;

pub use document::{Document, Failed, StateCount};
pub use keys::{KeyFigures, answered, one_limiter};
pub use kinds::Kind;
pub use promises::Held;
pub use run::{Report, summary};

/// To two digits: figures are read by people, and kept by the ten thousand.
fn two(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}
