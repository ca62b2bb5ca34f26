//! The commands of `tidegate-sim`.

mod failure;
mod list;
mod matrix;
#[cfg(feature = "planted")]
mod meta;
mod replay;
mod report;
mod run;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Deterministic simulation of tidegate clusters.
#[derive(Parser)]
#[command(name = "tidegate-sim")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run seeds of one scenario and print what each came to. Exit code 0: every property holds; 1: one is broken.
    Run(run::RunArgs),
    /// Run many seeds through all scenarios and print what they came to together. Exit code 0: every property holds, and
    /// with all faults and at least 1,000 seeds in the protocol tier or 100 in the node tier every state was reached that
    /// the tier can reach; 1: otherwise.
    Sweep(sweep::SweepArgs),
    /// Write tables and plots of what sweeps came to, each promise beside what was measured of it. Exit code 1: a sweep had
    /// failures.
    Report(report::ReportArgs),
    /// Run a grid of clocks or cuts, windows and algorithms, and print a table.
    Matrix(matrix::MatrixArgs),
    /// Run a schedule from a file.
    Replay(replay::ReplayArgs),
    /// Plant bugs in the product and see that the checks find them.
    #[cfg(feature = "planted")]
    Meta(meta::MetaArgs),
    /// Say which scenarios, faults, properties and states there are.
    List,
}

/// Which faults may be drawn.
#[derive(clap::Args, Clone, Debug)]
pub struct SwitchArgs {
    /// Only these faults, of those that the scenario has; may be repeated.
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// Not these faults; may be repeated.
    #[arg(long, value_name = "FAULT")]
    without: Vec<String>,
}

impl Cli {
    /// Does what is asked.
    pub fn run(self) -> ExitCode {
        if std::env::var_os("RUST_LOG").is_some() {
            let filter = tracing_subscriber::EnvFilter::from_default_env();
            tracing_subscriber::fmt()
                .with_env_filter(filter)
                .with_timer(VirtualTime)
                .with_writer(std::io::stderr)
                .init();
        }
        let clean = match self.command {
            Command::Run(args) => run::run(&args),
            Command::Sweep(args) => sweep::sweep(&args),
            Command::Report(args) => report::report(&args),
            Command::Matrix(args) => matrix::matrix(&args),
            Command::Replay(args) => replay::replay(&args),
            #[cfg(feature = "planted")]
            Command::Meta(args) => meta::meta(&args),
            Command::List => {
                list::list();
                Ok(true)
            }
        };
        match clean {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::from(2)
            }
        }
    }
}

impl SwitchArgs {
    /// Whether all faults may be drawn.
    fn are_empty(&self) -> bool {
        self.only.is_empty() && self.without.is_empty()
    }

    /// As the scenarios want it.
    ///
    /// # Errors
    /// When there is no such fault.
    fn switches(&self, tier: tidegate_sim::run::Tier) -> anyhow::Result<tidegate_sim::scenarios::Switches> {
        for name in self.only.iter().chain(&self.without) {
            if tidegate_sim::faults::find(name).is_none() {
                let known: Vec<&str> = tidegate_sim::faults::FAULTS.iter().map(|fault| fault.name).collect();
                anyhow::bail!("there is no fault {name:?}; known are {}", known.join(", "));
            }
        }
        let node_tier = tier == tidegate_sim::run::Tier::Node;
        Ok(tidegate_sim::scenarios::Switches { only: self.only.clone(), without: self.without.clone(), node_tier })
    }
}

/// How many runs go on at a time, as asked for; 0: one a processor.
fn threads(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Log lines of the node tier bear the time of the run.
struct VirtualTime;

impl FormatTime for VirtualTime {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        match turmoil::sim_elapsed() {
            Some(elapsed) => write!(w, "{:>6} ms", elapsed.as_millis()),
            None => write!(w, "        -"),
        }
    }
}
