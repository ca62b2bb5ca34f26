//! `tidegate-sim report`: tables and plots of what sweeps came to.

use std::path::PathBuf;

use anyhow::Context;
use tidegate_sim::report::{Document, Report, docs, plots, table};
use tidegate_sim::run::Tier;

use super::failure::FAILED;

/// What is asked of `report`.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// What `sweep --json` wrote, of either tier.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where report.md and the plots are written.
    #[arg(long, default_value = FAILED)]
    out: PathBuf,
    /// Also write the promises and what was measured of them into this file, between its markers: docs/guarantees.md.
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
}

/// Writes what is asked; whether no sweep had failures.
pub fn report(args: &ReportArgs) -> anyhow::Result<bool> {
    let documents: Vec<Document> = args.files.iter().map(|file| Document::read(file)).collect::<anyhow::Result<_>>()?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    let mut files = vec![("report.md".to_owned(), table::markdown(&documents))];
    for tier in [Tier::Protocol, Tier::Node] {
        let of_tier = documents.iter().filter(|document| document.tier == tier);
        let runs: Vec<&Report> = of_tier.flat_map(|document| &document.runs).collect();
        if !runs.is_empty() {
            files.extend(plots::plots(tier.name(), &runs)?);
        }
    }
    for (name, text) in files {
        let path = args.out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    if let Some(path) = &args.docs {
        docs::rewrite(path, &documents)?;
        println!("{}", path.display());
    }
    Ok(documents.iter().all(|document| document.failures.is_empty()))
}
