//! What is wrong with a configuration, and where.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};

/// Problems shown at most; the rest is counted.
const MAX_SHOWN: usize = 20;

/// Where a value was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A line of the file, from 1.
    Line(usize),
    /// An environment variable.
    Variable(String),
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The field, as `limits[0].window`; empty when it is about no field.
    pub field: String,
    /// What is wrong and what would be right.
    pub what: String,
}

/// All that is wrong with a configuration: one line each, with file, line and field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file, where there is one.
    pub file: Option<PathBuf>,
    /// In the order of the file; never empty.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// A file that cannot be read at all.
    pub(super) fn whole(file: &Path, what: impl Into<String>) -> Self {
        Self::one(file, Place::File, what)
    }

    /// One problem that concerns no field.
    pub(super) fn one(file: &Path, place: Place, what: impl Into<String>) -> Self {
        let problem = Problem { place, field: String::new(), what: what.into() };
        Self { file: Some(file.to_owned()), problems: vec![problem] }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().take(MAX_SHOWN).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match (&problem.place, &self.file) {
                (Place::Variable(name), _) => write!(f, "{name}: ")?,
                (Place::Line(line), Some(file)) => write!(f, "{}:{line}: ", file.display())?,
                (Place::Line(line), None) => write!(f, "line {line}: ")?,
                (Place::File, Some(file)) => write!(f, "{}: ", file.display())?,
                (Place::File, None) => {}
            }
            if !problem.field.is_empty() {
                write!(f, "{}: ", problem.field)?;
            }
            f.write_str(&problem.what)?;
        }
        match self.problems.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n... and {more} more"),
        }
    }
}

/// Where problems are collected while the rest is read, so that one look at a file tells all of them.
#[derive(Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(super) fn add(&self, place: Place, field: String, what: impl Into<String>) {
        self.0.borrow_mut().push(Problem { place, field, what: what.into() });
    }

    pub(super) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// `value`, if nothing was found wrong.
    pub(super) fn none_or<T>(self, file: Option<&Path>, value: T) -> Result<T, ConfigError> {
        let mut problems = self.0.into_inner();
        if problems.is_empty() {
            return Ok(value);
        }
        problems.sort();
        Err(ConfigError { file: file.map(Path::to_owned), problems })
    }
}
