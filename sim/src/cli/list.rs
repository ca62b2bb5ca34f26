//! `tidegate-sim list`.

use tidegate_sim::checks::CHECKS;
use tidegate_sim::faults::FAULTS;
use tidegate_sim::run::Tier;
use tidegate_sim::scenarios::SCENARIOS;
use tidegate_sim::states::STATES;

/// Says what there is.
pub fn list() {
    println!("scenarios (run --scenario NAME):");
    SCENARIOS.iter().for_each(|scenario| println!("  {:<16} {}", scenario.name, scenario.about));
    println!("faults (--only NAME, --without NAME):");
    for fault in FAULTS {
        let tier = if fault.node_tier { "" } else { " (protocol tier)" };
        println!("  {:<16} {}{tier}", fault.name, fault.about);
    }
    println!("properties:");
    CHECKS.iter().for_each(|check| println!("  {:<16} {}", check.name, check.about));
    println!("states that a sweep must reach:");
    for state in STATES {
        let tier = if state.tiers.contains(&Tier::Node) { "" } else { " (protocol tier)" };
        println!("  {:<20} {}{tier}", state.name, state.about);
    }
}
