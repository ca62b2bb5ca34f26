//! docs/guarantees.md says what the formulas say, and what was measured is within it.

use tidegate_sim::bound::{PROMISES, named};
use tidegate_sim::report::docs::{Block, parse};

const TEXT: &str = include_str!("../../docs/guarantees.md");

fn block() -> Block {
    parse(TEXT).unwrap_or_else(|error| panic!("docs/guarantees.md: {error:#}; sim/figures.sh writes it anew"))
}

#[test]
fn the_promises_are_those_of_the_formulas() {
    let told = block().promises;
    let is = PROMISES.iter().map(|p| [p.name, p.word, p.condition, p.formula].map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(told, is, "sim/figures.sh writes them anew");
    // What the text derives.
    for said in [format!("over = {}", named("even load").formula), "cap = C + (M - 1) * (C + rate * 1 s)".to_owned()] {
        assert!(TEXT.contains(&said), "docs/guarantees.md does not say {said:?} any more");
    }
    assert!(named("recovery").formula.contains("cap = C + (M - 1) * (C + rate * 1 s)"));
}

#[test]
fn every_promise_is_measured_in_both_tiers_and_holds() {
    let rows = block().rows;
    for promise in PROMISES {
        for tier in ["protocol", "node"] {
            let mut of = rows.iter().filter(|row| (row.promise.as_str(), row.tier.as_str()) == (promise.name, tier));
            assert!(of.clone().any(|row| row.times > 0), "{} was not measured in the {tier} tier", promise.name);
            assert!(of.all(|row| row.holds(promise)), "{} does not hold in the {tier} tier", promise.name);
        }
    }
}

#[test]
fn a_figure_beyond_its_bound_is_found() {
    for row in block().rows {
        let promise = named(&row.promise);
        let mut bad = row.clone();
        bad.measured = bad.measured.map(|is| is + row.promised[1] + 1.0);
        assert!(!bad.holds(promise), "{bad:?}");
    }
}
