//! The fields of a configuration, read and checked as far as the text alone tells. Opens no file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::limits;
use super::problem::Problems;
use super::section::{FileField, Section};
use super::tree::Table;
use crate::id::NodeName;
use crate::limits::{LimitSet, OnFull, Retention};
use crate::time::{MS, SECOND};
use crate::{api, engine};

/// Seeds at most.
const MAX_SEEDS: usize = 256;
/// Nodes a cluster may expect: as many as there are peers whose clocks are remembered.
const MAX_EXPECTED_NODES: u64 = crate::time::MAX_HEARD as u64;
/// Keys and cells that may be asked for: more than any machine holds, and products of it fit u64.
const MAX_COUNT: u64 = 1 << 40;
/// Longest request body that may be asked for, bytes.
const MAX_BODY_BYTES: u64 = 64 * 1024 * 1024;

const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A configuration whose files have not been opened.
pub(super) struct Draft {
    pub(super) name: NodeName,
    pub(super) region: String,
    pub(super) data_dir: PathBuf,
    pub(super) engine: engine::Settings,
    pub(super) http: Http,
    pub(super) gossip: Option<Gossip>,
    pub(super) limits: LimitSet,
    pub(super) journal_flush: Duration,
    pub(super) shutdown_timeout: Duration,
}

/// `[http]`.
pub(super) struct Http {
    pub(super) listen: SocketAddr,
    pub(super) token_file: Option<FileField>,
    pub(super) max_body: usize,
    pub(super) denied_status: u16,
}

/// `[gossip]` without what belongs to the engine.
pub(super) struct Gossip {
    pub(super) listen: SocketAddr,
    pub(super) seeds: Vec<String>,
    pub(super) interval: Duration,
    pub(super) sync_timeout: Duration,
    /// None: a problem was reported.
    pub(super) tls: Option<Tls>,
}

/// `[gossip.tls]`.
pub(super) struct Tls {
    pub(super) ca: FileField,
    pub(super) cert: FileField,
    pub(super) key: FileField,
    pub(super) secret: FileField,
}

impl Draft {
    /// Reads a document. What is wrong goes to `problems`; then the draft is of no use.
    pub(super) fn read(document: Table, problems: &Problems) -> Self {
        let mut root = Section::root(document, problems);
        let clustered = root.has("gossip");
        let (gossip, spread, gossip_place) = {
            let mut section = root.section("gossip");
            let (gossip, spread) = read_gossip(&mut section, clustered);
            (clustered.then_some(gossip), spread, section.place().clone())
        };
        let mut node = root.section("node").standing_at(gossip_place);
        let identity = read_identity(&mut node, clustered);
        let engine = read_engine(&mut node, spread);
        node.finish(&[]);
        let http = read_http(&mut root.section("http"));
        let mut journal = root.section("journal");
        let journal_flush = duration(&mut journal, "flush", MS..=MINUTE, 100 * MS);
        journal.finish(&[]);
        let limits = limits::read(&mut root, problems);
        let shutdown_timeout = duration(&mut root, "shutdown_timeout", 100 * MS..=HOUR, 10 * SECOND);
        root.finish(&[]);
        let (name, region, data_dir) = identity;
        Self { name, region, data_dir, engine, http, gossip, limits, journal_flush, shutdown_timeout }
    }
}

/// What `[gossip]` says to the engine.
struct Spread {
    expected_nodes: u32,
    retention: Retention,
}

fn read_identity(node: &mut Section<'_>, clustered: bool) -> (NodeName, String, PathBuf) {
    let name = node.parsed("name", "a node name", |text| NodeName::new(text).map_err(|error| error.to_string()));
    let region = node.parsed("region", "a region's name", region);
    let data_dir = node.file("data_dir");
    if clustered {
        node.require("name", &name, "with [gossip] every node has a name of its own, e.g. \"eu-1\"");
        node.require("region", &region, "with [gossip] every node says where it is, e.g. \"eu\"");
        node.require("data_dir", &data_dir, "with [gossip] every node has a data folder of its own, e.g. \"data\"");
    }
    let name = name.unwrap_or_else(|| NodeName::new("node-1").expect("a valid name"));
    let data_dir = data_dir.map_or_else(|| PathBuf::from("tidegate-data"), |field| field.path);
    (name, region.unwrap_or_else(|| "local".to_owned()), data_dir)
}

/// A region stands in tables, metrics and handshakes: it has the form of a node name.
fn region(text: &str) -> Result<String, String> {
    let fits = (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits { Ok(text.to_owned()) } else { Err(format!("{text:?} is no region: 1 to 63 of a-z, 0-9 and -")) }
}

fn read_engine(node: &mut Section<'_>, spread: Spread) -> engine::Settings {
    let Spread { expected_nodes, retention } = spread;
    let on_full = node.parsed("on_full", "\"allow\" or \"deny\"", |word| match word {
        "allow" => Ok(OnFull::Allow),
        "deny" => Ok(OnFull::Deny),
        _ => Err(format!("{word:?} is neither \"allow\" nor \"deny\"")),
    });
    let max_keys = node.count("max_keys", 1..=MAX_COUNT).unwrap_or(engine::Settings::default().max_keys);
    let max_cells = node.count("max_cells", 1..=MAX_COUNT);
    if max_cells.is_some_and(|cells| cells < max_keys) {
        node.wrong("max_cells", format!("is less than node.max_keys, {max_keys}: every key has a cell at least"));
    }
    let max_cells = max_cells.unwrap_or(u64::from(expected_nodes) * max_keys);
    engine::Settings { max_keys, on_full: on_full.unwrap_or_default(), max_cells, retention, expected_nodes }
}

fn read_http(http: &mut Section<'_>) -> Http {
    let listen = http.parsed("listen", "an address and port", socket_addr);
    let token_file = http.file("token_file");
    let max_body = http.count("max_body", 1024..=MAX_BODY_BYTES).unwrap_or(1024 * 1024) as usize;
    let denied_status = http.count("denied_status", 200..=499).unwrap_or(429) as u16;
    if api::denied_status(denied_status).is_none() {
        http.wrong("denied_status", format!("{denied_status} cannot say that a check was denied: 200 or 400 to 499"));
    }
    let listen = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080)));
    if !listen.ip().is_loopback() && !http.has("token_file") {
        let what = "can be reached from other machines, which must not reset or debit: name a file with a bearer token \
                    in http.token_file, or listen on 127.0.0.1";
        http.wrong("listen", format!("{listen} {what}"));
    }
    http.finish(&[]);
    Http { listen, token_file, max_body, denied_status }
}

fn read_gossip(gossip: &mut Section<'_>, clustered: bool) -> (Gossip, Spread) {
    let listen = gossip.parsed("listen", "an address and port", socket_addr);
    let seeds = gossip.list("seeds", MAX_SEEDS, seed);
    if let Some(twice) = seeds.iter().enumerate().find_map(|(n, seed)| seeds[..n].contains(seed).then_some(seed)) {
        gossip.wrong("seeds", format!("{twice:?} is named twice"));
    }
    let expected_nodes = gossip.count("expected_nodes", 1..=MAX_EXPECTED_NODES);
    // Within bounds: it fits.
    let many = expected_nodes.map_or(engine::Settings::default().expected_nodes, |nodes| nodes as u32);
    if seeds.len() > many as usize {
        let what = format!("{many} is fewer than the {} seeds: count all nodes that will decide", seeds.len());
        gossip.wrong("expected_nodes", what);
    }
    // Beyond a second, peers would take this one's silence for its absence.
    let interval = duration(gossip, "interval", 5 * MS..=SECOND, 50 * MS);
    let sync_timeout = duration(gossip, "sync_timeout", MS..=HOUR, 5 * SECOND);
    let defaults = Retention::default();
    let retention = Retention {
        max_skew_ns: gossip.duration_ns("max_skew", 10 * MS..=MINUTE).unwrap_or(defaults.max_skew_ns),
        partition_memory_ns: gossip
            .duration_ns("partition_memory", SECOND..=24 * HOUR)
            .unwrap_or(defaults.partition_memory_ns),
    };
    let tls = read_tls(&mut gossip.section("tls"), clustered);
    gossip.finish(&["advertise", "forget_after"]);
    let listen = listen.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 7400)));
    let gossip = Gossip { listen, seeds, interval, sync_timeout, tls };
    (gossip, Spread { expected_nodes: many, retention })
}

fn read_tls(tls: &mut Section<'_>, clustered: bool) -> Option<Tls> {
    let mut field = |name, what: &str| {
        let file = tls.file(name);
        if clustered {
            tls.require(name, &file, what);
        }
        file
    };
    let ca = field("ca_file", "ca.pem of `tidegate cert ca`; peers speak TLS only");
    let cert = field("cert_file", "NAME.pem of `tidegate cert node NAME`");
    let key = field("key_file", "NAME.key of `tidegate cert node NAME`");
    let secret = field("secret_file", "cluster.secret of `tidegate cert ca`, the same on every node");
    tls.finish(&[]);
    Some(Tls { ca: ca?, cert: cert?, key: key?, secret: secret? })
}

fn duration(
    section: &mut Section<'_>,
    name: &'static str,
    within: std::ops::RangeInclusive<u64>,
    default_ns: u64,
) -> Duration {
    Duration::from_nanos(section.duration_ns(name, within).unwrap_or(default_ns))
}

fn socket_addr(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "{text:?} is no address of this machine and port: e.g. \"127.0.0.1:8080\", \"0.0.0.0:8080\", \"[::]:8080\""
        )
    })
}

/// `host:port`, the host a name, an IPv4 address, or an IPv6 address in brackets.
fn seed(text: &str) -> Result<String, String> {
    let fits = text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0) && port.bytes().all(|b| b.is_ascii_digit());
        let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match ipv6 {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                (1..=253).contains(&host.len())
                    && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            }
        };
        is_port && is_host
    });
    if fits { Ok(text.to_owned()) } else { Err(format!("{text:?} is no host:port, e.g. \"us-1.example:7400\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds() {
        for good in ["us-1.example:7400", "10.0.0.1:1", "[::1]:7400", "node_1:65535"] {
            assert!(seed(good).is_ok(), "{good}");
        }
        for bad in ["", "host", "host:", ":7400", "host:0", "host:65536", "host:+1", "::1:7400", "[x]:1", "a b:1"] {
            assert!(seed(bad).is_err(), "{bad}");
        }
    }
}
