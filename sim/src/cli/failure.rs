//! What is told of a run that failed: what broke, the schedule as a file, and the command that repeats it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tidegate_sim::report::Report;
use tidegate_sim::run::{Run, Tier};
use tidegate_sim::scenarios;
use tidegate_sim::schedule::{self, Schedule};
use tidegate_sim::shrink::{NO_END, shrink};
use tidegate_sim::trace::Trace;

/// Where schedules of failed runs are kept.
pub const FAILED: &str = "target/sim";

/// A run that failed.
pub struct Failure {
    /// What was to happen.
    pub schedule: Schedule,
    /// In which tier.
    pub tier: Tier,
    /// The properties that broke, the first few breaches of each.
    pub broken: Vec<String>,
    /// The first of them.
    pub check: String,
}

/// Runs a schedule.
pub fn run(tier: Tier, schedule: Schedule, trace: Trace) -> Result<(Run, Report), Box<Failure>> {
    let failed = |broken: String| {
        Box::new(Failure { schedule: schedule.clone(), tier, broken: vec![broken], check: NO_END.to_owned() })
    };
    match catch_unwind(AssertUnwindSafe(|| tier.run(schedule.clone(), trace))) {
        Ok(Ok(run)) => {
            let report = Report::of(&run);
            Ok((run, report))
        }
        Ok(Err(error)) => Err(failed(format!("  {NO_END}: {error:#}"))),
        Err(_) => Err(failed(format!("  {NO_END}: a task panicked; what it said stands above"))),
    }
}

impl Failure {
    /// The failure of a run that came to its end; None: nothing broke.
    pub fn of(schedule: &Schedule, report: &Report) -> Option<Self> {
        let first = report.broken.first()?;
        Some(Self {
            schedule: schedule.clone(),
            tier: report.tier,
            broken: report.broken.iter().map(ToString::to_string).collect(),
            check: first.check.to_owned(),
        })
    }

    /// Says it all on standard error. In the protocol tier the schedule is made smaller first.
    pub fn tell(&self, small: bool) {
        let Schedule { scenario, seed, .. } = &self.schedule;
        let tier = self.tier.name();
        eprintln!("seed {seed} of {scenario} failed in the {tier} tier:");
        self.broken.iter().for_each(|broken| eprintln!("{broken}"));
        if scenarios::find(scenario).is_some() {
            eprintln!(
                "again: cargo run --release -p tidegate-sim -- run --tier {tier} --scenario {scenario} --seed {seed}"
            );
        }
        let name = format!("{scenario}-{seed}-{tier}");
        keep(&self.schedule, &format!("{name}.json"), "the schedule");
        if self.tier == Tier::Protocol && small {
            let shrunk = shrink(&self.schedule, &self.check);
            let (events, asks) = (shrunk.schedule.events.len(), shrunk.schedule.asks().count());
            eprintln!(
                "{}: {} of {} events are enough, {asks} of them requests:",
                self.check,
                events,
                self.schedule.events.len()
            );
            shrunk.schedule.events.iter().take(40).for_each(|event| {
                eprintln!("  {}", serde_json::to_string(event).unwrap_or_default());
            });
            keep(&shrunk.schedule, &format!("{name}-{}.json", self.check.replace(' ', "-")), "the smaller schedule");
        }
    }
}

/// Writes a schedule where it can be replayed.
fn keep(schedule: &Schedule, name: &str, what: &str) {
    let path: PathBuf = Path::new(FAILED).join(name);
    let written = std::fs::create_dir_all(FAILED).and_then(|()| std::fs::write(&path, schedule::write(schedule)));
    match written {
        Ok(()) => eprintln!("{what}: cargo run --release -p tidegate-sim -- replay {}", path.display()),
        Err(error) => eprintln!("{what} cannot be kept in {}: {error}", path.display()),
    }
}
