//! `tidegate-sim`: runs schedules by seed or from files, and tells what they came to.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
