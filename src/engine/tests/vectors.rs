//! The step files of `tests/vectors`, through the engine.

use serde_json::Value;

use super::*;
use crate::algorithms::Verdict;

fn spec(value: &Value) -> LimitSpec {
    serde_json::from_value(value.clone()).unwrap()
}

fn retry_after(outcome: &Outcome) -> Value {
    match outcome.verdict {
        Verdict::Admitted(_) => Value::Null,
        Verdict::After(ns) => ns.into(),
        Verdict::Never => "never".into(),
    }
}

fn compare(file: &str, at: usize, expect: &Value, allowed: bool, outcome: &Outcome) {
    let got = [
        ("allowed", allowed.into()),
        ("remaining", outcome.remaining.into()),
        ("retry_after_ns", retry_after(outcome)),
        ("reset_after_ns", outcome.reset_after_ns.into()),
        ("delay_ns", outcome.delay_ns().into()),
    ];
    for (name, got) in got {
        if let Some(expect) = expect.get(name) {
            assert_eq!(&got, expect, "{file}, step {at}, {name}: {outcome:?}");
        }
    }
}

/// Runs a step file. The number of its steps.
fn run(file: &str, vector: &Value, sweep: bool) -> usize {
    let mut limits: Vec<LimitSpec> = vector["limits"].as_array().unwrap().iter().map(spec).collect();
    let t0 = vector["t0_ns"].as_u64().unwrap();
    let engine = engine("a", Settings::default());
    engine.install(t0, set(&limits));
    let steps = vector["steps"].as_array().unwrap();
    for (at, step) in steps.iter().enumerate() {
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
            "refund" => Op::Refund,
            "reset" => Op::Reset,
            "set_limit" => {
                change(&mut limits, &step["set"]);
                engine.install(now, set(&limits));
                continue;
            }
            other => panic!("{file}: {other}"),
        };
        decide_step(file, at, &engine, now, op, step);
    }
    steps.len()
}

fn change(limits: &mut [LimitSpec], change: &Value) {
    let change = change.as_object().unwrap();
    let limit = limits.iter_mut().find(|limit| limit.name == change["name"].as_str().unwrap()).unwrap();
    let mut fields = serde_json::to_value(&*limit).unwrap();
    fields.as_object_mut().unwrap().extend(change.clone());
    *limit = spec(&fields);
}

fn decide_step(file: &str, at: usize, engine: &Engine, now: u64, op: Op, step: &Value) {
    let ask = |check: &'_ Value| -> (String, String, u32) {
        let text = |name: &str| check[name].as_str().unwrap().to_owned();
        (text("limit"), text("key"), check["cost"].as_u64().unwrap_or(0) as u32)
    };
    let checks: Vec<_> = step["checks"].as_array().unwrap().iter().map(ask).collect();
    let asks: Vec<_> = checks.iter().map(|(limit, key, cost)| Ask { limit, key, cost: *cost }).collect();
    let answer = engine.decide(now, op, &asks).unwrap();
    let expect = &step["expect"];
    compare(file, at, expect, answer.allowed, answer.summary().unwrap_or(&answer.results[0]));
    for (result, expect) in answer.results.iter().zip(expect["results"].as_array().into_iter().flatten()) {
        compare(file, at, expect, result.allowed(), result);
    }
}

#[test]
fn step_files() {
    let (mut files, mut steps) = (0, 0);
    for entry in std::fs::read_dir("tests/vectors").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let vector: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        if vector.get("steps").is_none() {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        steps += run(name, &vector, false) + run(name, &vector, true);
        files += 1;
    }
    println!("{files} files, {steps} steps");
    assert_eq!(files, STEP_FILES);
}

const STEP_FILES: usize = 76;
