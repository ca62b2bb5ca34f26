//! `tidegate demo`, the real binary: real nodes, relays, load, and what it says of them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::ground::{Ended, ended, tidegate, until};

/// A demo that keeps its temporary folder inside `temp`.
fn demo(temp: &Path, arguments: &[&str]) -> Command {
    let mut command = tidegate();
    command.env("TMPDIR", temp).arg("demo").args(arguments);
    command
}

fn folders(temp: &Path) -> Vec<PathBuf> {
    fs::read_dir(temp).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// The ids of processes that run with the config of `node` (empty: any) of a demo in `temp`.
fn processes(temp: &Path, node: &str) -> Vec<String> {
    let config = format!("/{node}.toml");
    let ours = |command_line: &str| {
        let mut words = command_line.split('\0').skip_while(|word| *word != "serve");
        words.any(|word| word.starts_with(temp.to_str().unwrap()) && (node.is_empty() || word.ends_with(&config)))
    };
    let entries = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok());
    let with_lines =
        entries.filter_map(|entry| Some((entry.file_name(), fs::read(entry.path().join("cmdline")).ok()?)));
    let ours = with_lines.filter(|(_, line)| ours(&String::from_utf8_lossy(line)));
    ours.map(|(id, _)| id.into_string().unwrap()).collect()
}

fn nodes_of(temp: &Path) -> usize {
    processes(temp, "").len()
}

/// Sends a signal, by the name that `kill` knows.
fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").arg(format!("-{name}")).arg(process).status().unwrap().success());
}

/// The value of the summary's line that begins with `name`.
fn line<'a>(summary: &'a Ended, name: &str) -> &'a str {
    let found = summary.stdout.lines().find(|line| line.trim_start().starts_with(name));
    found.unwrap_or_else(|| panic!("no line {name:?} in {summary:?}"))
}

#[test]
fn three_regions_hold_one_limit_and_agree() {
    let temp = tempfile::tempdir().unwrap();
    let ended = ended(&mut demo(temp.path(), &["--for", "8s", "--window", "4s", "--limit", "40"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("after the load stopped every node had the same counts"), "{ended:?}");
    assert!(line(&ended, "the worst:").contains("within 60"), "40 and what two others offer in 200 ms: {ended:?}");
    // All three took part: with one quota among them nobody had it alone.
    let counts = ["eu-1   counts", "us-1   counts", "ap-1   counts"]
        .map(|name| line(&ended, name).split_once("counts").unwrap().1);
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    for name in ["eu-1", "us-1", "ap-1"] {
        let admitted = line(&ended, &format!("{name}   offered")).split("admitted").nth(1).unwrap();
        assert_ne!(admitted.split(',').next().unwrap().trim(), "0", "{ended:?}");
        assert!(!admitted.contains("failed"), "{ended:?}");
    }
    assert_eq!(folders(temp.path()), Vec::<PathBuf>::new(), "the folder is gone");
    assert_eq!(nodes_of(temp.path()), 0, "so are the nodes");
}

#[test]
fn a_cut_region_decides_alone_and_agrees_again_once_healed() {
    let temp = tempfile::tempdir().unwrap();
    let ended =
        ended(&mut demo(temp.path(), &["--regions", "2", "--for", "12s", "--cut", "2@2s..7s", "--latency", "40ms"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("us-1 is cut off"), "{ended:?}");
    assert!(ended.stdout.contains("hear each other again"), "{ended:?}");
    assert!(ended.stdout.contains("(2 sides, each by itself)"), "{ended:?}");
}

/// A demo without an end, up and under load.
struct Running {
    child: Child,
    temp: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let mut child = demo(temp.path(), &[]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let up = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("| eu-1")));
        up.expect("a line of a running demo").unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        assert_eq!(nodes_of(temp.path()), 3);
        Self { child, temp }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_signal_stops_everything_in_order() {
    let mut running = Running::start();
    signal("TERM", &running.child.id().to_string());
    let status = until("the demo ends", || running.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    assert_eq!(nodes_of(running.temp.path()), 0);
    assert_eq!(folders(running.temp.path()), Vec::<PathBuf>::new());
}

#[test]
fn no_node_outlives_a_killed_demo() {
    let mut running = Running::start();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    until("the nodes end", || (nodes_of(running.temp.path()) == 0).then_some(()));
}

#[test]
fn a_node_that_ends_by_itself_is_told_and_makes_it_a_no() {
    let mut running = Running::start();
    let folder = folders(running.temp.path()).remove(0);
    let config = folder.join("us-1.toml");
    signal("KILL", &processes(running.temp.path(), "us-1")[0]);
    let status = until("the demo ends", || running.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    assert!(config.exists(), "the folder is kept for whoever wants to see what happened");
}

#[test]
fn what_makes_no_demo_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    for (arguments, named) in [
        (&["--regions", "6"][..], "--regions"),
        (&["--latency", "80"], "--latency"),
        (&["--cut", "4@1s..2s"], "--cut"),
        (&["--cut", "2@2s..1s"], "--cut"),
        (&["--limit", "0"], "--limit"),
        (&["--load", "100000"], "--load"),
    ] {
        let refused = ended(&mut demo(temp.path(), arguments));
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(named), "{refused:?}");
    }
    assert_eq!(folders(temp.path()), Vec::<PathBuf>::new());
}
