//! `tidegate-sim replay`: a schedule from a file.

use std::path::PathBuf;

use anyhow::Context;
use tidegate_sim::report::Report;
use tidegate_sim::run::Tier;
use tidegate_sim::schedule;
use tidegate_sim::trace::Trace;

use super::failure::{self, Failure};
use super::run::print;

/// What is asked of `replay`.
#[derive(clap::Args)]
pub struct ReplayArgs {
    /// Files with a schedule each.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Whole nodes over real QUIC, or nodes by hand.
    #[arg(long, value_enum, default_value_t = Tier::Protocol)]
    tier: Tier,
    /// One JSON document a run instead of a table.
    #[arg(long)]
    json: bool,
    /// Write every event of the run to this file (of the last run, with several files).
    #[arg(long)]
    trace: Option<PathBuf>,
}

/// Whether every property held.
pub fn replay(args: &ReplayArgs) -> anyhow::Result<bool> {
    if !args.json {
        println!("{}", Report::heading());
    }
    let mut clean = true;
    for file in &args.files {
        let schedule = schedule::read(file)?;
        let trace = match &args.trace {
            None => Trace::new(),
            Some(path) => Trace::to_file(path).with_context(|| format!("--trace {}", path.display()))?,
        };
        let failure = match failure::run(args.tier, schedule.clone(), trace) {
            Ok((_, report)) => {
                print(args.json, &report);
                Failure::of(&schedule, &report)
            }
            Err(failure) => Some(*failure),
        };
        clean &= failure.is_none();
        if let Some(failure) = failure {
            eprintln!("{} failed in the {} tier:", file.display(), args.tier.name());
            failure.broken.iter().for_each(|broken| eprintln!("{broken}"));
        }
    }
    Ok(clean)
}
