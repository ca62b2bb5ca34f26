//! A limit file with a mistake in each kind of field, one by one: the message names file, line, field and what would be
//! right, and a running node keeps the limits it has.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use tidegate::limits::{LATER_FIELDS, LimitSpec, OverrideSpec};

use crate::config::refused;
use crate::ground::{Served, write};
use crate::nodes::{Asker, until};

/// A limit of each kind, and a key of one of them that has its own. Lines `#` and a word are where mistakes go.
const GOOD: &str = r##"
[node]
data_dir = "data"
[http]
listen = "127.0.0.1:0"
[[limits]]
name = "user"
limit = 100
window = "60s"
key = "{user}"
#user
[[limits]]
name = "address"
limit = 10
window = "60s"
key = "{ip}"
key_type = "ip"
#address
[[limits]]
name = "day"
algorithm = "fixed_window"
limit = 10
window = "1d"
#day
[[limits]]
name = "bucket"
algorithm = "leaky_bucket"
limit = 10
window = "1s"
#bucket
[[limits]]
name = "plain"
limit = 10
window = "1s"
#plain
[[overrides]]
of = "user"
key = "acme"
limit = 500
#acme
[[overrides]]
of = "bucket"
key = "acme"
limit = 500
#other
"##;

/// What stands in [`GOOD`], what stands there instead, the line of that which is wrong, its field, and a part of what
/// would be right.
const MISTAKES: &[(&str, &str, usize, &str, &str)] = &[
    ("name = \"user\"", "", 0, "limits[0].name", "is missing: 1 to 64 of A-Z"),
    ("name = \"user\"", "name = \"per user\"", 0, "limits[0].name", "1 to 64 of A-Z"),
    ("name = \"user\"", "name = 5", 0, "limits[0].name", "a limit's name"),
    ("name = \"address\"", "name = \"user\"", 0, "limits[1].name", "is defined already, in line 6"),
    ("algorithm = \"fixed_window\"", "algorithm = \"window\"", 0, "limits[2].algorithm", "\"sliding_window\""),
    ("algorithm = \"fixed_window\"", "algorithm = [1]", 0, "limits[2].algorithm", "e.g. \"sliding_window\""),
    ("algorithm = \"fixed_window\"", "algorithm = \"concurrency\"", 0, "limits[2].algorithm", "not in this version"),
    ("limit = 100", "", 0, "limits[0].limit", "is missing: tokens per window"),
    ("limit = 100", "limit = -1", 0, "limits[0].limit", "at least 0"),
    ("limit = 100", "limit = 9223372036854775808", 0, "limits[0].limit", "9223372036854775807"),
    ("limit = 100", "limit = \"many\"", 0, "limits[0].limit", "whole number"),
    ("window = \"60s\"", "", 0, "limits[0].window", "is missing: a duration"),
    ("window = \"60s\"", "window = \"1 minute\"", 0, "limits[0].window", "one of ms s m h d"),
    ("window = \"60s\"", "window = \"day\"", 0, "limits[0].window", "`align = \"calendar\"`"),
    ("window = \"60s\"", "window = \"0s\"", 0, "limits[0].window", "at least \"1ms\""),
    (
        "window = \"1d\"",
        "window = \"fortnight\"\nalign = \"calendar\"",
        0,
        "limits[2].window",
        "\"month\" and \"year\"",
    ),
    ("#user", "slots = 0", 0, "limits[0].slots", "1 to 1000"),
    ("#user", "slots = 7", 0, "limits[0].slots", "whole nanoseconds"),
    ("#user", "slots = \"7\"", 0, "limits[0].slots", "whole number"),
    ("#day", "slots = 6", 0, "limits[2].slots", "only a sliding_window has it"),
    ("#day", "align = \"moon\"", 0, "limits[2].align", "neither \"epoch\" nor \"calendar\""),
    ("#user", "align = \"epoch\"", 0, "limits[0].align", "only a fixed_window has it"),
    ("#day", "time_zone = \"UTC\"", 0, "limits[2].time_zone", "only a window with `align = \"calendar\"`"),
    (
        "window = \"1d\"",
        "window = \"day\"\nalign = \"calendar\"\ntime_zone = \"Mars/Olympus\"",
        2,
        "limits[2].time_zone",
        "e.g. \"Europe/Berlin\"",
    ),
    ("#bucket", "burst = 0", 0, "limits[3].burst", "at least 1"),
    ("#user", "burst = 5", 0, "limits[0].burst", "only a token_bucket or leaky_bucket"),
    ("#bucket", "queue = \"1\"", 0, "limits[3].queue", "one of ms s m h d"),
    ("#bucket", "queue = 1", 0, "limits[3].queue", "a duration, e.g. \"500ms\""),
    ("#user", "queue = \"1s\"", 0, "limits[0].queue", "only a leaky_bucket has it"),
    ("#user", "enforce = \"maybe\"", 0, "limits[0].enforce", "neither \"deny\" nor \"shadow\""),
    ("#user", "enforce = true", 0, "limits[0].enforce", "\"deny\" or \"shadow\""),
    ("#user", "consistency = \"strict\"", 0, "limits[0].consistency", "write \"eventual\""),
    ("#user", "consistency = \"never\"", 0, "limits[0].consistency", "this version knows \"eventual\""),
    ("#user", "max_keys = 0", 0, "limits[0].max_keys", "at least 1"),
    ("#user", "max_keys = 0.5", 0, "limits[0].max_keys", "whole number"),
    ("#user", "on_full = \"evict\"", 0, "limits[0].on_full", "neither \"allow\" nor \"deny\""),
    ("key = \"{user}\"", "key = \"\"", 0, "limits[0].key", "1 to 256 bytes"),
    ("key = \"{user}\"", "key = \"{user\"", 0, "limits[0].key", "write \"{{\" for a brace"),
    ("key = \"{user}\"", "key = \"{user}{route}\"", 0, "limits[0].key", "write e.g. \"{user}:{route}\""),
    ("key = \"{user}\"", "key = \"a%{user}\"", 0, "limits[0].key", "use another character"),
    ("key = \"{ip}\"", "key = \"{ip}:{port}\"", 0, "limits[1].key", "write one field alone, e.g. \"{ip}\""),
    ("key_type = \"ip\"", "key_type = \"number\"", 0, "limits[1].key_type", "neither \"text\" nor \"ip\""),
    ("#address", "ipv4_prefix = 33", 0, "limits[1].ipv4_prefix", "1 to 32"),
    ("#user", "ipv4_prefix = 24", 0, "limits[0].ipv4_prefix", "only a limit with `key_type = \"ip\"`"),
    ("#address", "ipv6_prefix = 0", 0, "limits[1].ipv6_prefix", "1 to 128"),
    ("#user", "ipv6_prefix = 64", 0, "limits[0].ipv6_prefix", "only a limit with `key_type = \"ip\"`"),
    ("#plain", "when = { plan = \"free\" }", 0, "limits[4].when", "needs `key`"),
    ("#user", "when = \"free\"", 0, "limits[0].when", "this is a table: write e.g. when = {"),
    ("#user", "when = { \"a b\" = \"free\" }", 0, "limits[0].when", "1 to 64 of A-Z a-z 0-9 _ and -"),
    ("#user", "when = { plan = 5 }", 0, "limits[0].when.plan", "text, a list of texts, or one of equals"),
    ("#user", "when = { plan = { like = \"f\" } }", 0, "limits[0].when.plan.like", "prefix, glob, cidr"),
    ("#user", "when = { plan = { equals = [\"f\"] } }", 0, "limits[0].when.plan.equals", "write one_of"),
    ("#user", "when = { plan = { one_of = 7 } }", 0, "limits[0].when.plan.one_of", "text"),
    ("#user", "when = { plan = { prefix = 7 } }", 0, "limits[0].when.plan.prefix", "text"),
    ("#user", "when = { plan = { present = 1 } }", 0, "limits[0].when.plan.present", "true nor false"),
    ("#user", "when = { plan = { equals = \"a\", glob = \"b\" } }", 0, "limits[0].when.plan", "exactly one of equals"),
    ("#user", "when = { ip = { cidr = \"10.0.0.0/33\" } }", 0, "limits[0].when.ip.cidr", "10.0.0.0/8"),
    ("#user", "when = { a = { not = { not = \"x\" } } }", 0, "limits[0].when.a.not", "write what is meant"),
    (
        "#user",
        "[limits.when]\nip = \"a\"\nplan = { glob = [\n  \"free*\",\n  \"[\",\n] }",
        4,
        "limits[0].when.plan.glob[1]",
        "pattern",
    ),
    ("#user", "limmit = 5", 0, "limits[0].limmit", "known here: algorithm, align, burst"),
    ("#user", "on_partition = \"deny\"", 0, "limits[0].on_partition", "not in this version"),
    ("of = \"user\"", "", 0, "overrides[0].of", "is missing: the name of the limit"),
    ("of = \"user\"", "of = \"users\"", 0, "overrides[0].of", "name one of this file's [[limits]]"),
    ("key = \"acme\"", "", 0, "overrides[0].key", "is missing: the key that has its own limit"),
    ("key = \"acme\"", "key = 7", 0, "overrides[0].key", "a key of that limit"),
    ("of = \"bucket\"", "of = \"user\"", 1, "overrides[1].key", "is named already"),
    ("of = \"user\"", "of = \"address\"", 1, "overrides[0].key", "an IPv4 or IPv6 address"),
    ("limit = 500", "", 0, "overrides[0].limit", "is missing: tokens per window for this key"),
    ("limit = 500", "limit = -500", 0, "overrides[0].limit", "at least 0"),
    ("#acme", "window = \"5\"", 0, "overrides[0].window", "one of ms s m h d"),
    ("#other", "burst = 0", 0, "overrides[1].burst", "at least 1"),
    ("#acme", "burst = 5", 0, "overrides[0].burst", "only a token_bucket or leaky_bucket"),
    ("#acme", "algorithm = \"sliding_log\"", 0, "overrides[0].algorithm", "known here: burst, key, limit, of, window"),
];

/// The text with a mistake, and its line. What is missing is missed at the head of its table.
fn with_mistake((old, new, below, _, _): (&str, &str, usize, &str, &str)) -> (String, usize) {
    let at = 1 + GOOD.lines().position(|line| line == old).unwrap_or_else(|| panic!("no line {old}"));
    let text = GOOD.replacen(&format!("\n{old}\n"), &format!("\n{new}\n"), 1);
    let head = GOOD.lines().take(at).collect::<Vec<_>>().iter().rposition(|line| line.starts_with("[[")).unwrap();
    (text, if new.is_empty() { head + 1 } else { at + below })
}

#[test]
fn each_mistake_is_refused_with_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    for &mistake in MISTAKES {
        let (text, line) = with_mistake(mistake);
        let (.., field, right) = mistake;
        refused(folder.path(), &text, line, field, right);
    }
}

#[tokio::test]
async fn a_running_node_keeps_the_limits_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let node = Served::start(&write(folder.path(), "node.toml", GOOD));
    let asker = Asker::new(&node);
    let limits = asker.document("/v1/limits").await;
    assert_eq!(limits["limits"].as_array().unwrap().len(), 5);
    for &mistake in MISTAKES {
        let (text, line) = with_mistake(mistake);
        let (.., field, right) = mistake;
        let told = |health: &Value| {
            let all = health["reasons"].as_array().into_iter().flatten().map(|reason| reason.as_str().unwrap());
            let start = format!("node.toml:{line}: {field}: ");
            all.flat_map(str::lines).any(|line| line.contains(&start) && line.contains(right))
        };
        assert!(!told(&asker.document("/healthz").await), "{mistake:?} tells apart from the one before");
        write(folder.path(), "node.toml", &text);
        node.signal("HUP");
        until(&format!("{mistake:?} is told"), async || told(&asker.document("/healthz").await).then_some(())).await;
        assert_eq!(asker.document("/v1/limits").await, limits, "{mistake:?}");
    }
    good_again(&asker, &node, folder.path()).await;
}

async fn good_again(asker: &Asker, node: &Served, folder: &Path) {
    write(folder, "node.toml", GOOD);
    node.signal("HUP");
    until("all is well", async || (asker.document("/healthz").await["status"] == "ok").then_some(())).await;
}

/// A field that is added is added above.
#[test]
fn every_field_has_a_mistake() {
    let text = || Some(String::new());
    let limit = LimitSpec {
        name: String::new(),
        algorithm: text(),
        limit: Some(0),
        window: text(),
        slots: Some(0),
        align: text(),
        time_zone: text(),
        burst: Some(0),
        queue: text(),
        enforce: text(),
        consistency: text(),
        max_keys: Some(0),
        on_full: text(),
        key: text(),
        key_type: text(),
        ipv4_prefix: Some(0),
        ipv6_prefix: Some(0),
        when: [("plan".to_owned(), json!("free"))].into(),
        overrides: Vec::new(),
    };
    let own = OverrideSpec { key: String::new(), limit: Some(0), window: text(), burst: Some(0) };
    let fields = |value: Value| match value {
        Value::Object(fields) => Map::into_iter(fields).map(|(field, _)| field).collect::<Vec<_>>(),
        other => panic!("{other}"),
    };
    let mistaken: BTreeSet<String> = MISTAKES
        .iter()
        .map(|(.., field, _)| {
            let (table, field) = field.split_once("].").unwrap();
            format!("{}.{}", &table[..table.find('[').unwrap()], field.split('.').next().unwrap())
        })
        .collect();
    let limits = fields(serde_json::to_value(limit).unwrap()).into_iter().chain(LATER_FIELDS.map(str::to_owned));
    let overrides = fields(serde_json::to_value(own).unwrap()).into_iter().chain(["of".to_owned()]);
    let all = limits.map(|field| format!("limits.{field}")).chain(overrides.map(|field| format!("overrides.{field}")));
    for field in all {
        assert!(mistaken.contains(&field), "{field} has no mistake");
    }
}
