//! Figures of many runs as tables in markdown.

use std::fmt::Write as _;

use super::groups::{self, Key, Measured, Spread, grouped, steady};
use super::{Document, Held, Report};
use crate::bound::PROMISES;
use crate::run::Tier;

/// Everything that the documents tell.
pub fn markdown(documents: &[Document]) -> String {
    let mut text = "# What sweeps of the simulation came to\n".to_owned();
    text += &sweeps(documents);
    for tier in [Tier::Protocol, Tier::Node] {
        let of_tier: Vec<&Document> = documents.iter().filter(|document| document.tier == tier).collect();
        let runs: Vec<&Report> = of_tier.iter().flat_map(|document| &document.runs).collect();
        if runs.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## The {} tier\n\n### Promises\n\n", tier.name());
        text += &promises(&runs);
        for (name, runs) in by_faults(&runs) {
            if !runs.is_empty() {
                let _ = write!(text, "\n### Runs {name}: {}\n", runs.len());
                text += &overshoot(&runs);
                text += &times(&runs);
                text += &traffic(&runs);
            }
        }
        text += &states(&of_tier);
    }
    text
}

/// Runs in which nothing is wrong, and the others.
pub fn by_faults<'a>(runs: &[&'a Report]) -> [(&'static str, Vec<&'a Report>); 2] {
    let (well, troubled) = runs.iter().partition(|run| run.faults.is_empty());
    [("without faults", well), ("with faults", troubled)]
}

fn sweeps(documents: &[Document]) -> String {
    let mut text = "\n| tier | seeds | runs | seconds | seeds a minute | failures |\n".to_owned();
    text += "| --- | --- | --- | --- | --- | --- |\n";
    for document in documents {
        let failed = document.failures.iter().map(|f| format!("{} {}: {}", f.scenario, f.seed, f.checks.join(", ")));
        let failed: Vec<String> = failed.collect();
        let failed = if failed.is_empty() { "none".to_owned() } else { failed.join("; ") };
        let (tier, seeds, seconds) = (document.tier.name(), document.seeds(), document.seconds);
        let (runs, a_minute) = (document.runs.len(), document.per_minute);
        let _ = writeln!(text, "| {tier} | {seeds} | {runs} | {seconds:.0} | {a_minute:.0} | {failed} |");
    }
    text
}

/// Each promise, its bound, and what was measured of it: tokens in per cent of the limit.
pub fn promises(runs: &[&Report]) -> String {
    let mut text =
        "| promise | bound | in | times | promised, mean and most | measured: mean, 95 %, most | nearest to its \
                    own bound |\n| --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for promise in PROMISES {
        let unit = if promise.unit == "tokens" { "% of the limit" } else { promise.unit };
        let (name, formula) = (promise.name, promise.formula);
        let _ = match Measured::promise(runs, promise) {
            None => writeln!(text, "| {name} | `{formula}` | {unit} | 0 | - | - | - |"),
            Some(Measured { is, bound, nearest, .. }) => writeln!(
                text,
                "| {name} | `{formula}` | {unit} | {} | {:.1}, {:.1} | {:.1}, {:.1}, {:.1} | {} |",
                is.count,
                bound.mean,
                bound.max,
                is.mean,
                is.p95,
                is.max,
                // Where only the mean is promised, the means are what is near.
                part(if promise.in_mean { is.mean / bound.mean } else { nearest }, bound.max),
            ),
        };
    }
    text
}

fn part(of: f64, bound: f64) -> String {
    if bound > 0.0 { format!("{:.0} %", 100.0 * of) } else { "-".to_owned() }
}

/// What was used beyond limits and denied falsely, by all that it may depend on.
fn overshoot(runs: &[&Report]) -> String {
    let mut text = String::new();
    for (name, by) in groups::KEYS_BY {
        let _ = write!(
            text,
            "\n| {name} | keys | used beyond the limit, %: mean, 95 %, most | promised, mean and most | nearest to its \
             own bound | even load: measured, expected | admitted beyond one limiter, % | false denials |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        );
        for (group, keys) in grouped(steady(runs), |key| by(*key)) {
            text += &overshoot_row(&group, &keys);
        }
    }
    text
}

fn overshoot_row(group: &str, keys: &[Key<'_>]) -> String {
    let instant: Vec<Held> = keys.iter().map(|(_, k)| Held { is: k.worst_pct, bound: k.promised_pct }).collect();
    let Some(Measured { is, bound, nearest, .. }) = Measured::of(&instant) else { return String::new() };
    let even = keys.iter().filter(|(run, key)| key.even && run.faults.is_empty());
    let even: Vec<Held> = even.map(|(_, key)| Held { is: key.worst_pct, bound: key.predicted_pct }).collect();
    let even = Measured::of(&even).map_or("-".to_owned(), |m| format!("{:.1}, {:.1}", m.is.mean, m.bound.mean));
    let sum = |of: fn(&Key<'_>) -> u64| keys.iter().map(of).sum::<u64>();
    let (admitted, allowed) = (sum(|key| key.1.admitted), sum(|key| key.1.allowed));
    format!(
        "| {} | {} | {:.1}, {:.1}, {:.1} | {:.1}, {:.1} | {} | {even} | {:.1} | {} |\n",
        group.trim(),
        is.count,
        is.mean,
        is.p95,
        is.max,
        bound.mean,
        bound.max,
        part(nearest, bound.max),
        100.0 * (admitted as f64 / allowed.max(1) as f64 - 1.0),
        sum(|key| key.1.false_denials),
    )
}

fn row(text: &mut String, what: &str, spread: Option<Spread>) {
    if let Some(Spread { count, mean, p95, max }) = spread {
        let _ = writeln!(text, "| {what} | {count} | {mean:.0} | {p95:.0} | {max:.0} |");
    }
}

const SPREAD: &str = "runs | mean | 95 % | most |\n| --- | --- | --- | --- | --- |\n";

fn times(runs: &[&Report]) -> String {
    let mut text = format!("\n| time until all know all, ms | {SPREAD}");
    let spread = |of: fn(&Report) -> Option<u64>| Spread::of(runs.iter().filter_map(|run| of(run)).map(|ms| ms as f64));
    row(&mut text, "after the load", spread(|run| run.converge_ms));
    row(&mut text, "after the last fault", spread(|run| run.heal_ms.filter(|_| !run.faults.is_empty())));
    let never = runs.iter().filter(|run| run.converge_ms.is_none() || run.heal_ms.is_none()).count();
    if never > 0 {
        let _ = writeln!(text, "| never | {never} | | | |");
    }
    text
}

fn traffic(runs: &[&Report]) -> String {
    let mut text = format!("\n| bytes between nodes | {SPREAD}");
    for (nodes, runs) in grouped(runs.iter().copied(), |run| run.nodes.to_string()) {
        let bytes = |of: fn(&Report) -> Option<f64>| Spread::of(runs.iter().filter_map(|run| of(run)));
        row(&mut text, &format!("{nodes} nodes: a second and pair"), bytes(groups::bytes_per_pair_s));
        row(&mut text, &format!("{nodes} nodes: an admitted token"), bytes(groups::bytes_per_token));
    }
    text
}

fn states(documents: &[&Document]) -> String {
    let mut text = "\n### States\n\n| times reached | state | what |\n| --- | --- | --- |\n".to_owned();
    for (at, state) in documents.first().map_or(&[][..], |document| &document.states).iter().enumerate() {
        let count: u64 = documents.iter().filter_map(|document| document.states.get(at)).map(|state| state.count).sum();
        let count = if state.reachable { count.to_string() } else { "not in this tier".to_owned() };
        let _ = writeln!(text, "| {count} | {} | {} |", state.name, state.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::groups::tests::{key, run};
    use crate::report::{Failed, Kind, StateCount};

    fn document(runs: Vec<Report>) -> Document {
        let state = StateCount { name: "Denied".to_owned(), about: "said no".to_owned(), reachable: true, count: 7 };
        Document {
            tier: Tier::Protocol,
            first_seed: 1,
            seeds: 2,
            whole: true,
            seconds: 6.0,
            per_minute: 20.0,
            states: vec![state],
            failures: vec![Failed { scenario: "any".to_owned(), seed: 9, checks: vec!["held".to_owned()] }],
            runs,
        }
    }

    #[test]
    fn tables_by_hand() {
        let runs = vec![run(&[], vec![key(20.0, 40.0), key(10.0, 40.0)]), run(&[Kind::Cut], vec![key(80.0, 100.0)])];
        let text = markdown(&[document(runs)]);
        for line in [
            "| protocol | 1 to 2 | 2 | 6 | 20 | any 9: held |",
            "| known | `tau = gossip.interval + one way + 20 ms` | ms | 1 | 210.0, 210.0 | 110.0, 110.0, 110.0 | 52 % |",
            "| even load | `(1 - sum of s_i^2) * R * tau` | % of the limit | 2 | 15.0, 15.0 | 15.0, 20.0, 20.0 | 100 % |",
            "### Runs without faults: 1",
            "### Runs with faults: 1",
            "| fixed_window | 2 | 15.0, 20.0, 20.0 | 40.0, 40.0 | 50 % | 15.0, 15.0 | 10.0 | 0 |",
            "| fixed_window | 1 | 80.0, 80.0, 80.0 | 100.0, 100.0 | 80 % | - | 10.0 | 0 |",
            "| after the last fault | 1 | 400 | 400 | 400 |",
            "| 3 nodes: a second and pair | 1 | 1100 | 1100 | 1100 |",
            "| 7 | Denied | said no |",
        ] {
            assert!(text.lines().any(|is| is == line), "{line} is missing in:\n{text}");
        }
    }

    #[test]
    fn a_document_reads_as_it_was_written() {
        let document = document(vec![run(&[Kind::Cut], vec![key(80.0, 100.0)])]);
        let text = serde_json::to_string(&document).expect("plain figures");
        let read: Document = serde_json::from_str(&text).expect("the same");
        assert_eq!(markdown(&[read]), markdown(&[document]));
    }
}
