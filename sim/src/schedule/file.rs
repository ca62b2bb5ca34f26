//! Schedules as files: JSON, one event a line, so that what was left out shows in a diff.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Schedule, What};

/// The version of the files; another one is refused.
pub const VERSION: u32 = 1;

/// Why a file is not a schedule.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// It is no JSON, or something in it is missing, unknown or of the wrong kind.
    #[error("{0}: {1}")]
    Json(PathBuf, serde_json::Error),
    /// It is of another version.
    #[error("{path}: a schedule of version {theirs}, this simulation reads {VERSION}")]
    Version {
        /// Which file.
        path: PathBuf,
        /// What it says.
        theirs: u64,
    },
    /// It names something that is not there.
    #[error("{0}: {1}")]
    Wrong(PathBuf, String),
}

/// Reads a schedule.
///
/// # Errors
/// When the file is not there or not a schedule of this version.
pub fn read(path: &Path) -> Result<Schedule, FileError> {
    let bad = |error| FileError::Json(path.to_owned(), error);
    let text = std::fs::read_to_string(path).map_err(|error| FileError::Io(path.to_owned(), error))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(bad)?;
    let theirs = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if theirs != u64::from(VERSION) {
        return Err(FileError::Version { path: path.to_owned(), theirs });
    }
    let mut schedule: Schedule = serde_json::from_str(&text).map_err(bad)?;
    schedule.sort();
    schedule.check().map_err(|wrong| FileError::Wrong(path.to_owned(), wrong))?;
    Ok(schedule)
}

/// The text of a schedule's file.
pub fn write(schedule: &Schedule) -> String {
    let mut head = schedule.clone();
    let events = std::mem::take(&mut head.events);
    let head = json(&head);
    let mut text = format!("{}\"events\":[", head.trim_end_matches("\"events\":[]}"));
    for (at, event) in events.iter().enumerate() {
        text.push_str(if at == 0 { "\n" } else { ",\n" });
        text.push_str(&json(event));
    }
    text.push_str("\n]}\n");
    text
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data can be written as JSON")
}

impl Schedule {
    /// Whether all that the events name is there.
    fn check(&self) -> Result<(), String> {
        self.checked_limits().map_err(|error| format!("limits: {error}"))?;
        let nodes = self.nodes.len();
        if nodes == 0 || self.keys.iter().any(|key| key.limit >= self.limits.len()) {
            return Err("a schedule has nodes, and keys of limits that it has".to_owned());
        }
        for (at, event) in self.events.iter().enumerate() {
            let known = match &event.what {
                What::Ask(ask) => ask.node < nodes && ask.key < self.keys.len(),
                What::Cut { from, to } | What::Heal { from, to } => *from < nodes && *to < nodes && from != to,
                What::Weather(_) => true,
                What::Limit { node, limit, spec } => {
                    spec.check().map_err(|error| format!("events[{at}]: {error}"))?;
                    *node < nodes && self.limits.get(*limit).is_some_and(|limit| limit.name == spec.name)
                }
                What::Crash { node }
                | What::Start { node, .. }
                | What::Copy { node }
                | What::Disk { node, .. }
                | What::Damage { node, .. }
                | What::Step { node, .. }
                | What::Pause { node }
                | What::Resume { node }
                | What::Stranger { node, .. } => *node < nodes,
            };
            if !known {
                return Err(format!("events[{at}] names a node, key or limit that is not there: {}", json(event)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::{SCENARIOS, draw};

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        for scenario in SCENARIOS {
            let schedule = draw(scenario, 7);
            let path = folder.path().join("schedule.json");
            std::fs::write(&path, write(&schedule)).expect("a file");
            assert_eq!(read(&path).expect("a schedule"), schedule);
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let good = write(&draw(&SCENARIOS[0], 7));
        let (first, other) =
            (good.replacen("\"version\":1", "\"version\":9", 1), good.replace("\"node\":0", "\"node\":77"));
        for (text, why) in [(first, "version 9"), (other, "is not there"), ("[".to_owned(), "EOF")] {
            let path = folder.path().join("schedule.json");
            std::fs::write(&path, text).expect("a file");
            let told = read(&path).expect_err("no schedule").to_string();
            assert!(told.contains(why) && told.contains("schedule.json"), "{told}");
        }
        assert!(read(&folder.path().join("nothing")).is_err());
    }
}
