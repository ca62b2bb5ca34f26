//! The log. (Metrics are the API's: they are read where they are served.)

use std::env::VarError;
use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable that says what is logged, e.g. `debug` or `info,tidegate::transport=debug`.
pub const FILTER_VARIABLE: &str = "RUST_LOG";

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The variable is no filter.
    #[error("{FILTER_VARIABLE}: {0}; write e.g. \"info\" or \"info,tidegate::transport=debug\"")]
    Filter(String),
    /// The process logs already.
    #[error("the log was started twice")]
    Twice,
}

/// Starts the log of this process on standard error. Without the variable `default` says what is logged.
pub fn init_logs(default: &str) -> Result<(), LogError> {
    let written = match std::env::var(FILTER_VARIABLE) {
        Ok(filter) => filter,
        Err(VarError::NotPresent) => default.to_owned(),
        Err(error @ VarError::NotUnicode(_)) => return Err(LogError::Filter(error.to_string())),
    };
    let filter = EnvFilter::try_new(&written).map_err(|error| LogError::Filter(error.to_string()))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(stderr().is_terminal());
    // What cannot be written (a full disk, a reader that is gone) is lost; complaining of it on the same standard error
    // would panic, and a node must not end for want of a log.
    log.log_internal_errors(false).finish().try_init().map_err(|_| LogError::Twice)
}
