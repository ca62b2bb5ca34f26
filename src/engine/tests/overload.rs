//! Three nodes that hear of each other late, each asked for far more than its share: how much is admitted in all.

use std::collections::VecDeque;

use super::*;
use crate::time::{MS, SECOND};

const NODES: usize = 3;
const INTERVAL_NS: u64 = 50 * MS;

struct Load {
    spec: LimitSpec,
    tick_ns: u64,
    /// Requests of cost 1 that each node gets in a tick.
    each_tick: u64,
    latency_ns: u64,
    /// From when to when what was admitted is counted.
    from: u64,
    to: u64,
}

/// Requests admitted in all, by tick.
fn run(load: &Load) -> Vec<(u64, u64)> {
    let limits = set(std::slice::from_ref(&load.spec));
    let nodes: Vec<_> = (0..NODES)
        .map(|at| {
            let engine = engine(&format!("n{at}"), Settings::default());
            engine.install(T0, limits.clone());
            engine.set_members(NODES as u32);
            engine
        })
        .collect();
    let mut post: VecDeque<(u64, usize, Part)> = VecDeque::new();
    let mut admitted = Vec::new();
    let mut now = T0;
    while now < load.to {
        now += load.tick_ns;
        while post.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, from, part) = post.pop_front().unwrap();
            for (at, node) in nodes.iter().enumerate() {
                if at != from {
                    node.merge(now, &nodes[from].own(), &part.groups).unwrap();
                }
            }
        }
        let mut sum = 0;
        for (at, node) in nodes.iter().enumerate() {
            let mut urgent = false;
            for _ in 0..load.each_tick {
                let answer = node.decide(now, Op::Check, &[Ask { limit: "l", key: "k", cost: 1 }]).unwrap();
                sum += u64::from(answer.allowed);
                urgent |= answer.urgent;
            }
            if urgent || now.is_multiple_of(INTERVAL_NS) {
                post.extend(node.drain(now).parts.into_iter().map(|part| (now + load.latency_ns, at, part)));
            }
            if now.is_multiple_of(SECOND) {
                node.sweep(now);
            }
        }
        admitted.push((now, sum));
    }
    admitted.retain(|(at, _)| *at > load.from);
    admitted
}

#[test]
fn a_bucket_keeps_its_rate_in_the_long_run() {
    // 20 times the limit in all.
    let spec = limit("l", "token_bucket", 200, "1s", Some(200));
    let load = Load {
        spec,
        tick_ns: 5 * MS,
        each_tick: 7,
        latency_ns: 150 * MS,
        from: T0 + 10 * SECOND,
        to: T0 + 40 * SECOND,
    };
    let admitted: u64 = run(&load).iter().map(|(_, sum)| sum).sum();
    let fair = 200 * 30;
    assert!(admitted >= fair * 90 / 100 && admitted <= fair * 105 / 100, "{admitted} of {fair}");
}

#[test]
fn a_sliding_window_of_three_regions_goes_little_over() {
    // Each region is asked for five times the limit, 100 in 10 s.
    let spec = limit("l", "sliding_window", 100, "10s", None);
    let load = Load { spec, tick_ns: 20 * MS, each_tick: 1, latency_ns: 80 * MS, from: T0, to: T0 + 60 * SECOND };
    let mut windows = std::collections::BTreeMap::new();
    for (at, sum) in run(&load) {
        *windows.entry(at / (10 * SECOND)).or_insert(0) += sum;
    }
    assert!(windows.values().all(|sum| *sum <= 120), "{windows:?}");
}
