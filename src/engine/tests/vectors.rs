//! The step files of `tests/vectors`, through the engine.

use serde_json::Value;

use super::*;
use crate::algorithms::Wait;

fn spec(value: &Value) -> Option<LimitSpec> {
    serde_json::from_value(value.clone()).ok()
}

fn wait(wait: Wait) -> Value {
    match wait {
        Wait::None => Value::Null,
        Wait::After(ns) => ns.into(),
        Wait::Never => "never".into(),
    }
}

fn compare(file: &str, at: usize, expect: &Value, allowed: bool, outcome: &Outcome) {
    let got = [
        ("allowed", allowed.into()),
        ("remaining", outcome.remaining.into()),
        ("retry_after_ns", wait(outcome.retry_after)),
        ("reset_after_ns", outcome.reset_after_ns.into()),
    ];
    for (name, got) in got {
        if let Some(expect) = expect.get(name) {
            assert_eq!(&got, expect, "{file}, step {at}, {name}: {outcome:?}");
        }
    }
}

/// Runs the steps that name no limit of a later version. None when there is none, or when others change what those are
/// to answer.
fn run(file: &str, vector: &Value, sweep: bool) -> Option<usize> {
    let all = vector["limits"].as_array()?.iter().filter_map(spec);
    let mut limits: Vec<LimitSpec> = all.filter(|limit| limit.check().is_ok()).collect();
    let t0 = vector["t0_ns"].as_u64().unwrap();
    let engine = engine("a", Settings::default());
    engine.install(t0, set(&limits));
    let known = |check: &Value| limits.iter().any(|limit| limit.name == check["limit"].as_str().unwrap());
    let mixed = |step: &&Value| {
        let checks = step["checks"].as_array();
        checks.is_some_and(|checks| checks.iter().any(known) && !checks.iter().all(known))
    };
    if vector["steps"].as_array()?.iter().any(|step| mixed(&step)) {
        return None;
    }
    let mut done = 0;
    for (at, step) in vector["steps"].as_array()?.iter().enumerate() {
        let now = t0 + step["at_ns"].as_u64().unwrap();
        if sweep {
            engine.sweep(now);
            if at % 3 == 0 {
                engine.drain(now);
            }
        }
        let op = match step["op"].as_str().unwrap() {
            "check" => Op::Check,
            "peek" => Op::Peek,
            "debit" => Op::Debit,
            "reset" => Op::Reset,
            "refund" => return None,
            "set_limit" => {
                change(&mut limits, &step["set"]);
                engine.install(now, set(&limits));
                continue;
            }
            other => panic!("{file}: {other}"),
        };
        if decide_step(file, at, &engine, now, op, step) {
            done += 1;
        }
    }
    (done > 0).then_some(done)
}

/// A limit changed to what a later version knows is gone.
fn change(limits: &mut Vec<LimitSpec>, change: &Value) {
    let change = change.as_object().unwrap();
    let Some(at) = limits.iter().position(|limit| limit.name == change["name"].as_str().unwrap()) else { return };
    let mut fields = serde_json::to_value(limits.remove(at)).unwrap();
    fields.as_object_mut().unwrap().extend(change.clone());
    limits.extend(spec(&fields).filter(|limit| limit.check().is_ok()));
}

fn decide_step(file: &str, at: usize, engine: &Engine, now: u64, op: Op, step: &Value) -> bool {
    let ask = |check: &'_ Value| -> (String, String, u32) {
        let text = |name: &str| check[name].as_str().unwrap().to_owned();
        (text("limit"), text("key"), check["cost"].as_u64().unwrap_or(0) as u32)
    };
    let checks: Vec<_> = step["checks"].as_array().unwrap().iter().map(ask).collect();
    let asks: Vec<_> = checks.iter().map(|(limit, key, cost)| Ask { limit, key, cost: *cost }).collect();
    let Ok(answer) = engine.decide(now, op, &asks) else { return false };
    let expect = &step["expect"];
    compare(file, at, expect, answer.allowed, &answer.results[answer.summary]);
    for (result, expect) in answer.results.iter().zip(expect["results"].as_array().into_iter().flatten()) {
        compare(file, at, expect, result.allowed, result);
    }
    true
}

#[test]
fn step_files() {
    let (mut files, mut steps) = (Vec::new(), 0);
    for entry in std::fs::read_dir("tests/vectors").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let vector: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        for sweep in [false, true] {
            if let Some(count) = run(&name, &vector, sweep) {
                steps += count;
                files.push(name.clone());
            }
        }
    }
    files.sort();
    files.dedup();
    println!("{} files, {steps} steps: {files:?}", files.len());
    assert!(files.len() >= 39, "only {}", files.len());
}
