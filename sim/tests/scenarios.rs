//! A few seeds of every scenario keep every property; the binary runs as many as one likes.

use tidegate_sim::report::Report;
use tidegate_sim::scenario::{Name, Scenario};
use tidegate_sim::trace::Trace;
use tidegate_sim::world;

fn run(name: Name, seed: u64) -> Report {
    let run = world::run(Scenario::draw(name, seed), Trace::new()).expect("the run comes to its end");
    let report = Report::of(&run);
    println!("{}\n{}", Report::heading(), report.row());
    assert_eq!(report.broken, Vec::<String>::new(), "seed {seed} of {name:?}");
    assert!(report.admitted > 0 && report.admitted < report.offered, "the load must be above the limits");
    report
}

#[test]
fn three_regions_converge() {
    for seed in 1..=2 {
        let report = run(Name::Converge, seed);
        assert!(report.over_pct > -1.0, "without faults nothing is held back");
    }
}

#[test]
fn a_region_cut_off_and_healed() {
    for seed in 1..=2 {
        run(Name::Partition, seed);
    }
}

#[test]
fn clocks_a_second_apart_keep_shares_fair() {
    for seed in 1..=2 {
        let report = run(Name::Skew, seed);
        println!("the slowest node's share is {:.2} of a fair one", report.least_share);
        assert!(report.least_share > 0.8, "a slow clock starves: {:.2} of a fair share", report.least_share);
    }
}

#[test]
fn a_node_that_crashes_and_comes_back() {
    for seed in 1..=2 {
        run(Name::Restart, seed);
    }
}
