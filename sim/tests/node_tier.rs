//! The node tier carries out what schedules say.

use tidegate_sim::history::{History, Outcome};
use tidegate_sim::run::{Run, Tier};
use tidegate_sim::scenarios::{Scenario, Switches, draw_with, find};
use tidegate_sim::schedule::{Ask, DiskState, DiskTrouble, Event, Operation, Schedule, What};
use tidegate_sim::trace::Trace;

const MS: u64 = 1_000_000;

fn drawn(scenario: &Scenario, seed: u64) -> Schedule {
    draw_with(scenario, seed, &Switches { node_tier: true, ..Switches::default() })
}

fn run(schedule: Schedule) -> Run {
    Tier::Node.run(schedule, Trace::new()).expect("the run comes to its end")
}

/// A quiet run of three nodes, each asked for a token of each key every 50 ms, with more happening.
fn happens(more: Vec<(u64, What)>) -> Run {
    let mut schedule = drawn(find("converge").expect("it is there"), 1);
    schedule.events.clear();
    for limit in &mut schedule.limits {
        (limit.limit, limit.burst) = (Some(100_000), limit.burst.map(|_| 100_000));
    }
    let asks = (1_000..schedule.load_until_ms).step_by(50).flat_map(|at_ms| {
        let pairs = (0..3).flat_map(|node| (0..3).map(move |key| (node, key)));
        pairs.map(move |(node, key)| (at_ms, What::Ask(Ask { node, key, cost: 1, op: Operation::Check })))
    });
    schedule.events = more.into_iter().chain(asks).map(|(at_ms, what)| Event { at_ms, what }).collect();
    schedule.sort();
    run(schedule)
}

/// When requests were sent to a node, milliseconds of the run.
fn asked_ms(history: &History, node: usize) -> Vec<u64> {
    history.load().filter(|request| request.life.node == node).map(|request| request.sent_ns / MS).collect()
}

/// What `at` held of `of`'s spends, all keys, at its last look within so many milliseconds of the run.
fn held(history: &History, at: usize, of: usize, within_ms: u64) -> u64 {
    let probe = history.probes.iter().rfind(|probe| probe.life.node == at && probe.at_ns <= within_ms * MS);
    let cells = probe.expect("every node is looked at").cells.iter();
    cells.filter(|cell| cell.life.node == of).map(|cell| cell.spent).sum()
}

#[test]
fn a_seed_gives_one_trace_and_another_seed_another() {
    // Packets of connections that a process made before it died meet the next one.
    for (scenario, seed) in [("processes", 112), ("weather", 1), ("any", 120)] {
        let scenario = find(scenario).expect("it is there");
        let hash = |seed| run(drawn(scenario, seed)).trace_hash;
        let first = hash(seed);
        assert_eq!(first, hash(seed), "{} {seed}", scenario.name);
        assert_ne!(first, hash(seed + 1), "{} {seed}", scenario.name);
    }
}

#[test]
fn what_is_asked_of_a_process_that_is_down_is_skipped_and_its_disk_is_what_the_schedule_says() {
    for (disk, kept) in [(DiskState::Kept, true), (DiskState::Empty, false), (DiskState::Copy, true)] {
        let events = vec![
            (2_000, What::Copy { node: 1 }),
            (2_501, What::Crash { node: 1 }),
            (3_501, What::Start { node: 1, disk }),
        ];
        let history = happens(events).history;
        let asked = asked_ms(&history, 1);
        assert!(asked.iter().all(|ms| *ms <= 2_501 || *ms >= 3_501), "{asked:?}");
        assert!(asked.iter().any(|ms| *ms > 4_000));
        assert_eq!(history.lives.iter().filter(|start| start.life.node == 1).count(), 2);
        // A request that was sent at 2,500 ms is under way at 2,501.
        assert!(history.load().any(|request| request.life.node == 1 && request.outcome == Outcome::Unknown));
        let recovered = history.states.iter().find(|(state, _)| state.name == "RecoveredRecords").map(|state| state.1);
        assert_eq!(recovered, Some(u64::from(kept)), "{disk:?}");
    }
}

#[test]
fn a_process_whose_disk_is_full_starts_once_there_is_room() {
    let disk = |fault| What::Disk { node: 2, fault };
    let events = vec![
        (2_000, disk(Some(DiskTrouble::Full))),
        (2_100, What::Crash { node: 2 }),
        (2_200, What::Start { node: 2, disk: DiskState::Kept }),
        (4_000, disk(None)),
    ];
    let history = happens(events).history;
    let starts: Vec<u64> =
        history.lives.iter().filter(|start| start.life.node == 2).map(|start| start.at_ns / MS).collect();
    assert!(matches!(starts[..], [0, again] if (4_000..=4_500).contains(&again)), "{starts:?}");
}

#[test]
fn a_cut_lets_pass_what_goes_the_other_way_and_ends_when_all_is_calm() {
    let history = happens(vec![(2_000, What::Cut { from: 0, to: 1 })]).history;
    let [before, during, after] = [1_990, 3_500, history.settled_ns() / MS].map(|ms| held(&history, 1, 0, ms));
    // Both are connected to the third, but nobody hands on what is not theirs.
    assert!(before > 0 && during <= before + 9, "{before} {during}");
    assert!(after > during);
    assert!(held(&history, 0, 1, 2_500) > held(&history, 0, 1, 1_990));
}

#[test]
fn limits_change_at_their_time_on_nodes_that_run_and_those_that_do_not() {
    let schedule = drawn(find("converge").expect("it is there"), 1);
    let nothing = tidegate::limits::LimitSpec { limit: Some(0), ..schedule.limits[0].clone() };
    let change = |node| What::Limit { node, limit: 0, spec: Box::new(nothing.clone()) };
    let events = vec![
        (2_510, change(0)),
        (2_400, What::Crash { node: 1 }),
        (2_510, change(1)),
        (2_600, What::Start { node: 1, disk: DiskState::Kept }),
    ];
    let history = happens(events).history;
    let decided = |node: usize, from_ms: u64, until_ms: u64| {
        let of = history.load().filter(move |r| r.life.node == node && r.key == 0 && r.decided());
        let within = of.filter(move |r| (from_ms * MS..until_ms * MS).contains(&r.sent_ns));
        within.map(|request| request.outcome).collect::<Vec<_>>()
    };
    for (node, until_ms, from_ms) in [(0, 2_505, 2_515), (1, 2_395, 2_605)] {
        let (before, after) = (decided(node, 0, until_ms), decided(node, from_ms, u64::MAX / MS));
        assert!(before.len() > 10 && before.iter().all(|outcome| *outcome == Outcome::Admitted), "{node}: {before:?}");
        assert!(after.len() > 10 && after.iter().all(|outcome| *outcome == Outcome::Denied), "{node}: {after:?}");
    }
    assert!(decided(2, 0, u64::MAX / MS).iter().all(|outcome| *outcome == Outcome::Admitted));
}
