//! The block of docs/guarantees.md that shows each promise beside what was measured of it: written from documents, and
//! read again to see that it is what it says.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};

use super::groups::Measured;
use super::table::by_faults;
use super::{Document, Report};
use crate::bound::{PROMISES, Promise};
use crate::run::Tier;

/// The line before the block.
pub const BEGIN: &str = "<!-- measured: begin -->";
/// The line after it.
pub const END: &str = "<!-- measured: end -->";

const PROMISES_HEAD: &str = "| promise | word | when, and of what | bound |";
const ROWS_HEAD: &str = "| promise | tier | runs | in | times | promised: mean | most | measured: mean | 95 % | most | nearest to its own bound |";

/// What the block says of one promise in one tier. Tokens are per cent of the limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The promise.
    pub promise: String,
    /// Where it was measured.
    pub tier: String,
    /// In which runs.
    pub runs: String,
    /// Of what the figures are.
    pub unit: String,
    /// How often its condition was met.
    pub times: u64,
    /// Promised: mean and most.
    pub promised: [f64; 2],
    /// Measured: mean, 95 of 100, most.
    pub measured: [f64; 3],
    /// The most that a figure took of its own bound, per cent; None: bounds are 0.
    pub nearest_pct: Option<f64>,
}

impl Row {
    fn of((name, runs): (&str, &[&Report]), tier: Tier, promise: &Promise) -> Option<Self> {
        let Measured { is, bound, nearest, .. } = Measured::promise(runs, promise)?;
        let unit = if promise.unit == "tokens" { "% of the limit" } else { promise.unit };
        let nearest = if promise.in_mean { is.mean / bound.mean } else { nearest };
        Some(Self {
            promise: promise.name.to_owned(),
            tier: tier.name().to_owned(),
            runs: name.to_owned(),
            unit: unit.to_owned(),
            times: is.count as u64,
            promised: [bound.mean, bound.max],
            measured: [is.mean, is.p95, is.max],
            nearest_pct: (bound.max > 0.0).then_some(100.0 * nearest),
        })
    }

    fn line(&self) -> String {
        let Self { promise, tier, runs, unit, times, promised: [mean, most], measured, nearest_pct } = self;
        let [is_mean, is_p95, is_most] = measured;
        let nearest = nearest_pct.map_or("-".to_owned(), |pct| format!("{pct:.1} %"));
        format!(
            "| {promise} | {tier} | {runs} | {unit} | {times} | {mean:.1} | {most:.1} | {is_mean:.1} | {is_p95:.1} | {is_most:.1} | {nearest} |"
        )
    }

    fn parse(line: &str) -> anyhow::Result<Self> {
        let cells = cells::<11>(line)?;
        let number = |at: usize| cells[at].parse::<f64>().with_context(|| format!("{:?} in {line}", cells[at]));
        let nearest = cells[10].strip_suffix(" %").map(str::parse::<f64>).transpose();
        Ok(Self {
            promise: cells[0].to_owned(),
            tier: cells[1].to_owned(),
            runs: cells[2].to_owned(),
            unit: cells[3].to_owned(),
            times: cells[4].parse().with_context(|| format!("{:?} in {line}", cells[4]))?,
            promised: [number(5)?, number(6)?],
            measured: [number(7)?, number(8)?, number(9)?],
            nearest_pct: nearest.with_context(|| format!("{:?} in {line}", cells[10]))?,
        })
    }

    /// Whether what was measured is within what was promised: each figure, or where only that is promised their mean.
    pub fn holds(&self, promise: &Promise) -> bool {
        let most = promise.in_mean || self.measured[2] <= self.promised[1];
        most && self.measured[0] <= self.promised[0] && self.nearest_pct.is_none_or(|pct| pct <= 100.0)
    }
}

/// What the block says.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// Name, word, condition and formula of each promise.
    pub promises: Vec<[String; 4]>,
    /// What was measured.
    pub rows: Vec<Row>,
}

/// Writes the block into a file that has the lines [`BEGIN`] and [`END`].
///
/// # Errors
/// When the file cannot be read or written or lacks these lines, when a tier is missing, and when the figures are no
/// proof: sweeps that failed, or had faults switched off.
pub fn rewrite(path: &Path, documents: &[Document]) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let block = block(documents)?;
    let [before, _, after] = split(&text).with_context(|| path.display().to_string())?;
    let text = format!("{before}{BEGIN}\n{block}{END}{after}");
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What stands between the markers.
///
/// # Errors
/// As [`rewrite`] says.
pub fn block(documents: &[Document]) -> anyhow::Result<String> {
    for document in documents {
        let seeds = format!("seeds {} in the {} tier", document.seeds(), document.tier.name());
        ensure!(
            document.failures.is_empty(),
            "{seeds}: {} failed; figures of a failed sweep prove nothing",
            document.failures.len()
        );
        ensure!(document.whole, "{seeds}: the sweep was not whole: run it without --only and --without");
    }
    let commands = documents.iter().map(|document| {
        let Document { tier, first_seed, seeds, .. } = document;
        format!("`sweep --tier {} --seed {first_seed} --seeds {seeds} --json`", tier.name())
    });
    let mut text = format!(
        "<!-- written by `tidegate-sim report --docs`: do not edit -->\n\nMeasured by {};\n`sim/figures.sh` does all of it \
         anew.\n\n{PROMISES_HEAD}\n| --- | --- | --- | --- |\n",
        commands.collect::<Vec<_>>().join("\nand ")
    );
    for Promise { name, word, condition, formula, .. } in PROMISES {
        let _ = writeln!(text, "| {name} | `{word}` | {condition} | `{formula}` |");
    }
    let _ = write!(text, "\n{ROWS_HEAD}\n|{}\n", " --- |".repeat(11));
    for promise in PROMISES {
        for tier in [Tier::Protocol, Tier::Node] {
            let of_tier = documents.iter().filter(|document| document.tier == tier);
            let runs: Vec<&Report> = of_tier.flat_map(|document| &document.runs).collect();
            let parts = by_faults(&runs);
            let rows = parts.iter().filter_map(|(name, runs)| Row::of((name, runs), tier, promise));
            let rows: Vec<Row> = rows.collect();
            let (tier, name) = (tier.name(), promise.name);
            ensure!(!rows.is_empty(), "no run of the {tier} tier shows the promise {name:?}: give a longer sweep");
            for row in rows {
                ensure!(row.holds(promise), "the promise {name:?} does not hold: {}", row.line());
                let _ = writeln!(text, "{}", row.line());
            }
        }
    }
    Ok(text)
}

/// Reads the block of a text.
///
/// # Errors
/// When there is none, or it is not as [`block`] writes it.
pub fn parse(text: &str) -> anyhow::Result<Block> {
    let [_, block, _] = split(text)?;
    let code = |cell: &str| cell.trim_matches('`').to_owned();
    let promises = table(block, PROMISES_HEAD)?.map(|line| {
        let [name, word, condition, formula] = cells::<4>(line)?;
        Ok([name.to_owned(), code(word), condition.to_owned(), code(formula)])
    });
    let promises = promises.collect::<anyhow::Result<Vec<_>>>()?;
    let rows = table(block, ROWS_HEAD)?.map(Row::parse).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Block { promises, rows })
}

/// Before the block, the block, after it.
fn split(text: &str) -> anyhow::Result<[&str; 3]> {
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("there is no line {BEGIN}"))?;
    let (block, after) = rest.split_once(END).with_context(|| format!("there is no line {END} after {BEGIN}"))?;
    ensure!(!after.contains(BEGIN), "there are two lines {BEGIN}");
    Ok([before, block, after])
}

/// The lines of a table without its head.
fn table<'a>(block: &'a str, head: &str) -> anyhow::Result<impl Iterator<Item = &'a str>> {
    let (_, rest) = block.split_once(head).with_context(|| format!("there is no table {head}"))?;
    Ok(rest.lines().skip(2).take_while(|line| line.starts_with('|')))
}

fn cells<const N: usize>(line: &str) -> anyhow::Result<[&str; N]> {
    let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |"));
    let cells: Option<Vec<&str>> = inner.map(|inner| inner.split(" | ").map(str::trim).collect());
    let wrong = || format!("{N} cells are expected in {line}");
    cells.and_then(|cells| cells.try_into().ok()).with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::groups::tests::{key, run};
    use crate::report::{Held, KeyFigures, Kind};

    fn document(tier: Tier, worst: f64) -> Document {
        let (cut, recovery) = (Some(Held { is: 50.0, bound: 300.0 }), Some(Held { is: 1.0, bound: 20.0 }));
        let cut = KeyFigures { cut, recovery, ..key(80.0, 100.0) };
        Document {
            tier,
            first_seed: 1,
            seeds: 2,
            whole: true,
            seconds: 6.0,
            per_minute: 20.0,
            states: Vec::new(),
            failures: Vec::new(),
            runs: vec![run(&[], vec![key(worst, 40.0), key(8.0, 40.0)]), run(&[Kind::Cut], vec![cut])],
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let documents = [document(Tier::Protocol, 20.0), document(Tier::Node, 20.0)];
        let block = block(&documents).expect("figures within their bounds");
        let read = parse(&format!("before\n{BEGIN}\n{block}{END}\nafter")).expect("a block");
        assert_eq!(read.promises.len(), PROMISES.len());
        // Of every promise without faults or with them; of what holds in both cases twice.
        assert_eq!(read.rows.len(), 2 * (PROMISES.len() + 2));
        let instant = read.rows.iter().find(|row| row.promise == "instant").expect("a row");
        let (promised, measured) = ([40.0, 40.0], [14.0, 20.0, 20.0]);
        let row = Row { promised, measured, times: 2, nearest_pct: Some(50.0), ..instant.clone() };
        assert_eq!(*instant, row);
        assert!(block.contains("`sweep --tier node --seed 1 --seeds 2 --json`"));
    }

    #[test]
    fn figures_that_prove_nothing_are_not_written() {
        let good = || document(Tier::Node, 20.0);
        let refused = |first: Document, why: &str| {
            let error = block(&[first, good()]).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(document(Tier::Protocol, 41.0), "\"instant\" does not hold");
        refused(Document { whole: false, ..document(Tier::Protocol, 20.0) }, "without --only");
        refused(good(), "no run of the protocol tier shows the promise \"known\"");
    }

    #[test]
    fn a_file_without_a_place_for_it_is_left_alone() {
        assert!(parse("nothing").is_err());
        assert!(parse(&format!("{BEGIN}\nnothing")).is_err());
        assert!(parse(&format!("{BEGIN}\n{ROWS_HEAD}\n{END}")).is_err());
        assert!(Row::parse("| instant | node |").is_err());
    }
}
