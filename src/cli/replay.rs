//! `tidegate replay`.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind};
use std::path::Path;

use tokio::time::Instant;

use super::{Failure, print};
use crate::config;
use crate::limits::LimitSet;
use crate::replay::{self, ReplayError};

/// Decides a trace by the limits of a file. To standard output go the answers, or what they come to.
pub(super) fn run(limits: &Path, trace: Option<&Path>, summary: bool) -> Result<(), Failure> {
    let limits = config::load_limits(limits)?;
    let (from, name): (Box<dyn BufRead>, _) = match trace {
        None => (Box::new(std::io::stdin().lock()), "standard input".to_owned()),
        Some(path) => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| Failure::cannot(format!("{name}: {error}")))?;
            (Box::new(BufReader::new(file)), name)
        }
    };
    let failure = |error: ReplayError| Failure::cannot(format!("{name}: {error}"));
    match summary {
        true => summarise(limits, from, failure),
        false => answer(limits, from, failure),
    }
}

fn answer(limits: LimitSet, trace: impl BufRead, failure: impl FnOnce(ReplayError) -> Failure) -> Result<(), Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match replay::run(limits, trace, &mut out) {
        // Who stopped reading has seen enough.
        Err(ReplayError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        replayed => replayed.map_err(failure),
    }
}

fn summarise(
    limits: LimitSet,
    trace: impl BufRead,
    failure: impl FnOnce(ReplayError) -> Failure,
) -> Result<(), Failure> {
    let start = Instant::now();
    let summary = replay::summarise(limits, trace).map_err(failure)?;
    let took = start.elapsed();
    print(&format!("{summary}\n{} requests in {:.1} s\n", summary.requests(), took.as_secs_f64()))
}
