//! `tidegate-sim sweep`: many seeds, through all scenarios in turn, on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tidegate_sim::report::{Document, Failed, Report};
use tidegate_sim::run::Tier;
use tidegate_sim::scenarios::{SCENARIOS, Switches, draw_with};
use tidegate_sim::states::{States, enough};
use tidegate_sim::trace::Trace;

use super::SwitchArgs;
use super::failure::{self, Failure};

/// What is asked of `sweep`.
#[derive(clap::Args)]
pub struct SweepArgs {
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Whole nodes over real QUIC, or nodes by hand.
    #[arg(long, value_enum, default_value_t = Tier::Protocol)]
    tier: Tier,
    #[command(flatten)]
    switches: SwitchArgs,
    /// How many at a time; 0: one a processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// One JSON document with all figures instead of text, for `report`.
    #[arg(long)]
    json: bool,
    /// With this bug planted in the product.
    #[cfg(feature = "planted")]
    #[arg(long, value_parser = bug)]
    plant: Option<tidegate::planted::PlantedBug>,
    /// Do not make the schedules of failures smaller.
    #[arg(long)]
    no_shrink: bool,
    /// Stop after so many failures.
    #[arg(long, default_value_t = 5)]
    failures: usize,
}

#[cfg(feature = "planted")]
fn bug(name: &str) -> Result<tidegate::planted::PlantedBug, String> {
    tidegate::planted::PlantedBug::from_name(name).ok_or_else(|| "there is no such bug; `meta` names them".to_owned())
}

/// What came of a sweep so far.
#[derive(Default)]
struct Swept {
    runs: u64,
    reports: Vec<Report>,
    states: States,
    failures: Vec<Failure>,
    failed: Vec<Failed>,
}

/// Whether every property held and every state was reached.
pub fn sweep(args: &SweepArgs) -> anyhow::Result<bool> {
    let switches = args.switches.switches(args.tier)?;
    // What fails is made smaller in this thread.
    #[cfg(feature = "planted")]
    tidegate::planted::plant(args.plant);
    let threads = super::threads(args.threads);
    #[expect(clippy::disallowed_methods, reason = "how fast it went is all that this tells")]
    let began = Instant::now();
    let (next, swept) = (AtomicU64::new(0), Mutex::new(Swept::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                #[cfg(feature = "planted")]
                tidegate::planted::plant(args.plant);
                while one(args, &switches, &next, &swept) {}
            });
        }
    });
    let mut swept = swept.into_inner().expect("runs that panic are caught");
    swept.reports.sort_by_key(|report| report.seed);
    swept.failures.sort_by_key(|failure| failure.schedule.seed);
    swept.failed.sort_by_key(|failed| failed.seed);
    let (failures, states) = (std::mem::take(&mut swept.failures), swept.states.clone());
    let document = document(args, swept, began.elapsed().as_secs_f64());
    if args.json {
        println!("{}", serde_json::to_string(&document).expect("a document is plain figures and text"));
    } else {
        tell(&document);
    }
    failures.iter().for_each(|failure| failure.tell(!args.no_shrink));
    // With faults switched off, or stopped by failures, a sweep does not reach everything.
    let unreached = if document.whole { states.unreached(args.tier, document.seeds) } else { None };
    for state in unreached.iter().flatten() {
        eprintln!(
            "not reached in {} seeds of the {} tier: {}, {}",
            args.seeds,
            args.tier.name(),
            state.name,
            state.about
        );
    }
    Ok(failures.is_empty() && unreached.is_none_or(|unreached| unreached.is_empty()))
}

/// Runs the next seed; false: there is none.
fn one(args: &SweepArgs, switches: &Switches, next: &AtomicU64, swept: &Mutex<Swept>) -> bool {
    let at = next.fetch_add(1, Ordering::Relaxed);
    if at >= args.seeds {
        return false;
    }
    let seed = args.seed + at;
    let scenario = &SCENARIOS[(seed % SCENARIOS.len() as u64) as usize];
    let schedule = draw_with(scenario, seed, switches);
    let ran = failure::run(args.tier, schedule.clone(), Trace::new());
    let failed = |checks| Failed { scenario: scenario.name.to_owned(), seed, checks };
    let mut swept = swept.lock().expect("runs that panic are caught");
    swept.runs += 1;
    match ran {
        Ok((run, report)) => {
            swept.states.add(&run.history.states);
            if let Some(failure) = Failure::of(&schedule, &report) {
                let checks = report.broken.iter().map(|breach| breach.check.to_owned());
                swept.failed.push(failed(checks.collect()));
                swept.failures.push(failure);
            }
            swept.reports.push(Document::kept(report));
        }
        Err(failure) => {
            swept.failed.push(failed(vec![failure.check.clone()]));
            swept.failures.push(*failure);
        }
    }
    swept.failures.len() < args.failures
}

fn document(args: &SweepArgs, swept: Swept, seconds: f64) -> Document {
    Document {
        tier: args.tier,
        first_seed: args.seed,
        seeds: swept.runs,
        whole: swept.runs == args.seeds && args.switches.are_empty(),
        seconds,
        per_minute: swept.runs as f64 * 60.0 / seconds,
        states: Document::states(&swept.states, args.tier),
        failures: swept.failed,
        runs: swept.reports,
    }
}

fn tell(document: &Document) {
    let Document { tier, seeds: runs, seconds, per_minute, .. } = document;
    println!(
        "seeds {}: {runs} runs in the {} tier in {seconds:.1} s, {per_minute:.0} a minute; {} with a broken property",
        document.seeds(),
        tier.name(),
        document.failures.len()
    );
    println!(
        "states (0 fails a sweep of {} seeds and more, with all faults, where the tier can reach it):",
        enough(*tier)
    );
    for state in &document.states {
        let out_of_reach = if state.reachable { "" } else { " (not in this tier)" };
        println!("  {:>9} {:<20} {}{out_of_reach}", state.count, state.name, state.about);
    }
}
