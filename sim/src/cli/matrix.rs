//! `tidegate-sim matrix`: a grid of clocks or cuts, windows and algorithms; a line for each cell.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_sim::matrix::Cell;
use tidegate_sim::matrix::partition::Partition;
use tidegate_sim::matrix::skew::Skew;
use tidegate_sim::run::Tier;
use tidegate_sim::trace::Trace;

use super::failure::{self, Failure};

/// What is asked of `matrix`.
#[derive(clap::Args)]
pub struct MatrixArgs {
    /// Which grid.
    #[arg(value_enum)]
    grid: Grid,
    /// How many seeds for each cell.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Whole nodes over real QUIC, or nodes by hand.
    #[arg(long, value_enum, default_value_t = Tier::Protocol)]
    tier: Tier,
    /// Only cells whose name contains this, such as 60s-10s-token_bucket.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// One JSON document a cell instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Grid {
    /// Clocks that are apart, or drift.
    Skew,
    /// Links that are cut, and heal.
    Partition,
}

impl Grid {
    fn name(self) -> &'static str {
        match self {
            Self::Skew => "skew",
            Self::Partition => "partition",
        }
    }
}

/// What is promised of a cell beyond what is checked of every run.
const PROMISED: &str = "promised of the cell";

/// What the runs of a cell came to.
struct Ran<F> {
    /// By seed.
    figures: Vec<(u64, F)>,
    failures: Vec<Failure>,
}

/// Whether every property held in every cell.
pub fn matrix(args: &MatrixArgs) -> anyhow::Result<bool> {
    match args.grid {
        Grid::Skew => grid::<Skew>(args),
        Grid::Partition => grid::<Partition>(args),
    }
}

fn grid<C: Cell>(args: &MatrixArgs) -> anyhow::Result<bool> {
    let cells: Vec<C> = C::grid().into_iter().filter(|cell| cell.name().contains(&args.only)).collect();
    if cells.is_empty() {
        let names: Vec<String> = C::grid().iter().map(Cell::name).collect();
        anyhow::bail!("--only {}: no cell's name contains it; cells are {}", args.only, names.join(", "));
    }
    if !args.json {
        println!("{}", C::heading());
    }
    let mut clean = true;
    for cell in &cells {
        let mut ran = run(cell, args);
        ran.figures.sort_by_key(|figures| figures.0);
        ran.failures.sort_by_key(|failure| failure.schedule.seed);
        let figures: Vec<C::Figures> = ran.figures.into_iter().map(|figures| figures.1).collect();
        let row = cell.row(&figures, ran.failures.len());
        match args.json {
            true => println!("{}", serde_json::to_string(&row).expect("a row is plain figures and text")),
            false => println!("{row}"),
        }
        clean &= ran.failures.is_empty();
        for failure in &ran.failures {
            failure.tell(false);
            let (grid, seed) = (args.grid.name(), failure.schedule.seed);
            let (tier, name) = (args.tier.name(), cell.name());
            eprintln!(
                "again: cargo run --release -p tidegate-sim -- matrix {grid} --tier {tier} --only {name} --seed {seed} --seeds 1"
            );
        }
    }
    Ok(clean)
}

/// Runs a cell's seeds, on all processors.
fn run<C: Cell>(cell: &C, args: &MatrixArgs) -> Ran<C::Figures> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, ran) = (AtomicU64::new(args.seed), Mutex::new(Ran { figures: Vec::new(), failures: Vec::new() }));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.seed.saturating_add(args.seeds) {
                        return;
                    }
                    let (figures, failure) = one(cell, args.tier, seed);
                    let mut ran = ran.lock().expect("runs that panic are caught");
                    ran.figures.extend(figures.map(|figures| (seed, figures)));
                    ran.failures.extend(failure);
                }
            });
        }
    });
    ran.into_inner().expect("runs that panic are caught")
}

/// Runs one seed of a cell.
fn one<C: Cell>(cell: &C, tier: Tier, seed: u64) -> (Option<C::Figures>, Option<Failure>) {
    let schedule = cell.draw(seed);
    let (run, report) = match failure::run(tier, schedule.clone(), Trace::new()) {
        Ok(ran) => ran,
        Err(failure) => return (None, Some(*failure)),
    };
    let figures = cell.figures(&run, &report);
    let mut broken: Vec<String> = report.broken.iter().map(ToString::to_string).collect();
    broken.extend(cell.wrong(&figures).iter().map(|wrong| format!("  {PROMISED}: {wrong}")));
    let check = report.broken.first().map_or(PROMISED, |breach| breach.check).to_owned();
    let failure = (!broken.is_empty()).then_some(Failure { schedule, tier, broken, check });
    (Some(figures), failure)
}
