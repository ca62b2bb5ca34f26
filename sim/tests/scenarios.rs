//! A few seeds of every scenario keep every property, in both tiers; the binary runs as many as one likes.

use tidegate_sim::report::Report;
use tidegate_sim::run::Tier;
use tidegate_sim::scenarios::{SCENARIOS, Scenario, Switches, draw_with, find};
use tidegate_sim::trace::Trace;

fn run(tier: Tier, scenario: &Scenario, seed: u64) -> Report {
    let switches = Switches { node_tier: tier == Tier::Node, ..Switches::default() };
    let run = tier.run(draw_with(scenario, seed, &switches), Trace::new()).expect("the run comes to its end");
    let report = Report::of(&run);
    println!("{}\n{}", Report::heading(), report.row());
    assert_eq!(report.broken, Vec::new(), "seed {seed} of {} in the {} tier", scenario.name, tier.name());
    assert!(report.admitted > 0 && report.trace_hash.len() == 32);
    report
}

#[test]
fn every_scenario_with_nodes_by_hand() {
    for scenario in SCENARIOS {
        for seed in 1..=2 {
            run(Tier::Protocol, scenario, seed);
        }
    }
}

#[test]
fn every_scenario_with_whole_nodes() {
    for scenario in SCENARIOS {
        run(Tier::Node, scenario, 1);
    }
}

#[test]
fn clocks_a_second_apart_keep_shares_fair() {
    let skew = find("skew").expect("it is there");
    for tier in [Tier::Protocol, Tier::Node] {
        let report = run(tier, skew, 1);
        println!("the slowest node's share is {:.2} of a fair one", report.least_share);
        assert!(
            report.admitted < report.offered && report.least_share > 0.8,
            "{:.2} of a fair share",
            report.least_share
        );
    }
}
