//! The decision vectors of `tests/vectors/` (its README has the format): step files through the engine, through
//! `replay::run` and through the binary's `tidegate replay`; replicated files through the cells and algorithms.
#![cfg(feature = "node")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tidegate::algorithms::bucket::{Bucket, Walk};
use tidegate::algorithms::window::Window;
use tidegate::algorithms::{Level, Verdict};
use tidegate::crdt::{Base, Cell, Mark, ReplicaIx, Slots};
use tidegate::engine::{Answer, Ask, Engine, Op, Outcome, Settings};
use tidegate::id::{NodeName, ReplicaId, Secret};
use tidegate::limits::{LimitSet, LimitSpec, Shape};
use tidegate::replay;

const OPERATIONS: [(&str, Op); 5] =
    [("check", Op::Check), ("peek", Op::Peek), ("debit", Op::Debit), ("refund", Op::Refund), ("reset", Op::Reset)];
const STEP_FILES: usize = 76;
const REPLICATED_FILES: usize = 7;

struct Vector {
    file: PathBuf,
    content: Value,
}

/// Every vector file that has the field `of`.
fn vectors(of: &str) -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let read = |file: PathBuf| Vector { content: serde_json::from_slice(&fs::read(&file).unwrap()).unwrap(), file };
    files.into_iter().map(read).filter(|vector| vector.content.get(of).is_some()).collect()
}

fn step_files() -> Vec<Vector> {
    let files = vectors("steps");
    assert_eq!(files.len(), STEP_FILES, "step files");
    files
}

/// None for `set_limit`, which is not answered.
fn operation(step: &Value) -> Option<Op> {
    OPERATIONS.iter().find(|(name, _)| step["op"] == *name).map(|(_, op)| *op)
}

fn limit_set<'a>(limits: impl IntoIterator<Item = &'a Value>) -> LimitSet {
    let limits = limits.into_iter().map(|limit| serde_json::from_value::<LimitSpec>(limit.clone()).unwrap());
    LimitSet::new(limits.map(|spec| spec.check().unwrap())).unwrap()
}

impl Vector {
    fn limits(&self) -> impl Iterator<Item = &Value> {
        self.content["limits"].as_array().unwrap().iter()
    }

    fn limit_set(&self) -> LimitSet {
        limit_set(self.limits())
    }

    fn steps(&self) -> impl Iterator<Item = &Value> {
        self.content["steps"].as_array().unwrap().iter()
    }

    fn at_ns(&self, step: &Value) -> u64 {
        self.content["t0_ns"].as_u64().unwrap() + step["at_ns"].as_u64().unwrap()
    }

    /// As a trace: JSON lines with absolute times and without what is expected.
    fn trace(&self) -> String {
        let line = |step: &Value| {
            let mut step = step.clone();
            step["at_ns"] = self.at_ns(&step).into();
            step.as_object_mut().unwrap().retain(|field, _| field != "expect" && field != "note");
            format!("{step}\n")
        };
        self.steps().map(line).collect()
    }

    /// As the `[[limits]]` of a configuration. A JSON string is a TOML string, and so is a whole number.
    fn toml(&self) -> String {
        let field = |(name, value): (&String, &Value)| format!("{name} = {value}\n");
        let table = |limit: &Value| limit.as_object().unwrap().iter().map(field).collect::<String>();
        self.limits().map(|limit| format!("[[limits]]\n{}\n", table(limit))).collect()
    }

    /// Compares the lines of a replay with what the file expects of them.
    fn compare_lines(&self, lines: &str) {
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let answered = || self.steps().filter(|step| operation(step).is_some());
        assert_eq!(lines.len(), answered().count(), "{:?}: lines", self.file);
        for (number, (step, line)) in answered().zip(&lines).enumerate() {
            let at = format!("{:?}, step {number}: {step} was answered {line}", self.file);
            self.compare_line(step, line, &at);
        }
    }

    fn compare_line(&self, step: &Value, line: &Value, at: &str) {
        let (checks, expect) = (step["checks"].as_array().unwrap(), &step["expect"]);
        let results = line["results"].as_array().unwrap();
        assert_eq!(results.len(), checks.len(), "{at}");
        for (check, result) in checks.iter().zip(results) {
            assert_eq!((&check["limit"], &check["key"]), (&result["limit"], &result["key"]), "{at}");
            let queued = self.limits().any(|limit| limit["name"] == check["limit"] && limit.get("queue").is_some());
            assert!(queued || result["delay_ns"] == 0, "{at}");
        }
        if matches!(operation(step), Some(Op::Debit | Op::Refund | Op::Reset)) {
            assert_eq!(line["allowed"], true, "{at}");
            assert!(results.iter().all(|r| r["allowed"] == true && r["retry_after_ns"].is_null()), "{at}");
        }
        if let Some(allowed) = expect.get("allowed") {
            assert_eq!(&line["allowed"], allowed, "{at}");
        }
        match expect.get("results") {
            Some(expected) => {
                let expected = expected.as_array().unwrap();
                assert_eq!(expected.len(), results.len(), "{at}");
                expected.iter().zip(results).for_each(|(expected, result)| includes(result, expected, at));
            }
            None if checks.len() == 1 => includes(&results[0], expect, at),
            None => {}
        }
    }
}

/// Every key that `expected` states has the same value in `told`.
fn includes(told: &Value, expected: &Value, at: &str) {
    for (key, value) in expected.as_object().unwrap().iter().filter(|(key, _)| *key != "results") {
        assert_eq!(told.get(key), Some(value), "{key}: {at}");
    }
}

/// What one result says, as the vectors have it.
fn told(outcome: &Outcome) -> Value {
    let retry_after = match outcome.verdict {
        Verdict::Admitted(_) => Value::Null,
        Verdict::After(ns) => ns.into(),
        Verdict::Never => "never".into(),
    };
    json!({"limit": outcome.limit.name.as_str(), "allowed": outcome.allowed(), "remaining": outcome.remaining,
           "delay_ns": outcome.delay_ns(), "retry_after_ns": retry_after, "reset_after_ns": outcome.reset_after_ns})
}

/// What the vectors call the summary; of limits in shadow mode alone the first.
fn summary(answer: &Answer) -> Value {
    let mut told = told(answer.summary().unwrap_or(&answer.results[0]));
    told["allowed"] = answer.allowed.into();
    if answer.allowed {
        told["retry_after_ns"] = Value::Null;
    }
    told
}

#[test]
fn steps_through_the_engine() {
    for vector in step_files() {
        let own = ReplicaId { node: NodeName::new("vectors").unwrap(), generation: 1, nonce: 7 };
        let engine = Engine::new(Settings::default(), own, &Secret([7; 32]));
        let mut limits: Vec<Value> = vector.limits().cloned().collect();
        engine.install(vector.content["t0_ns"].as_u64().unwrap(), limit_set(&limits));
        for (number, step) in vector.steps().enumerate() {
            let Some(op) = operation(step) else {
                let set = step["set"].as_object().unwrap();
                let limit = limits.iter_mut().find(|limit| limit["name"] == set["name"]).unwrap();
                limit.as_object_mut().unwrap().extend(set.clone());
                engine.install(vector.at_ns(step), limit_set(&limits));
                continue;
            };
            let checks = step["checks"].as_array().unwrap();
            let asks: Vec<_> = checks.iter().map(ask).collect();
            let answer = engine.decide(vector.at_ns(step), op, &asks).unwrap();
            let at = format!("{:?}, step {number}: {step} was answered {answer:?}", vector.file);
            includes(&summary(&answer), &step["expect"], &at);
            for (expected, outcome) in step["expect"]["results"].as_array().into_iter().flatten().zip(&answer.results) {
                let mut told = told(outcome);
                told["key"] = expected["key"].clone();
                includes(&told, expected, &at);
            }
        }
    }
}

fn ask(check: &Value) -> Ask<'_> {
    let cost = check.get("cost").map_or(1, |cost| u32::try_from(cost.as_u64().unwrap()).unwrap());
    Ask { limit: check["limit"].as_str().unwrap(), key: check["key"].as_str().unwrap(), cost }
}

#[test]
fn steps_through_replay() {
    for vector in step_files() {
        let mut lines = Vec::new();
        replay::run(vector.limit_set(), vector.trace().as_bytes(), &mut lines).unwrap();
        vector.compare_lines(std::str::from_utf8(&lines).unwrap());
    }
}

#[test]
fn steps_through_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let (limits, trace) = (folder.path().join("limits.toml"), folder.path().join("trace.jsonl"));
    for vector in step_files() {
        fs::write(&limits, vector.toml()).unwrap();
        fs::write(&trace, vector.trace()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.arg("replay").arg("--limits").arg(&limits).arg(&trace).output().unwrap();
        assert!(output.status.success(), "{:?}: {}", vector.file, String::from_utf8_lossy(&output.stderr));
        vector.compare_lines(std::str::from_utf8(&output.stdout).unwrap());
    }
}

/// What the file's limit reads of a key's cells, with the file's own slot length and overdraft room.
fn read(content: &Value, slots: &Slots) -> Value {
    let spec: LimitSpec = serde_json::from_value(content["limit"].clone()).unwrap();
    let limit = spec.check().unwrap();
    let (slot_ns, now_ns) = (content["slot_ns"].as_u64().unwrap(), content["now_ns"].as_u64().unwrap());
    let (used, mut told) = match limit.shape() {
        Shape::Window(window) => {
            assert_eq!(slot_ns, window.slot_ns(), "a slot is a window");
            let used = read_window(&window, slots, now_ns);
            (used, json!({"used": used}))
        }
        Shape::Bucket(bucket) => {
            let bucket = Bucket { slot_ns, ..bucket };
            let overdraft = bucket.cost(content["cap"].as_u64().unwrap());
            let walk = Walk::default().through(&bucket, overdraft, slots.cells(), slots.bases());
            let level = bucket.level(walk.t, now_ns);
            (level.used(), json!({"debt_scaled": level.debt.to_string()}))
        }
    };
    told["remaining"] = limit.capacity().saturating_sub(used).into();
    told
}

fn read_window(window: &Window, slots: &Slots, now_ns: u64) -> u64 {
    window.level(now_ns, slots.cells()).used()
}

fn wide(value: &Value) -> u128 {
    value.as_str().unwrap().parse().unwrap()
}

/// A cell as a replica sent it. A window's has only `spent`.
fn cell(written: &Value) -> Cell {
    let mut cell = Cell { spent: written["spent"].as_u64().unwrap(), ..Cell::empty(0) };
    if let Some(first) = written.get("first_ns") {
        cell.first_ns = first.as_u64().unwrap();
        cell.fin = wide(&written["fin"]);
    }
    cell
}

#[test]
fn replicated_cells_in_every_delivery() {
    let files = vectors("deliveries");
    assert_eq!(files.len(), REPLICATED_FILES, "replicated files");
    for Vector { file, content } in files {
        let cells = content["cells"].as_array().unwrap();
        let mut replicas = HashMap::new();
        for (number, delivery) in content["deliveries"].as_array().unwrap().iter().enumerate() {
            let mut slots = Slots::default();
            for base in content["base"].as_array().unwrap() {
                let value = Base { mark: Mark::default(), t: wide(&base["t_scaled"]), d: 0 };
                slots.merge_base(base["slot"].as_u64().unwrap(), &value);
            }
            for index in delivery.as_array().unwrap() {
                let written = &cells[usize::try_from(index.as_u64().unwrap()).unwrap()];
                let next = u16::try_from(replicas.len() + 1).unwrap();
                let replica = *replicas.entry(written["replica"].as_str().unwrap().to_owned()).or_insert(next);
                slots.merge_cell(written["slot"].as_u64().unwrap(), ReplicaIx(replica), &cell(written));
            }
            assert_eq!(read(&content, &slots), content["expect"], "{file:?}, delivery {number}");
        }
    }
}
