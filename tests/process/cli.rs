//! The real binary: its commands, what they refuse, and their exit codes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::ground::{Ended, Served, ended, run, tidegate, until, write};

const LIMITS: &str = "[[limits]]\nname = \"l\"\nalgorithm = \"token_bucket\"\nlimit = 1\nwindow = \"1s\"\nburst = 2\n";

/// A node by itself on any free port.
fn single(name: &str) -> String {
    format!("[node]\nname = \"{name}\"\ndata_dir = \"data\"\n[http]\nlisten = \"127.0.0.1:0\"\n{LIMITS}")
}

#[test]
fn bad_usage_is_two_and_help_is_zero() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &[][..],
        &["sreve"],
        &["serve", "--confg", "x"],
        &["check-config"],
        &["replay"],
        &["cert"],
        &["cert", "node", "Bad_Name", "--ca", ".", "--out", "."],
        &["status", "--url", "127.0.0.1:8080"],
        &["limits"],
        &["limits", "apply"],
        &["limits", "list", "--url", "127.0.0.1:8080"],
        &["limits", "delete", "l", "--token-file", "none"],
        &["demo", "--regions", "many"],
    ] {
        let refused = run(folder.path(), arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {refused:?}");
        assert!(!refused.stderr.is_empty() && !refused.stderr.contains("panicked"), "{}", refused.stderr);
    }
    for arguments in [&["--help"][..], &["serve", "--help"], &["cert", "node", "--help"]] {
        assert_eq!(run(folder.path(), arguments).code, Some(0), "{arguments:?}");
    }
    for (arguments, told) in [
        (&["--help"][..], "Exit codes:\n  0  fine"),
        (&["serve", "--help"], "SIGHUP"),
        (&["serve", "--help"], "RUST_LOG"),
        (&["replay", "--help"], "{\"at_ns\":"),
    ] {
        let help = run(folder.path(), arguments).stdout;
        assert!(help.contains(told), "{arguments:?}: {help}");
    }
    let version = run(folder.path(), &["--version"]);
    assert_eq!(version.stdout, format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn certificates_are_made_shown_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let made = |arguments: &[&str]| run(folder.path(), arguments);
    assert_eq!(made(&["cert", "ca", "--out", "new/ca"]).code, Some(0));
    let node = ["cert", "node", "eu-1", "--ca", "new/ca", "--out", "eu", "--san", "eu-1.example", "--san", "10.0.0.1"];
    assert_eq!(made(&node).code, Some(0));
    for (file, mode) in [
        ("new/ca/ca.pem", 0o644),
        ("new/ca/ca.key", 0o600),
        ("new/ca/cluster.secret", 0o600),
        ("eu/eu-1.pem", 0o644),
        ("eu/eu-1.key", 0o600),
    ] {
        use std::os::unix::fs::PermissionsExt;
        let found = fs::metadata(folder.path().join(file)).unwrap().permissions().mode() & 0o777;
        // What others may read depends on the caller's umask; what is private does not.
        assert_eq!(found & 0o700, 0o600, "{file}: {found:o}");
        assert_eq!(found & !mode, 0, "{file}: {found:o}");
    }
    let shown = made(&["cert", "show", "eu/eu-1.pem"]);
    assert_eq!(shown.code, Some(0));
    for part in ["CN=eu-1", "tidegate authority", "eu-1.example, 10.0.0.1", "\nleft        7"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let before = fs::read(folder.path().join("new/ca/ca.key")).unwrap();
    for (arguments, said) in [
        (&["cert", "ca", "--out", "new/ca"][..], "new/ca/ca.pem exists already"),
        (&node, "eu/eu-1.pem exists already"),
        (&["cert", "node", "us-1", "--ca", "eu", "--out", "us"], "eu/ca.pem"),
        (&["cert", "node", "us-1", "--ca", "new/ca", "--out", "us", "--san", "a b"], "\"a b\" is neither"),
        (&["cert", "show", "eu/eu-1.key"], "holds no certificate"),
        (&["cert", "show", "none.pem"], "none.pem"),
    ] {
        let refused = made(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {refused:?}");
        assert!(refused.stderr.starts_with("error: ") && refused.stderr.contains(said), "{}", refused.stderr);
    }
    assert_eq!(fs::read(folder.path().join("new/ca/ca.key")).unwrap(), before);
    assert!(!folder.path().join("us").exists(), "a refused certificate leaves nothing behind");
}

#[test]
fn a_trace_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "limits.toml", LIMITS);
    let step = |at_s: u64| {
        format!("{{\"at_ns\":{at_s}000000000,\"op\":\"check\",\"checks\":[{{\"limit\":\"l\",\"key\":\"k\"}}]}}\n")
    };
    let trace: String = [10, 10, 10, 11].map(step).concat();
    write(folder.path(), "trace.jsonl", &trace);
    let from_file = run(folder.path(), &["replay", "--limits", "limits.toml", "trace.jsonl"]);
    assert_eq!((from_file.code, from_file.stderr.as_str()), (Some(0), ""));
    let allowed: Vec<bool> = from_file.stdout.lines().map(|line| line.starts_with("{\"allowed\":true")).collect();
    assert_eq!(allowed, [true, true, false, true], "{}", from_file.stdout);

    let from_stdin = with_input(folder.path(), &["replay", "--limits", "limits.toml"], &trace);
    assert_eq!(from_stdin.stdout, from_file.stdout);
    let backwards = with_input(folder.path(), &["replay", "--limits", "limits.toml"], &(step(10) + &step(9)));
    assert_eq!(backwards.code, Some(2));
    assert!(backwards.stderr.starts_with("error: standard input: line 2: "), "{}", backwards.stderr);
    assert_eq!(backwards.stdout.lines().count(), 1, "what was decided before is written");
    let missing = run(folder.path(), &["replay", "--limits", "limits.toml", "none.jsonl"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("none.jsonl"), "{}", missing.stderr);
    // A node's whole configuration has limits too.
    write(folder.path(), "node.toml", &single("a"));
    let whole = run(folder.path(), &["replay", "--limits", "node.toml", "trace.jsonl"]);
    assert_eq!((whole.code, &whole.stdout), (Some(0), &from_file.stdout), "{}", whole.stderr);
}

#[test]
fn status_is_one_without_a_node_and_zero_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = run(folder.path(), &["status", "--url", &format!("http://{free}")]);
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(nobody.stderr.starts_with("error: http://127.0.0.1:"), "{}", nobody.stderr);

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        // It answers what it was asked, not who knocks.
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>").unwrap();
    });
    let no_node = run(folder.path(), &["status", "--url", &url]);
    assert_eq!(no_node.code, Some(1), "{no_node:?}");
    let said = format!("error: {url}/v1/cluster answers 404 Not Found and not what a tidegate would");
    assert!(no_node.stderr.starts_with(&said), "{}", no_node.stderr);

    let served = Served::start(&write(folder.path(), "a.toml", &single("alone")));
    let asked = run(folder.path(), &["status", "--url", &served.url]);
    assert_eq!((asked.code, asked.stderr.as_str()), (Some(0), ""), "{}", asked.stdout);
    for part in ["alone", "self", "health: ok", "ready: yes"] {
        assert!(asked.stdout.contains(part), "{part}: {}", asked.stdout);
    }
    let by_variable = ended(tidegate().arg("status").env("TIDEGATE_URL", &served.url));
    assert_eq!(by_variable.code, Some(0));
}

#[test]
fn limits_are_made_changed_and_deleted_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let token = "a-token-of-twenty-one";
    write(folder.path(), "token", token);
    let text = single("a").replace("[http]\n", "[http]\ntoken_file = \"token\"\n");
    let served = Served::start(&write(folder.path(), "a.toml", &text));
    let asked = |arguments: &[&str]| {
        let arguments = [&["limits"][..], arguments].concat();
        ended(tidegate().current_dir(folder.path()).args(arguments).env("TIDEGATE_URL", &served.url))
    };
    let fine = |arguments: &[&str]| {
        let done = asked(arguments);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{arguments:?}: {}", done.stdout);
        done.stdout
    };
    let no = |arguments: &[&str], said: &str| {
        let refused = asked(arguments);
        assert_eq!(refused.code, Some(1), "{arguments:?}: {refused:?}");
        assert!(refused.stderr.contains(said), "{arguments:?}: {}", refused.stderr);
        refused.stdout
    };

    let user = "[[limits]]\nname = \"user\"\nlimit = 100\nwindow = \"1h\"\nkey = \"{user}\"\n\
                when = { plan = [\"free\", \"trial\"], route = { prefix = \"GET \" } }\n\
                [[overrides]]\nof = \"user\"\nkey = \"acme\"\nlimit = 5000\n";
    write(folder.path(), "user.toml", user);
    no(&["apply", "user.toml"], "token");
    let with_token = |file: &'static str| ["apply", file, "--token-file", "token"];
    assert_eq!(fine(&with_token("user.toml")), "user: made\n");
    let listed = fine(&["list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "limit  from  algorithm       allows             enforce  key     overrides");
    assert_eq!(lines[1], "l      file  token_bucket    1 per 1s, burst 2  deny");
    assert_eq!(lines[2], "user   api   sliding_window  100 per 3600s      deny     {user}  1");

    // What is read can be sent again, and comes to the same.
    let got = fine(&["get", "user"]);
    write(folder.path(), "got.toml", &got);
    assert_eq!(fine(&with_token("got.toml")), "user: changed\n");
    assert_eq!(fine(&["get", "user"]), got);
    for part in ["[[limits]]", "key = \"{user}\"", "[[overrides]]\nof = \"user\"\nkey = \"acme\"\nlimit = 5000\n"] {
        assert!(got.contains(part), "{part}: {got}");
    }

    // One that is refused keeps no other from being made, and a bad file is not sent at all.
    write(folder.path(), "mixed.toml", &format!("{LIMITS}{}", user.replace("100", "200")));
    assert_eq!(
        no(&with_token("mixed.toml"), "error: l: \"l\" is defined in the configuration file of"),
        "user: changed\n"
    );
    assert!(fine(&["get", "user"]).contains("limit = 200\n"));
    write(folder.path(), "bad.toml", &user.replace("1h", "1 h"));
    let bad = asked(&with_token("bad.toml"));
    assert_eq!((bad.code, bad.stdout.as_str()), (Some(2), ""));
    assert!(bad.stderr.starts_with("error: bad.toml:4: limits[0].window: "), "{}", bad.stderr);

    no(&["delete", "user"], "token");
    no(&["delete", "l", "--token-file", "token"], "configuration file");
    assert_eq!(fine(&["delete", "user", "--token-file", "token"]), "user: deleted\n");
    no(&["delete", "user", "--token-file", "token"], "no limit is called \"user\"");
    no(&["get", "user"], "no limit is called \"user\"");
    no(&["get", "no such/name?"], "no limit is called \"no such/name?\"");
    assert_eq!(fine(&["list"]).lines().count(), 2);
    drop(served);
    assert_eq!(run(folder.path(), &["limits", "list", "--url", "http://127.0.0.1:1"]).code, Some(1));
}

#[test]
fn a_busy_port_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    write(folder.path(), "a.toml", &single("a").replace("127.0.0.1:0", &address));
    refused(folder.path(), "a.toml", &[&address, "HTTP cannot listen here", "http.listen"]);

    for arguments in [&["cert", "ca", "--out", "."][..], &["cert", "node", "a", "--ca", ".", "--out", "."]] {
        assert_eq!(run(folder.path(), arguments).code, Some(0));
    }
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let gossip = format!(
        "[gossip]\nlisten = \"{address}\"\n[gossip.tls]\nca_file = \"ca.pem\"\ncert_file = \"a.pem\"\nkey_file = \
         \"a.key\"\nsecret_file = \"cluster.secret\"\n"
    );
    let config = single("a").replace("[http]", "region = \"r\"\n[http]") + &gossip;
    write(folder.path(), "b.toml", &config);
    refused(folder.path(), "b.toml", &[&address, "gossip.listen"]);
}

#[test]
fn a_data_folder_that_is_not_this_nodes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Served::start(&write(folder.path(), "a.toml", &single("a"))).stop(), Some(0));
    write(folder.path(), "b.toml", &single("b"));
    refused(folder.path(), "b.toml", &["data belongs to the node \"a\", this node is \"b\""]);

    let running = Served::start(&folder.path().join("a.toml"));
    refused(folder.path(), "a.toml", &["data is in use by another process"]);
    assert_eq!(running.stop(), Some(0));

    // As a later version might leave it.
    let later = sled::open(folder.path().join("data/journal")).unwrap();
    later.open_tree("meta").unwrap().insert("format", &99u16.to_be_bytes()).unwrap();
    drop(later);
    refused(folder.path(), "a.toml", &["data has format version 99, this tidegate reads 2"]);

    write(folder.path(), "file", "no folder");
    write(folder.path(), "c.toml", &single("c").replace("\"data\"", "\"file\""));
    refused(folder.path(), "c.toml", &["file: "]);
    write(folder.path(), "d.toml", &single("d").replace("\"data\"", "\"/proc/nowhere\""));
    refused(folder.path(), "d.toml", &["/proc/nowhere: "]);
}

#[test]
fn without_a_config_there_is_one_limit_and_the_data_is_here() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut child = tidegate()
        .arg("serve")
        .current_dir(folder.path())
        .env("TIDEGATE_HTTP__LISTEN", "127.0.0.1:0")
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let said = until("the log says that there is no config", || {
        let text = fs::read_to_string(&log).unwrap();
        text.contains("no config: one limit, \"default\": 100 in 60s").then_some(text)
    });
    let start = concat!(
        "tidegate ",
        env!("CARGO_PKG_VERSION"),
        ": node node-1 in region local, no peers, data in tidegate-data, limits: 1"
    );
    assert!(said.contains(start), "{said}");
    assert!(folder.path().join("tidegate-data").is_dir());
    let killed = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(until("the node ends", || child.try_wait().unwrap()).code(), Some(0));
}

#[test]
fn a_request_in_flight_is_answered_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::start(&write(folder.path(), "a.toml", &single("a")));
    let mut request = InFlight::begin(&served);
    served.signal("TERM");
    until("the node is stopping", || served.log().contains("stopping").then_some(()));
    let answer = request.finish();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(served.exit_code(), Some(0));
}

/// Supervisors send it more than once: GNU `timeout` always does.
#[test]
fn a_second_sigterm_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::start(&write(folder.path(), "a.toml", &single("a")));
    let mut request = InFlight::begin(&served);
    served.signal("TERM");
    until("the node is stopping", || served.log().contains("stopping").then_some(()));
    served.signal("TERM");
    let answer = request.finish();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(served.exit_code(), Some(0));
}

#[test]
fn sigint_while_it_stops_ends_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let patient = format!("shutdown_timeout = \"1h\"\n{}", single("a"));
    let mut served = Served::start(&write(folder.path(), "a.toml", &patient));
    let _request = InFlight::begin(&served);
    served.signal("TERM");
    until("the node is stopping", || served.log().contains("stopping").then_some(()));
    served.signal("INT");
    assert_eq!(served.exit_code(), Some(1));
    assert!(served.log().contains("error: SIGINT while stopping: ended at once"), "{}", served.log());
}

/// A full disk under the log, or nobody who reads it.
#[test]
fn a_log_that_cannot_be_written_ends_no_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "a.toml", &single("a"));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let served = Served::start_logging_to(&file, full);
    // There is something to log: the limits are read again.
    let changed = single("a").replace("burst = 2", "burst = 3");
    write(folder.path(), "a.toml", &changed);
    served.signal("HUP");
    until("the new limit is in force", || {
        let mut stream = TcpStream::connect(served.address()).ok()?;
        stream.write_all(b"GET /v1/limits/l HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.contains("\"burst\":3").then_some(())
    });
    assert_eq!(served.stop(), Some(0));
}

/// A check whose body has not come yet.
struct InFlight(TcpStream);

impl InFlight {
    const BODY: &str = "{\"limit\":\"l\",\"key\":\"k\"}";

    fn begin(served: &Served) -> Self {
        let mut stream = TcpStream::connect(served.address()).unwrap();
        let length = Self::BODY.len();
        let head = format!(
            "POST /v1/check HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Type: \
             application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // Somebody waits for the body now.
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        Self(stream)
    }

    fn finish(&mut self) -> String {
        self.0.write_all(Self::BODY.as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// `serve` with `file` ends at once with exit code 2 and one error that has all `parts`.
fn refused(folder: &Path, file: &str, parts: &[&str]) {
    let ended = run(folder, &["serve", "--config", file]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(ended.stdout, "");
    let error = ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    for part in parts {
        assert!(error.contains(part), "{part}: {}", ended.stderr);
    }
}

fn with_input(folder: &Path, arguments: &[&str], input: &str) -> Ended {
    let mut command = tidegate();
    command.current_dir(folder).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
