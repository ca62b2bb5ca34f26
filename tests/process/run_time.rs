//! What is done on one node holds on the other: resets, refunds, limits that are made, changed and deleted while the
//! nodes run; also when both sides of a cut do it, and against each other.

use std::net::UdpSocket;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};
use tidegate::client::Response;

use crate::ground::{Served, run, write};
use crate::link::Link;
use crate::nodes::{Asker, LIMITS, certificates, config, until};

/// Two nodes and the link between them.
struct Pair {
    folder: tempfile::TempDir,
    link: Link,
    nodes: [Option<Served>; 2],
}

const NAMES: [&str; 2] = ["eu", "us"];

impl Pair {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path(), &NAMES);
        // Found free, then given to the nodes.
        let sockets = NAMES.map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let gossip = sockets.map(|socket| socket.local_addr().unwrap());
        let link = Link::to(gossip[1]).await;
        for (node, seed) in [(0, link.addr()), (1, gossip[0])] {
            // The second does not dial: all that passes passes the link.
            let seeds = if node == 0 { format!("\"{seed}\"") } else { String::new() };
            write(folder.path(), &format!("{}.toml", NAMES[node]), &config(NAMES[node], gossip[node], &seeds, LIMITS));
        }
        let mut pair = Self { folder, link, nodes: [None, None] };
        pair.start_node(0);
        pair.start_node(1);
        pair.until_connected(true).await;
        pair
    }

    fn start_node(&mut self, node: usize) {
        self.nodes[node] = Some(Served::start(&self.folder.path().join(format!("{}.toml", NAMES[node]))));
    }

    fn stop_node(&mut self, node: usize) {
        assert_eq!(self.nodes[node].take().unwrap().stop(), Some(0));
    }

    fn ask(&self, node: usize) -> Asker {
        Asker::new(self.nodes[node].as_ref().unwrap())
    }

    async fn until_connected(&self, connected: bool) {
        for (node, name) in NAMES.iter().enumerate() {
            let ask = self.ask(node);
            let what = format!("{name} is {}connected", if connected { "" } else { "dis" });
            until(&what, async || (ask.connected().await == usize::from(connected)).then_some(())).await;
        }
    }

    async fn cut(&self) {
        self.link.set_cut(true);
        self.until_connected(false).await;
    }

    async fn heal(&self) {
        self.link.set_cut(false);
        self.until_connected(true).await;
    }

    /// Waits until both nodes say so of a limit; None: that there is none.
    async fn until_limit(&self, name: &str, tokens: Option<u64>) {
        for (node, at) in NAMES.iter().enumerate() {
            let ask = self.ask(node);
            until(&format!("{name} is {tokens:?} on {at}"), async || (ask.limit(name).await == tokens).then_some(()))
                .await;
        }
    }

    /// Waits until both nodes say that so much is used.
    async fn until_used(&self, limit: &str, key: &str, used: u64) {
        for (node, at) in NAMES.iter().enumerate() {
            let ask = self.ask(node);
            until(&format!("{used} of {limit} are used by {key} on {at}"), async || {
                (ask.usage(limit, key).await?.used == used).then_some(())
            })
            .await;
        }
    }
}

impl Asker {
    async fn act(&self, op: &str, limit: &str, key: &str, cost: u64) {
        let mut body = json!({"limit": limit, "key": key});
        if op != "reset" {
            body["cost"] = cost.into();
        }
        let answer = self.client.post_json(&format!("/v1/{op}"), &body).await.unwrap();
        assert_eq!(answer.status, 200, "{op}: {:?}", answer.body);
    }

    async fn put(&self, name: &str, tokens: u64, headers: &[(&'static str, &str)]) -> Response {
        let body = json!({"algorithm": "fixed_window", "limit": tokens, "window": "1000d"});
        let pairs = headers.iter().chain(&[("content-type", "application/json")]);
        let pairs = pairs.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        let (path, headers) = (format!("/v1/limits/{name}"), HeaderMap::from_iter(pairs));
        self.client.send(Method::PUT, &path, headers, body.to_string().into()).await.unwrap()
    }

    async fn define(&self, name: &str, tokens: u64) {
        let answer = self.put(name, tokens, &[]).await;
        assert!(answer.status.is_success(), "{:?}", answer.body);
    }

    async fn delete(&self, name: &str) -> u16 {
        let path = format!("/v1/limits/{name}");
        let answer = self.client.send(Method::DELETE, &path, HeaderMap::new(), Default::default()).await.unwrap();
        answer.status.as_u16()
    }

    /// None: there is no limit of this name.
    async fn limit(&self, name: &str) -> Option<u64> {
        self.document(&format!("/v1/limits/{name}")).await["limit"].as_u64()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_is_told_holds_on_the_other() {
    let pair = Pair::start().await;
    let [eu, us] = [0, 1].map(|node| pair.ask(node));

    eu.act("debit", "hits", "k", 40).await;
    us.act("debit", "hits", "k", 2).await;
    pair.until_used("hits", "k", 42).await;
    us.act("refund", "hits", "k", 12).await;
    pair.until_used("hits", "k", 30).await;
    us.act("reset", "hits", "k", 0).await;
    pair.until_used("hits", "k", 0).await;
    eu.act("debit", "hits", "k", 3).await;
    pair.until_used("hits", "k", 3).await;

    assert_eq!(eu.put("made", 5, &[]).await.status, 201);
    pair.until_limit("made", Some(5)).await;
    for _ in 0..5 {
        assert_eq!(us.check("made", "k").await, Some(true));
    }
    pair.until_used("made", "k", 5).await;
    assert_eq!(eu.check("made", "k").await, Some(false));
    let tag = us.client.get("/v1/limits/made").await.unwrap().header("etag").unwrap().to_owned();
    assert_eq!(us.put("made", 8, &[("if-match", &tag)]).await.status, 200);
    pair.until_limit("made", Some(8)).await;
    assert_eq!(eu.put("made", 9, &[("if-match", &tag)]).await.status, 412, "it was changed elsewhere since");
    pair.until_used("made", "k", 5).await;
    assert_eq!(eu.check("made", "k").await, Some(true));

    assert_eq!(us.delete("made").await, 204);
    pair.until_limit("made", None).await;
    assert_eq!(us.delete("hits").await, 409, "the file has it");
    let cluster = eu.document("/v1/cluster").await;
    assert_eq!(cluster["limits_differ"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_of_a_cut_come_to_the_same_and_remember_it() {
    let mut pair = Pair::start().await;
    let [eu, us] = [0, 1].map(|node| pair.ask(node));
    for (name, tokens) in [("changed", 10), ("deleted-last", 10), ("changed-last", 10)] {
        eu.define(name, tokens).await;
        pair.until_limit(name, Some(tokens)).await;
    }
    for key in ["reset", "refunded"] {
        eu.act("debit", "hits", key, 50).await;
        us.act("debit", "hits", key, 50).await;
        pair.until_used("hits", key, 100).await;
    }

    pair.cut().await;
    eu.act("reset", "hits", "reset", 0).await;
    us.act("debit", "hits", "reset", 7).await;
    eu.act("debit", "hits", "reset", 3).await;
    eu.act("refund", "hits", "refunded", 20).await;
    us.act("refund", "hits", "refunded", 30).await;
    us.act("debit", "hits", "refunded", 1).await;
    // In conflict: of two that do not know of each other the later one wins.
    eu.define("changed", 11).await;
    us.define("changed", 12).await;
    us.define("deleted-last", 12).await;
    assert_eq!(eu.delete("deleted-last").await, 204);
    assert_eq!(eu.delete("changed-last").await, 204);
    us.define("changed-last", 12).await;
    eu.define("made-here", 1).await;
    us.define("made-there", 2).await;
    assert_eq!((eu.limit("changed").await, us.limit("changed").await), (Some(11), Some(12)));
    assert_eq!((eu.limit("deleted-last").await, us.limit("deleted-last").await), (None, Some(12)));

    pair.heal().await;
    for (name, tokens) in [
        ("changed", Some(12)),
        ("deleted-last", None),
        ("changed-last", Some(12)),
        ("made-here", Some(1)),
        ("made-there", Some(2)),
    ] {
        pair.until_limit(name, tokens).await;
    }
    // The reset holds: what the other side counted without knowing of it went with it.
    pair.until_used("hits", "reset", 3).await;
    pair.until_used("hits", "refunded", 51).await;
    us.act("debit", "hits", "reset", 1).await;
    pair.until_used("hits", "reset", 4).await;

    // Each remembers it alone.
    pair.stop_node(0);
    pair.stop_node(1);
    for node in [1, 0] {
        pair.start_node(node);
        let ask = pair.ask(node);
        let listed: Value = ask.document("/v1/limits").await;
        let made = listed["limits"].as_array().unwrap().iter().filter(|limit| limit["source"] == "api");
        let made: Vec<_> = made.map(|limit| (limit["name"].as_str().unwrap(), limit["limit"].as_u64())).collect();
        let expected =
            [("changed", Some(12)), ("changed-last", Some(12)), ("made-here", Some(1)), ("made-there", Some(2))];
        assert_eq!(made, expected);
        pair.stop_node(node);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_any_nodes_file_is_changed_there() {
    let pair = Pair::start().await;
    let eu = pair.ask(0);
    let folder = pair.folder.path();
    let text = std::fs::read_to_string(folder.join("us.toml")).unwrap();
    eu.define("theirs", 1).await;
    pair.until_limit("theirs", Some(1)).await;
    let of_file = "[[limits]]\nname = \"theirs\"\nlimit = 9\nwindow = \"60s\"\n";
    write(folder, "us.toml", &format!("{text}{of_file}"));
    let us = pair.ask(1);
    until("the file of us is in force", async || (us.limit("theirs").await == Some(9)).then_some(())).await;
    until("eu knows that it is us's", async || (eu.put("theirs", 2, &[]).await.status == 409).then_some(())).await;
    let refused = eu.put("theirs", 2, &[]).await;
    assert!(String::from_utf8_lossy(&refused.body).contains("file of the node us"), "{refused:?}");
    let health = us.document("/healthz").await;
    assert!(health["reasons"].to_string().contains("\\\"theirs\\\" was made at run time"), "{health}");
    let status = run(folder, &["status", "--url", &pair.nodes[0].as_ref().unwrap().url]);
    assert!(status.stdout.contains("limit \"theirs\" is not the same on us"), "{status:?}");
}
