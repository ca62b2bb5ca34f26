//! The data folder: made when missing, and held by one process at a time.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::path::Path;

use super::StoreError;

/// Locked while a process uses the folder. Never removed: its name must stand for one file for ever.
const LOCK_FILE: &str = "lock";

/// A folder that is this process's own.
pub(super) struct Claim(File);

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread is just starting holds the lock until it runs its program.
        let _ = self.0.unlock();
    }
}

/// Makes sure of the folder and of being its only user, until the claim is dropped.
pub(super) fn claim(dir: &Path) -> Result<Claim, StoreError> {
    make(dir)?;
    lock(dir)
}

fn make(dir: &Path) -> Result<(), StoreError> {
    if dir.exists() && !dir.is_dir() {
        return Err(failed(dir, "it is not a folder".into()));
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    // It holds the hash secret of a node without a cluster.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(|e| failed(dir, format!("the folder cannot be made: {e}")))
}

fn lock(dir: &Path) -> Result<Claim, StoreError> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK_FILE));
    let file = file.map_err(|e| failed(dir, format!("the folder is not writable: {e}")))?;
    match file.try_lock() {
        Ok(()) => Ok(Claim(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: shown(dir) }),
        Err(TryLockError::Error(e)) => Err(failed(dir, format!("the folder cannot be locked: {e}"))),
    }
}

pub(super) fn shown(dir: &Path) -> String {
    dir.display().to_string()
}

pub(super) fn failed(dir: &Path, problem: String) -> StoreError {
    StoreError::Io { path: shown(dir), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_also_while_a_child_that_is_being_started_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let claimed = claim(folder.path()).unwrap();
        // A fork has what this has: another number for the same open file.
        let of_the_child = claimed.0.try_clone().unwrap();
        assert!(matches!(claim(folder.path()), Err(StoreError::Locked { .. })));
        drop(claimed);
        assert!(claim(folder.path()).is_ok());
        drop(of_the_child);
    }
}
