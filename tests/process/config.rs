//! Configurations and the real binary: what is wrong is refused with file, line, field and what would be right.

use std::fs;
use std::path::Path;

use crate::ground::{ended, run, tidegate, write};

/// A config of a node in a cluster, whose files `cluster` makes.
const GOOD: &str = r#"
shutdown_timeout = "5s"
[node]
name = "eu-1"
region = "eu"
data_dir = "data"
max_keys = 1000
on_full = "deny"
[http]
listen = "127.0.0.1:0"
token_file = "token"
[gossip]
listen = "127.0.0.1:7400"
seeds = ["us-1.example:7400", "[::1]:7400"]
[gossip.tls]
ca_file = "ca.pem"
cert_file = "eu-1.pem"
key_file = "eu-1.key"
secret_file = "cluster.secret"
[journal]
flush = "50ms"
[[limits]]
name = "per-user"
limit = 100
window = "60s"
[[limits]]
name = "api"
algorithm = "token_bucket"
limit = 10
window = "1s"
burst = 20
"#;

/// A folder with the certificates of a cluster and a token.
fn cluster() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["cert", "ca", "--out", "."][..],
        &["cert", "node", "eu-1", "--ca", ".", "--out", "."],
        &["cert", "node", "us-1", "--ca", ".", "--out", "."],
        &["cert", "ca", "--out", "other"],
        &["cert", "node", "eu-1", "--ca", "other", "--out", "other"],
    ] {
        let made = run(folder.path(), arguments);
        assert_eq!(made.code, Some(0), "{made:?}");
    }
    fs::write(folder.path().join("token"), "0123456789abcdef\n").unwrap();
    folder
}

/// The line of `text` that begins with `start`, from 1.
fn line_of(text: &str, start: &str) -> usize {
    1 + text.lines().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no line {start}"))
}

#[test]
fn a_good_config_is_told_in_short() {
    let folder = cluster();
    write(folder.path(), "good.toml", GOOD);
    let checked = run(folder.path(), &["check-config", "good.toml"]);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));
    for part in ["good.toml: ok", "eu-1 in region eu, data in data", "us-1.example:7400", "10 per 1s, burst 20"] {
        assert!(checked.stdout.contains(part), "{part}: {}", checked.stdout);
    }
    // The files it names are looked for beside it, wherever the caller stands.
    let elsewhere = tempfile::tempdir().unwrap();
    let path = folder.path().join("good.toml");
    let checked = run(elsewhere.path(), &["check-config", path.to_str().unwrap()]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

/// What the README tells people to start from.
#[test]
fn the_examples_are_good() {
    let folder = tempfile::tempdir().unwrap();
    let mut configs = copied("examples", folder.path());
    configs.extend(copied("examples/policies", folder.path()));
    assert_eq!(run(folder.path(), &["cert", "ca", "--out", "certs"]).code, Some(0));
    for node in ["eu-1", "us-1", "ap-1"] {
        assert_eq!(run(folder.path(), &["cert", "node", node, "--ca", "certs", "--out", "certs"]).code, Some(0));
    }
    assert_eq!(configs.len(), 5 + 5, "{configs:?}");
    for name in configs {
        let checked = run(folder.path(), &["check-config", &name]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }
    let replayed = run(folder.path(), &["replay", "--limits", "limits.toml", "trace.jsonl"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    let allowed: Vec<bool> = replayed.stdout.lines().map(|line| line.starts_with("{\"allowed\":true")).collect();
    assert_eq!(allowed, [true, true, true, false, true, true]);
}

/// Copies the files of an examples folder that commands read, and names the configurations among them.
fn copied(examples: &str, to: &Path) -> Vec<String> {
    let mut configs = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(examples)).unwrap() {
        let path = entry.unwrap().path();
        let Some(extension) = path.extension().filter(|it| *it == "toml" || *it == "jsonl") else { continue };
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        fs::copy(&path, to.join(&name)).unwrap();
        if extension == "toml" {
            configs.push(name);
        }
    }
    configs
}

#[test]
fn every_bad_field_is_named_with_file_and_line() {
    // What stands in GOOD, what stands there instead, the field, and a part of what would be right.
    let bad = [
        ("shutdown_timeout = \"5s\"", "shutdown_timeout = 5", "shutdown_timeout", "e.g. \"60s\""),
        ("name = \"eu-1\"", "name = \"EU_1\"", "node.name", "1 to 63 of a-z"),
        ("name = \"eu-1\"", "name = \"tidegate\"", "node.name", "not \"tidegate\""),
        ("region = \"eu\"", "region = \"\"", "node.region", "1 to 63 of a-z"),
        ("data_dir = \"data\"", "data_dir = \"\"", "node.data_dir", "is empty"),
        ("max_keys = 1000", "max_keys = 0", "node.max_keys", "1 to"),
        ("max_keys = 1000", "max_keys = 99999999999999999999", "node.max_keys", "does not fit"),
        ("max_keys = 1000", "max_keys = 1.5", "node.max_keys", "whole number"),
        ("max_keys = 1000", "max_cells = 1000", "node.max_cells", "less than node.max_keys"),
        ("max_keys = 1000", "max_kyes = 1000", "node.max_kyes", "max_keys"),
        ("on_full = \"deny\"", "on_full = \"evict\"", "node.on_full", "\"allow\" nor \"deny\""),
        ("listen = \"127.0.0.1:0\"", "listen = \"localhost:80\"", "http.listen", "127.0.0.1:8080"),
        ("token_file = \"token\"", "token_file = \"no-token\"", "http.token_file", "no-token: cannot be read"),
        ("token_file = \"token\"", "token_file = \"empty\"", "http.token_file", "holds no token"),
        ("token_file = \"token\"", "token_file = \"short\"", "http.token_file", "16 to 4096"),
        ("token_file = \"token\"", "max_body = 10", "http.max_body", "1024 to"),
        ("token_file = \"token\"", "denied_status = 302", "http.denied_status", "200 or 400 to 499"),
        ("token_file = \"token\"", "denied_status = 503", "http.denied_status", "200 to 499"),
        ("listen = \"127.0.0.1:7400\"", "listen = 7400", "gossip.listen", "address and port"),
        ("listen = \"127.0.0.1:7400\"", "interval = \"1ms\"", "gossip.interval", "\"5ms\" to \"1s\""),
        ("listen = \"127.0.0.1:7400\"", "interval = \"50\"", "gossip.interval", "e.g. \"60s\""),
        ("listen = \"127.0.0.1:7400\"", "max_skew = \"0s\"", "gossip.max_skew", "\"10ms\" to"),
        ("listen = \"127.0.0.1:7400\"", "partition_memory = \"1y\"", "gossip.partition_memory", "ms s m h d"),
        ("listen = \"127.0.0.1:7400\"", "sync_timeout = true", "gossip.sync_timeout", "a duration"),
        ("listen = \"127.0.0.1:7400\"", "expected_nodes = 1", "gossip.expected_nodes", "fewer than the 2 seeds"),
        ("listen = \"127.0.0.1:7400\"", "advertise = \"a:1\"", "gossip.advertise", "not in this version"),
        ("listen = \"127.0.0.1:7400\"", "forget_after = \"1h\"", "gossip.forget_after", "not in this version"),
        ("seeds = [", "seeds = [\"us-1.example\"] #", "gossip.seeds[0]", "host:port"),
        ("seeds = [", "seeds = [\"a:1\", \"a:1\"] #", "gossip.seeds", "named twice"),
        ("seeds = [", "seeds = \"us-1.example:7400\" #", "gossip.seeds", "a list of texts"),
        ("ca_file = \"ca.pem\"", "ca_file = \"no.pem\"", "gossip.tls.ca_file", "no.pem"),
        ("secret_file = \"cluster.secret\"", "secret_file = \"empty\"", "gossip.tls.secret_file", "64 hex digits"),
        ("flush = \"50ms\"", "flush = \"2m\"", "journal.flush", "\"1m\""),
        ("name = \"per-user\"", "name = \"per user\"", "limits[0].name", "1 to 64 of"),
        ("name = \"api\"", "name = \"per-user\"", "limits[1].name", "is defined already, in line"),
        ("limit = 100", "limit = -1", "limits[0].limit", "at least 0"),
        ("limit = 100", "limit = \"100\"", "limits[0].limit", "whole number"),
        ("limit = 100", "limit = 9223372036854775808", "limits[0].limit", "9223372036854775807"),
        ("window = \"60s\"", "window = \"60\"", "limits[0].window", "ms s m h d"),
        ("window = \"60s\"", "window = \"0s\"", "limits[0].window", "at least \"1ms\""),
        ("window = \"60s\"", "window = 60", "limits[0].window", "e.g. \"60s\""),
        ("algorithm = \"token_bucket\"", "algorithm = \"gcra\"", "limits[1].algorithm", "\"token_bucket\""),
        ("algorithm = \"token_bucket\"", "algorithm = \"sliding_log\"", "limits[1].burst", "only a token_bucket"),
        ("algorithm = \"token_bucket\"", "algorithm = \"concurrency\"", "limits[1].algorithm", "not in this version"),
        ("algorithm = \"token_bucket\"", "consistency = \"strict\"", "limits[1].consistency", "not in this version"),
        ("algorithm = \"token_bucket\"", "consistency = \"never\"", "limits[1].consistency", "\"eventual\""),
        ("algorithm = \"token_bucket\"", "max_keys = 0", "limits[1].max_keys", "at least 1"),
        ("algorithm = \"token_bucket\"", "on_full = \"evict\"", "limits[1].on_full", "\"deny\""),
        ("algorithm = \"token_bucket\"", "algorithm = \"fixed_window\"", "limits[1].burst", "only a token_bucket"),
        ("burst = 20", "burst = 0", "limits[1].burst", "at least 1"),
    ];
    let folder = cluster();
    fs::write(folder.path().join("empty"), "\n").unwrap();
    fs::write(folder.path().join("short"), "abc\n").unwrap();
    for (old, new, field, right) in bad {
        assert!(GOOD.contains(old), "{old}");
        let text = GOOD.replacen(old, new, 1);
        let line = match field {
            "limits[1].burst" => line_of(&text, "burst"),
            _ => 1 + text.lines().zip(GOOD.lines()).position(|(new, old)| new != old).unwrap(),
        };
        refused(folder.path(), &text, line, field, right);
    }
}

#[test]
fn fields_of_later_versions_are_refused_by_name() {
    let folder = cluster();
    let text = GOOD.replacen("burst = 20", "on_partition = \"deny\"", 1);
    refused(folder.path(), &text, line_of(&text, "on_partition"), "limits[1].on_partition", "not in this version");
    let text = format!("{GOOD}[https]\n");
    refused(folder.path(), &text, line_of(&text, "[https]"), "https", "known here: gossip, http,");
}

#[test]
fn what_is_missing_is_named_at_its_table() {
    let folder = cluster();
    // The line that goes, the field, where its table begins.
    for (gone, field, table) in [
        ("name = \"eu-1\"", "node.name", "[node]"),
        ("region = \"eu\"", "node.region", "[node]"),
        ("data_dir = \"data\"", "node.data_dir", "[node]"),
        ("ca_file = \"ca.pem\"", "gossip.tls.ca_file", "[gossip.tls]"),
        ("cert_file = \"eu-1.pem\"", "gossip.tls.cert_file", "[gossip.tls]"),
        ("key_file = \"eu-1.key\"", "gossip.tls.key_file", "[gossip.tls]"),
        ("secret_file = \"cluster.secret\"", "gossip.tls.secret_file", "[gossip.tls]"),
        ("name = \"per-user\"", "limits[0].name", "[[limits]]"),
        ("limit = 100", "limits[0].limit", "[[limits]]"),
        ("window = \"60s\"", "limits[0].window", "[[limits]]"),
    ] {
        let text = GOOD.replacen(gone, "", 1);
        refused(folder.path(), &text, line_of(&text, table), field, "is missing");
    }
    // Without [node] it is [gossip] that asks for a name.
    refused(folder.path(), "\n\n[gossip]\n", 3, "node.name", "is missing");
    let open = GOOD.replacen("127.0.0.1:0", "0.0.0.0:80", 1).replacen("token_file = \"token\"", "", 1);
    refused(folder.path(), &open, line_of(&open, "listen = \"0.0.0.0:80\""), "http.listen", "http.token_file");
}

#[test]
fn certificates_that_do_not_fit_are_told_apart() {
    let folder = cluster();
    for (old, new, field, right) in [
        ("eu-1.", "us-1.", "cert_file", "does not bear node.name, \"eu-1\""),
        ("\"ca.pem\"", "\"other/ca.pem\"", "cert_file", "none of this cluster's authority"),
        ("\"ca.pem\"", "\"cluster.secret\"", "ca_file", "no certificate in PEM form"),
        ("\"eu-1.pem\"", "\"cluster.secret\"", "cert_file", "no certificate in PEM form"),
        ("\"eu-1.key\"", "\"us-1.key\"", "key_file", "does not belong to the certificate"),
        ("\"eu-1.key\"", "\"cluster.secret\"", "key_file", "no private key in PEM form"),
        ("\"eu-1.key\"", "\"no.key\"", "key_file", "no.key"),
    ] {
        let text = GOOD.replace(old, new);
        refused(folder.path(), &text, line_of(&text, field), &format!("gossip.tls.{field}"), right);
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once_in_the_order_of_the_file() {
    let folder = cluster();
    let text = GOOD.replacen("\"5s\"", "5", 1).replacen("limit = 100", "limit = -1", 1).replacen("burst", "brust", 1);
    write(folder.path(), "bad.toml", &text);
    let checked = run(folder.path(), &["check-config", "bad.toml"]);
    let fields = ["shutdown_timeout", "limits[0].limit", "limits[1].brust"];
    let lines: Vec<&str> = checked.stderr.lines().collect();
    assert_eq!(lines.len(), fields.len(), "{}", checked.stderr);
    for (line, field) in lines.iter().zip(fields) {
        assert!(line.starts_with("error: bad.toml:") && line.contains(&format!(" {field}: ")), "{line}");
    }
}

#[test]
fn what_is_no_config_at_all() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bytes.toml"), b"[node]\nname = \"\xff\"\n").unwrap();
    write(folder.path(), "twice.toml", "[node]\nname = \"a\"\nname = \"b\"\n");
    write(folder.path(), "open.toml", "[node\n");
    for (file, start) in [
        ("bytes.toml", "error: bytes.toml:2: this is not UTF-8"),
        ("twice.toml", "error: twice.toml:3: this is not valid TOML: duplicate key"),
        ("open.toml", "error: open.toml:1: this is not valid TOML"),
        ("none.toml", "error: none.toml: cannot be read: No such file"),
    ] {
        for command in [&["check-config", file][..], &["serve", "--config", file], &["replay", "--limits", file]] {
            let refused = run(folder.path(), command);
            assert_eq!(refused.code, Some(2), "{refused:?}");
            assert!(refused.stderr.starts_with(start), "{}", refused.stderr);
            assert_eq!(refused.stdout, "");
        }
    }
}

#[test]
fn variables_set_single_fields() {
    let folder = cluster();
    write(folder.path(), "good.toml", GOOD);
    let with = |name: &str, value: &str| {
        ended(tidegate().current_dir(folder.path()).args(["check-config", "good.toml"]).env(name, value))
    };
    for (name, value, shown) in [
        ("TIDEGATE_NODE__REGION", "mars", "in region mars"),
        ("TIDEGATE_NODE__MAX_KEYS", "5", "ok"),
        ("TIDEGATE_GOSSIP__SEEDS", "a:1, b:2", "seeds a:1, b:2"),
        ("TIDEGATE_GOSSIP__SEEDS", "", "no seeds"),
        ("TIDEGATE_URL", "http://127.0.0.1:1", "ok"),
        ("TIDEGATE_SERVICE_PORT", "8080", "ok"),
    ] {
        let checked = with(name, value);
        assert_eq!(checked.code, Some(0), "{name}: {checked:?}");
        assert!(checked.stdout.contains(shown), "{name}: {}", checked.stdout);
    }
    for (name, value, said) in [
        ("TIDEGATE_NODE__NAEM", "x", "TIDEGATE_NODE__NAEM: node.naem: there is no such field"),
        ("TIDEGATE_NOED", "x", "TIDEGATE_NOED: noed: there is no such field"),
        ("TIDEGATE_NODE", "x", "TIDEGATE_NODE: node: is a table"),
        ("TIDEGATE_NODE__NAME__X", "x", "TIDEGATE_NODE__NAME__X: node.name.x: "),
        ("TIDEGATE_NODE__MAX_KEYS", "many", "TIDEGATE_NODE__MAX_KEYS: node.max_keys: \"many\" is text"),
        ("TIDEGATE_GOSSIP__TLS__CA_FILE", "no.pem", "TIDEGATE_GOSSIP__TLS__CA_FILE: gossip.tls.ca_file: no.pem"),
        ("TIDEGATE_LIMITS", "x", "TIDEGATE_LIMITS: limits: "),
        ("TIDEGATE_LIMITS__0__LIMIT", "5", "TIDEGATE_LIMITS__0__LIMIT: limits.0.limit: "),
        ("TIDEGATE_GOSSIP__INTERVAL", "1h", "TIDEGATE_GOSSIP__INTERVAL: gossip.interval: "),
    ] {
        let checked = with(name, value);
        assert_eq!(checked.code, Some(2), "{name}: {checked:?}");
        assert!(checked.stderr.starts_with(&format!("error: {said}")), "{name}: {}", checked.stderr);
    }
}

/// `check-config` and `serve` refuse `text` alike, naming all of it.
pub fn refused(folder: &Path, text: &str, line: usize, field: &str, right: &str) {
    write(folder, "bad.toml", text);
    let checked = run(folder, &["check-config", "bad.toml"]);
    let served = run(folder, &["serve", "--config", "bad.toml"]);
    assert_eq!(checked.code, Some(2), "{field}: {checked:?}");
    assert_eq!((served.code, &served.stderr), (Some(2), &checked.stderr), "{field}");
    assert_eq!(format!("{}{}", checked.stdout, served.stdout), "", "{field}");
    let said = &checked.stderr;
    let start = format!("error: bad.toml:{line}: {field}");
    assert!(said.lines().any(|one| one.starts_with(&start) && one.contains(right)), "{start} ... {right}\n{said}");
}
