//! `tidegate-sim run`: seeds of one scenario, one by one.

use std::path::PathBuf;

use anyhow::Context;
use tidegate_sim::report::{Report, summary};
use tidegate_sim::run::Tier;
use tidegate_sim::scenarios::{self, SCENARIOS, Scenario, draw_with};
use tidegate_sim::trace::Trace;

use super::SwitchArgs;
use super::failure::{self, Failure};

/// What is asked of `run`.
#[derive(clap::Args)]
pub struct RunArgs {
    /// What happens: a name that `list` tells.
    #[arg(long, value_parser = scenario)]
    scenario: &'static Scenario,
    /// Draws everything.
    #[arg(long)]
    seed: u64,
    /// How many seeds, from --seed on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Whole nodes over real QUIC, or nodes by hand.
    #[arg(long, value_enum, default_value_t = Tier::Node)]
    tier: Tier,
    #[command(flatten)]
    switches: SwitchArgs,
    /// One JSON document a run instead of a table.
    #[arg(long)]
    json: bool,
    /// Write every event of the run to this file (of the last run, with --seeds).
    #[arg(long)]
    trace: Option<PathBuf>,
}

fn scenario(name: &str) -> Result<&'static Scenario, String> {
    let known = || SCENARIOS.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
    scenarios::find(name).ok_or_else(|| format!("there is no such scenario; known are {}", known()))
}

/// Whether every property held.
pub fn run(args: &RunArgs) -> anyhow::Result<bool> {
    let switches = args.switches.switches(args.tier)?;
    if !args.json {
        println!("{}", Report::heading());
    }
    let (mut reports, mut clean) = (Vec::new(), true);
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let schedule = draw_with(args.scenario, seed, &switches);
        let trace = match &args.trace {
            None => Trace::new(),
            Some(path) => Trace::to_file(path).with_context(|| format!("--trace {}", path.display()))?,
        };
        let failure = match failure::run(args.tier, schedule.clone(), trace) {
            Ok((_, report)) => {
                print(args.json, &report);
                let failure = Failure::of(&schedule, &report);
                reports.push(report);
                failure
            }
            Err(failure) => Some(*failure),
        };
        clean &= failure.is_none();
        failure.into_iter().for_each(|failure| failure.tell(true));
    }
    if !args.json && args.seeds > 1 {
        println!("{}", summary(&reports));
    }
    Ok(clean)
}

/// A run as a line, or as a document.
pub fn print(json: bool, report: &Report) {
    if json {
        println!("{}", serde_json::to_string(report).expect("a report is plain figures and text"));
    } else {
        println!("{}", report.row());
    }
}
