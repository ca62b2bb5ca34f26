//! `tidegate-sim run`: runs scenarios by seed and prints what they came to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_sim::report::{Report, summary};
use tidegate_sim::scenario::{Name, Scenario};
use tidegate_sim::trace::Trace;
use tidegate_sim::world;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Deterministic simulation of tidegate clusters.
#[derive(Parser)]
#[command(name = "tidegate-sim")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a scenario. Exit code 0: every property holds; 1: one is broken.
    Run(RunArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// What happens.
    #[arg(long, value_enum)]
    scenario: Name,
    /// Draws everything.
    #[arg(long)]
    seed: u64,
    /// How many seeds, from --seed on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// One JSON document a run instead of a table.
    #[arg(long)]
    json: bool,
    /// Write every event of the run to this file (of the last run, with --seeds).
    #[arg(long)]
    trace: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Command::Run(args) = Cli::parse().command;
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).with_timer(VirtualTime).with_writer(std::io::stderr).init();
    }
    if !args.json {
        println!("{}", Report::heading());
    }
    let (mut reports, mut clean) = (Vec::new(), true);
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let scenario = Scenario::draw(args.scenario, seed);
        let broken = match catch_unwind(AssertUnwindSafe(|| report(scenario.clone(), args.trace.as_deref()))) {
            Ok(Ok(report)) => {
                print(&args, &report);
                reports.push(report);
                reports.last().map_or(Vec::new(), |report| report.broken.clone())
            }
            Ok(Err(error)) => vec![format!("{error:#}")],
            Err(_) => vec!["a task panicked; what it said stands above".to_owned()],
        };
        clean &= broken.is_empty();
        tell_failure(&scenario, &broken);
    }
    if !args.json && args.seeds > 1 {
        println!("{}", summary(&reports));
    }
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Log lines bear the time of the run.
struct VirtualTime;

impl FormatTime for VirtualTime {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        match turmoil::sim_elapsed() {
            Some(elapsed) => write!(w, "{:>6} ms", elapsed.as_millis()),
            None => write!(w, "        -"),
        }
    }
}

/// Tells what broke, what was to happen, and how to see it again.
fn tell_failure(scenario: &Scenario, broken: &[String]) {
    if broken.is_empty() {
        return;
    }
    let seed = scenario.seed;
    let name = format!("{:?}", scenario.name).to_lowercase();
    eprintln!("seed {seed} of {name} failed:");
    broken.iter().for_each(|what| eprintln!("  {what}"));
    match serde_json::to_string(scenario) {
        Ok(schedule) => eprintln!("schedule: {schedule}"),
        Err(error) => eprintln!("the schedule cannot be shown: {error}"),
    }
    eprintln!("again: cargo run --release -p tidegate-sim -- run --scenario {name} --seed {seed}");
}

fn report(scenario: Scenario, trace: Option<&Path>) -> anyhow::Result<Report> {
    let trace = trace.map_or_else(|| Ok(Trace::new()), Trace::to_file)?;
    world::run(scenario, trace).map(|run| Report::of(&run))
}

fn print(args: &RunArgs, report: &Report) {
    if args.json {
        println!("{}", serde_json::to_string(report).expect("a report is plain figures and text"));
    } else {
        println!("{}", report.row());
    }
}
