//! `tidegate replay`.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::path::Path;

use super::Failure;
use crate::config;
use crate::replay::{self, ReplayError};

/// Decides a trace by the limits of a file; answers go to standard output.
pub(super) fn run(limits: &Path, trace: Option<&Path>) -> Result<(), Failure> {
    let limits = config::load_limits(limits)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let replayed = match trace {
        None => replay::run(limits, std::io::stdin().lock(), &mut out),
        Some(path) => {
            let file = File::open(path).map_err(|error| Failure::cannot(format!("{}: {error}", path.display())))?;
            replay::run(limits, BufReader::new(file), &mut out)
        }
    };
    let name = trace.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
    match replayed.and_then(|()| out.flush().map_err(ReplayError::Write)) {
        Ok(()) => Ok(()),
        // Who stopped reading has seen enough.
        Err(ReplayError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::cannot(format!("{name}: {error}"))),
    }
}
