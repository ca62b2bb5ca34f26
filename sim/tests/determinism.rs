//! Before anything else: the same seed gives the same run, in separate processes, and another seed another run, in both
//! tiers. Every other result of a simulation is worth what this one is.

use std::process::Command;

/// Runs the simulation in a process of its own and returns its trace hash.
fn trace_hash(tier: &str, scenario: &str, seed: u64) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_tidegate-sim"))
        .args(["run", "--tier", tier, "--scenario", scenario, "--seed", &seed.to_string(), "--json"])
        .output()
        .expect("the simulation starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{stdout}{stderr}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON document");
    report["trace_hash"].as_str().expect("a text").to_owned()
}

fn repeats(tier: &str, scenario: &str) {
    let first = trace_hash(tier, scenario, 1);
    assert_eq!(first.len(), 32);
    assert!(first.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)), "{first}");
    assert_eq!(first, trace_hash(tier, scenario, 1));
    assert_ne!(first, trace_hash(tier, scenario, 2));
}

#[test]
fn the_same_seed_gives_the_same_trace_in_two_processes() {
    repeats("node", "partition");
    repeats("protocol", "partition");
    repeats("protocol", "any");
}

/// Several processes die here while others speak to them: once their connections' keys came from the machine, and two
/// runs in a hundred differed.
#[test]
fn so_does_one_in_which_processes_die() {
    assert_eq!(trace_hash("node", "processes", 112), trace_hash("node", "processes", 112));
}
