//! Following a configuration file: its limits are put in force when it changes, all else but the
//! certificate needs a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::environment::Override;
use super::{ConfigError, MAX_CONFIG_BYTES, files, read_again, text_of};
use crate::limits::LimitSet;

/// A file that changed and was found good.
#[derive(Debug)]
pub struct Reloaded {
    /// Its limits.
    pub limits: LimitSet,
    /// Other fields that are not as they were at the start: they need a restart.
    pub needs_restart: Vec<String>,
}

/// What a file held, or why it could not be read.
type Content = Result<Vec<u8>, String>;

/// Tells changes of what is looked at again and again, each once. A change counts when two looks saw the same, so that a
/// file cut off in the middle of a write never is in force.
#[derive(Debug)]
pub(super) struct Settling<T> {
    /// What was last told of.
    told: T,
    /// What was seen at the last look.
    seen: T,
}

impl<T: Clone + PartialEq> Settling<T> {
    pub(super) fn new(content: T) -> Self {
        Self { told: content.clone(), seen: content }
    }

    /// What changed, when it did and has settled.
    pub(super) fn look(&mut self, content: T) -> Option<T> {
        let settled = content == self.seen;
        self.seen = content;
        (settled && self.seen != self.told).then(|| {
            self.told = self.seen.clone();
            self.told.clone()
        })
    }
}

/// Follows one file by its content, so that it does not matter how it is replaced (in place, by a rename, by a symlink
/// that moves, within the resolution of its time stamp).
#[derive(Debug)]
pub struct LimitsWatcher {
    file: PathBuf,
    overrides: Vec<Override>,
    /// The fields but limits, as written at the start.
    at_start: BTreeMap<String, String>,
    content: Settling<Content>,
}

impl LimitsWatcher {
    pub(super) fn new(
        file: PathBuf,
        text: String,
        at_start: BTreeMap<String, String>,
        overrides: Vec<Override>,
    ) -> Self {
        Self { file, overrides, at_start, content: Settling::new(Ok(text.into_bytes())) }
    }

    /// The file that is followed.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// To be called about once a second: reads the file. None: as before, or still being written.
    pub fn look(&mut self) -> Option<Result<Reloaded, ConfigError>> {
        let content = self.content.look(self.read())?;
        Some(self.parse(content))
    }

    /// Reads the file at once and says what it holds, changed or not: somebody asked for it.
    pub fn reread(&mut self) -> Result<Reloaded, ConfigError> {
        let content = self.read();
        self.content = Settling::new(content.clone());
        self.parse(content)
    }

    fn read(&self) -> Content {
        files::read_bounded(&self.file, MAX_CONFIG_BYTES)
    }

    fn parse(&self, content: Content) -> Result<Reloaded, ConfigError> {
        let bytes = content.map_err(|what| ConfigError::whole(&self.file, what))?;
        let (limits, written) = read_again(&self.file, &text_of(&self.file, bytes)?, &self.overrides)?;
        let fields = self.at_start.keys().chain(written.keys());
        let mut needs_restart: Vec<String> =
            fields.filter(|field| self.at_start.get(*field) != written.get(*field)).cloned().collect();
        needs_restart.sort();
        needs_restart.dedup();
        Ok(Reloaded { limits, needs_restart })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::Config;

    const ONE: &str = "[http]\nmax_body = 2048\n[[limits]]\nname = \"a\"\nlimit = 1\nwindow = \"1s\"\n";

    fn names(read: Option<Result<Reloaded, ConfigError>>) -> Vec<String> {
        read.unwrap().unwrap().limits.iter().map(|limit| limit.name.to_string()).collect()
    }

    fn watched(text: &str) -> (tempfile::TempDir, PathBuf, LimitsWatcher) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.toml");
        fs::write(&file, text).unwrap();
        let watcher = Config::load(Some(&file), []).unwrap().limits_watcher.unwrap();
        (folder, file, watcher)
    }

    #[test]
    fn a_change_counts_once_it_has_settled() {
        let (_folder, file, mut watcher) = watched(ONE);
        assert!(watcher.look().is_none());
        fs::write(&file, "").unwrap();
        assert!(watcher.look().is_none(), "an editor has only begun to write");
        fs::write(&file, ONE.replace("\"a\"", "\"b\"")).unwrap();
        assert!(watcher.look().is_none());
        assert_eq!(names(watcher.look()), ["b"]);
        assert!(watcher.look().is_none(), "it is told once");
    }

    #[test]
    fn a_bad_file_is_told_once_and_a_good_one_mends_it() {
        let (_folder, file, mut watcher) = watched(ONE);
        fs::write(&file, ONE.replace("1s", "1")).unwrap();
        assert!(watcher.look().is_none());
        let told = watcher.look().unwrap().unwrap_err().to_string();
        assert!(told.contains("t.toml:6: limits[0].window: "), "{told}");
        assert!(watcher.look().is_none());
        assert!(watcher.reread().is_err(), "who asks is told again");
        fs::remove_file(&file).unwrap();
        assert!(watcher.look().is_none());
        assert!(watcher.look().unwrap().unwrap_err().to_string().contains("cannot be read"));
        fs::write(&file, ONE).unwrap();
        assert!(watcher.look().is_none());
        assert_eq!(names(watcher.look()), ["a"], "also when it is what it was at the start");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_moves_is_followed() {
        let (folder, file, mut watcher) = watched(ONE);
        let other = folder.path().join("other.toml");
        fs::write(&other, ONE.replace("\"a\"", "\"b\"")).unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        assert!(watcher.look().is_none());
        assert_eq!(names(watcher.look()), ["b"]);
    }

    #[test]
    fn other_fields_are_named_until_they_are_what_they_were() {
        let (_folder, file, mut watcher) = watched(ONE);
        let changed = format!("shutdown_timeout = \"1s\"\n{}", ONE.replace("2048", "4096"));
        fs::write(&file, changed).unwrap();
        assert_eq!(watcher.reread().unwrap().needs_restart, ["http.max_body", "shutdown_timeout"]);
        fs::write(&file, ONE).unwrap();
        assert!(watcher.reread().unwrap().needs_restart.is_empty());
    }
}
