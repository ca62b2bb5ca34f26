//! One small cell of each grid, held to what docs/guarantees.md promises; and the same cells in the node tier.

use tidegate_sim::matrix::Cell;
use tidegate_sim::matrix::partition::{self, Partition};
use tidegate_sim::matrix::skew::{Far, Skew};
use tidegate_sim::matrix::{ALGORITHMS, Spread};
use tidegate_sim::report::Report;
use tidegate_sim::run::Tier;
use tidegate_sim::trace::Trace;

const SEEDS: u64 = 2;

/// Runs the seeds of a cell, of which none may break anything.
fn row<C: Cell>(tier: Tier, name: &str) -> C::Row {
    let cell = C::grid().into_iter().find(|cell| cell.name() == name).expect("it is in the grid");
    let one = |seed| {
        let run = tier.run(cell.draw(seed), Trace::new()).expect("the run comes to its end");
        let report = Report::of(&run);
        assert_eq!(report.broken, [], "{name} {seed}");
        let figures = cell.figures(&run, &report);
        assert_eq!(cell.wrong(&figures), Vec::<String>::new(), "{name} {seed}");
        figures
    };
    let figures: Vec<C::Figures> = (1..=SEEDS).map(one).collect();
    let row = cell.row(&figures, 0);
    println!("{row}");
    row
}

fn got(spread: Option<Spread>) -> Spread {
    spread.expect("every run has the figure")
}

#[test]
fn clocks_apart_cost_what_the_formula_says_and_starve_nobody() {
    for algorithm in ALGORITHMS {
        let row = row::<Skew>(Tier::Protocol, &format!("skew-500ms-1s-{algorithm}"));
        let (over, predicted, share) = (got(row.over_pct), got(row.predicted_pct), got(row.slowest_share));
        assert!(over.most <= predicted.most && over.least >= 0.0, "{algorithm}: {over:?}, {predicted:?}");
        // A bucket keeps what was taken too much: it admits no more in the long run.
        assert!(algorithm != "token_bucket" || over.most < 1.0, "{over:?}");
        assert!(share.least > 0.7 && share.most < 1.4, "{algorithm}: {share:?}");
        assert_eq!((row.false_denials, row.far), (0, Far::default()), "{algorithm}");
    }
}

#[test]
fn a_clock_beyond_max_skew_is_told_on_both_sides() {
    let row = row::<Skew>(Tier::Protocol, "skew-1500ms-1s-sliding_window");
    assert_eq!(row.far, Far { apart: 2 * SEEDS as usize, told: 2 * SEEDS as usize });
    assert_eq!(row.false_denials, 0);
}

#[test]
fn two_sides_admit_twice_the_limit_and_no_more_once_the_cut_is_got_over() {
    for algorithm in ALGORITHMS {
        let row = row::<Partition>(Tier::Protocol, &format!("partition-2-1-10s-1s-{algorithm}"));
        let (during, after) = (got(row.during_times), got(row.after_times));
        assert!(during.least > 1.8 && during.most < 2.3, "{algorithm}: {during:?}");
        // What was owed is paid back: a bucket admits little until then.
        assert!(algorithm != "token_bucket" || row.recovering_times.is_some_and(|times| times < 0.5), "{row}");
        assert!(after.most < if algorithm == "token_bucket" { 1.05 } else { 1.5 }, "{algorithm}: {after:?}");
        assert!(got(row.recover_s).most <= got(row.heal_s).most + row.recover_promised_s + 3.0, "{row}");
        assert_eq!(row.false_denials, 0, "{algorithm}");
    }
}

#[test]
fn three_sides_admit_three_times_the_limit() {
    let row = row::<Partition>(Tier::Protocol, "partition-1-1-1-10s-1s-token_bucket");
    let during = got(row.during_times);
    assert!(during.least > 2.8 && during.most < 3.1, "{during:?}");
}

/// Tiers may differ by so many hundredths.
fn near(a: Option<Spread>, b: Option<Spread>, within: f64) {
    let (a, b) = (got(a), got(b));
    assert!((a.mean - b.mean).abs() <= within && (a.most - b.most).abs() <= within, "{a:?}, {b:?}");
}

#[test]
fn both_tiers_carry_clocks() {
    let [protocol, node] = [Tier::Protocol, Tier::Node].map(|tier| row::<Skew>(tier, "skew-500ms-1s-fixed_window"));
    near(protocol.over_pct, node.over_pct, 5.0);
    near(protocol.slowest_share, node.slowest_share, 0.1);
    let far = row::<Skew>(Tier::Node, "skew-1500ms-1s-fixed_window").far;
    assert_eq!(far, Far { apart: 2 * SEEDS as usize, told: 2 * SEEDS as usize });
}

#[test]
fn both_tiers_carry_cuts() {
    let name = "partition-2-1-10s-1s-token_bucket";
    let [protocol, node]: [partition::Row; 2] = [Tier::Protocol, Tier::Node].map(|tier| row::<Partition>(tier, name));
    near(protocol.during_times, node.during_times, 0.05);
    near(protocol.after_times, node.after_times, 0.02);
    near(protocol.recover_s, node.recover_s, 1.0);
    near(protocol.heal_s, node.heal_s, 1.0);
}
