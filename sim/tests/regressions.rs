//! What once broke a property is kept as a schedule, and never does again.

use std::path::PathBuf;

use tidegate_sim::checks;
use tidegate_sim::run::Tier;
use tidegate_sim::schedule;
use tidegate_sim::trace::Trace;

fn kept() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/schedules");
    let files = std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("a file").path());
    let mut all: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    all.sort();
    all
}

#[test]
fn schedules_that_once_failed_are_clean_in_both_tiers() {
    assert!(!kept().is_empty());
    for path in kept() {
        let schedule = schedule::read(&path).expect("a schedule");
        for tier in [Tier::Protocol, Tier::Node] {
            let run = tier.run(schedule.clone(), Trace::new()).expect("the run comes to its end");
            assert_eq!(checks::broken(&run.history), Vec::new(), "{} in the {} tier", path.display(), tier.name());
        }
    }
}
