//! `cargo run --release --example memory`: resident bytes a key, everything included, for a million keys with one
//! spend each.

use std::process::Command;

use tidegate::engine::{Ask, Engine, Op, Settings};
use tidegate::id::{NodeName, ReplicaId, Secret};
use tidegate::limits::{LimitSet, LimitSpec};

const KEYS: u64 = 1_000_000;
const NOW_NS: u64 = 1_728_000_000_000_000_000;

fn main() {
    match std::env::args().nth(1) {
        Some(algorithm) => measure(&algorithm),
        // Each in a process of its own: what one frees the other would use.
        None => {
            let this = std::env::current_exe().expect("it was started from a file");
            for algorithm in ["token_bucket", "sliding_window", "fixed_window"] {
                let status = Command::new(&this).arg(algorithm).status().expect("it runs already");
                assert!(status.success());
            }
        }
    }
}

fn measure(algorithm: &str) {
    let engine = engine(algorithm);
    let before = resident_bytes();
    for key in 0..KEYS {
        let ask = Ask { limit: algorithm, key: &format!("user:{key}"), cost: 1 };
        let answer = engine.decide(NOW_NS + key * 1_000, Op::Check, &[ask]).expect("the limit is there");
        assert!(answer.allowed);
    }
    let after = resident_bytes();
    let stats = engine.stats();
    assert_eq!((stats.keys, stats.cells), (KEYS, KEYS));
    println!("{algorithm}: {:.1} bytes a key", (after - before) as f64 / KEYS as f64);
}

fn engine(algorithm: &str) -> Engine {
    let own = ReplicaId { node: NodeName::new("memory").expect("it is a name"), generation: 1, nonce: 1 };
    let engine = Engine::new(Settings::default(), own, &Secret([7; 32]));
    let spec = LimitSpec {
        name: algorithm.to_owned(),
        algorithm: Some(algorithm.to_owned()),
        limit: Some(100),
        window: Some("60s".to_owned()),
        ..LimitSpec::default()
    };
    engine.install(NOW_NS, LimitSet::new([spec.check().expect("it is right")]).expect("there is one"));
    engine
}

/// Of this process, as the kernel counts.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc tells of every process");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second is a number");
    pages * 4096
}
