//! The examples of clients, each run as it says against a node that needs a token.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ground::{Ended, Served, ended, write};

/// No client may trip over a name.
const USER: &str = r#"a"b\c]d é"#;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/clients")
}

/// The node of the examples, on a port of its own.
fn node(folder: &Path) -> Served {
    let text = std::fs::read_to_string(clients().join("node.toml")).unwrap();
    let listen = "listen = \"127.0.0.1:8080\"";
    assert!(text.contains(listen) && text.contains("../tidegate-data/clients"), "{text}");
    let own = "listen = \"127.0.0.1:0\"\ntoken_file = \"token\"";
    write(folder, "token", "a-token-of-the-test\n");
    #[cfg(unix)]
    std::fs::set_permissions(folder.join("token"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    Served::start(&write(folder, "node.toml", &text.replace(listen, own).replace("../tidegate-data/clients", "data")))
}

/// Reserves and settles as `client` does it.
fn reserve_and_settle(client: &dyn Fn() -> Command, user: &str) {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path());
    let run = |words: [&str; 3], token: &str| ended(client().arg(&node.url).args(words).env("TIDEGATE_TOKEN", token));
    let right = |words: [&str; 3], code: i32, says: &str| {
        let done = run(words, "a-token-of-the-test");
        assert_eq!((done.code, done.stdout.trim_end()), (Some(code), says), "{words:?}: {}", done.stderr);
    };
    right([user, "2000", "1200"], 0, "settled: 48800 of 50000 tokens remain");
    right([user, "2000", "3000"], 0, "settled: 45800 of 50000 tokens remain");
    right([user, "800", "800"], 0, "settled: 45000 of 50000 tokens remain");
    right([user, "50001", "1"], 3, "denied: never");
    let Ended { code, stdout, stderr } = run([user, "45001", "1"], "a-token-of-the-test");
    let wait = stdout.trim_end().strip_prefix("denied: try again in ").and_then(|rest| rest.strip_suffix(" ms"));
    let wait: u64 = wait.and_then(|wait| wait.parse().ok()).unwrap_or_else(|| panic!("{stdout}{stderr}"));
    assert_eq!((code, (1..=86_400_001).contains(&wait)), (Some(3), true), "{stdout}");
    for bad in ["12.5", "-1", "many", ""] {
        let refused = run([user, "2000", bad], "a-token-of-the-test");
        assert!(![Some(0), Some(3)].contains(&refused.code) && refused.stdout.is_empty(), "{bad}: {refused:?}");
    }
    right([user, "45000", "45000"], 0, "settled: 0 of 50000 tokens remain");
    right([user, "0", "0"], 0, "settled: 0 of 50000 tokens remain");
    // The check is let in, the refund is not.
    let refused = run([user, "0", "1200"], "wrong");
    assert!(refused.code != Some(0) && refused.stdout.is_empty() && refused.stderr.contains("401"), "{refused:?}");
}

/// Whether this machine has a command; where it has not, its test has nothing to run.
fn is_here(name: &str) -> bool {
    let here = Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    if !here {
        eprintln!("NOT RUN: this machine has no {name}");
    }
    here
}

#[test]
fn with_curl() {
    if is_here("curl") {
        reserve_and_settle(&|| script("sh", "reserve_and_settle.sh"), USER);
    }
}

#[test]
fn with_python() {
    if is_here("python3") {
        reserve_and_settle(&|| script("python3", "reserve_and_settle.py"), USER);
    }
}

#[test]
fn with_javascript() {
    if is_here("node") {
        reserve_and_settle(&|| script("node", "reserve_and_settle.mjs"), USER);
    }
}

#[test]
fn with_rust() {
    let client = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.args(["run", "--quiet", "--locked", "--example", "reserve_and_settle", "--"]);
        cargo
    };
    reserve_and_settle(&client, USER);
}

fn script(interpreter: &str, name: &str) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(clients().join(name));
    command
}
