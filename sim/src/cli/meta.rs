//! `tidegate-sim meta`: plants bugs in the product and sees that the checks find them.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::bail;
use tidegate_sim::meta::{EXPECTED, Expected, is_clean};
use tidegate_sim::run::Tier;
use tidegate_sim::schedule::{Schedule, write};

/// What is asked of `meta`.
#[derive(clap::Args)]
pub struct MetaArgs {
    /// Only these bugs; may be repeated.
    #[arg(long)]
    bug: Vec<String>,
    /// Whole nodes over real QUIC, or nodes by hand.
    #[arg(long, value_enum, default_value_t = Tier::Protocol)]
    tier: Tier,
    /// Make the schedules that show the bugs smaller, and tell how small (protocol tier; some minutes).
    #[arg(long)]
    shrink: bool,
    /// Write those schedules to this folder.
    #[arg(long, requires = "shrink")]
    save: Option<PathBuf>,
    /// How many at a time; 0: one a processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// Whether every bug was found by its check, and only because it was there.
pub fn meta(args: &MetaArgs) -> anyhow::Result<bool> {
    let wanted = |expected: &&Expected| args.bug.is_empty() || args.bug.iter().any(|bug| bug == expected.bug.name());
    let bugs: Vec<&Expected> = EXPECTED.iter().filter(wanted).collect();
    if bugs.is_empty() {
        let known: Vec<&str> = EXPECTED.iter().map(|expected| expected.bug.name()).collect();
        bail!("there is no such bug; known are {}", known.join(", "));
    }
    let threads = super::threads(args.threads);
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, expected)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, bugs.get(at)?)))
                {
                    let row = try_one(args, expected);
                    rows.lock().expect("runs that panic are caught").push((at, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("runs that panic are caught");
    rows.sort_by_key(|row| row.0);
    println!(
        "{:<20} {:<11} {:<10} {:>8} {:>16}  also broke",
        "planted bug", "scenario", "check", "seeds", "events (asks)"
    );
    rows.iter().for_each(|(_, row)| println!("{}", row.text));
    let missed = rows.iter().filter(|(_, row)| !row.found).count();
    println!("{} of {} planted bugs were found by their check", rows.len() - missed, rows.len());
    Ok(missed == 0)
}

/// What became of a bug, in a line.
struct Row {
    text: String,
    found: bool,
}

fn try_one(args: &MetaArgs, expected: &Expected) -> Row {
    let (bug, scenario) = (expected.bug.name(), expected.scenario.unwrap_or("in turn"));
    let head = format!("{bug:<20} {scenario:<11} {:<10}", expected.check);
    let Some(found) = expected.find(args.tier) else {
        return Row { text: format!("{head} NOT FOUND within {} seeds", expected.within), found: false };
    };
    if !is_clean(args.tier, &found.schedule) {
        return Row {
            text: format!("{head} the schedule of seed {} is not clean without it", found.seeds),
            found: false,
        };
    }
    if args.tier == Tier::Protocol && expected.kept_shows_it() == Some(false) {
        return Row { text: format!("{head} the schedule that is kept of it does not show it any more"), found: false };
    }
    let size = |schedule: &Schedule| format!("{} ({})", schedule.events.len(), schedule.asks().count());
    let mut events = size(&found.schedule);
    if args.shrink && args.tier == Tier::Protocol {
        let small = expected.shrink(&found);
        events = format!("{events} -> {}", size(&small));
        let saved = args.save.as_ref().map(|folder| std::fs::write(folder.join(format!("{bug}.json")), write(&small)));
        if let Some(Err(error)) = saved {
            return Row { text: format!("{head} the schedule cannot be saved: {error}"), found: false };
        }
    }
    let also: Vec<&str> = found.broke.iter().filter(|check| **check != expected.check).copied().collect();
    let text = format!("{head} {:>3}/{:<4} {events:>16}  {}", found.seeds, expected.within, also.join(" "));
    Row { text, found: true }
}
