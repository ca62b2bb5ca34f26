//! Limits that change under nodes, of which none may forget what was used.

use std::path::Path;

use crate::ground::{Served, write};
use crate::nodes::{Asker, Cluster, LIMITS, NODES, until};
use serde_json::{Value, json};

/// A bucket of 100 tokens that refills so slowly that a test does not see it.
fn bucket(name: &str, limit: u64) -> String {
    format!(
        "[[limits]]\nname = \"{name}\"\nalgorithm = \"token_bucket\"\nlimit = {limit}\nwindow = \"1d\"\nburst = 100\n"
    )
}

/// None: it does not know the limit.
async fn remaining(node: &Asker, limit: &str) -> Option<u64> {
    let answer = node.client.post_json("/v1/peek", &json!({"limit": limit, "key": "k"})).await.unwrap();
    (answer.status.as_u16() != 404)
        .then(|| answer.json::<Value>().unwrap()["results"][0]["remaining"].as_u64().unwrap())
}

async fn take_ten(node: &Asker, limit: &str) {
    for _ in 0..10 {
        assert_eq!(node.check(limit, "k").await, Some(true));
    }
}

async fn until_remaining(nodes: &[&Asker], limit: &str, tokens: u64) {
    until(&format!("{tokens} tokens of {limit} are left on {} nodes", nodes.len()), async || {
        for node in nodes {
            let remaining = remaining(node, limit).await;
            assert!(remaining.is_none_or(|remaining| remaining >= tokens), "{remaining:?} is less than was left");
            if remaining != Some(tokens) {
                return None;
            }
        }
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_changed_on_one_node_long_before_the_others() {
    let cluster = Cluster::start().await;
    let everywhere = |limit: u64, nodes: &[usize]| {
        nodes.iter().for_each(|node| cluster.configure(*node, &format!("{LIMITS}{}", bucket("rate", limit))));
    };
    let [a, b, c] = [0, 1, 2].map(|node| cluster.ask(node));
    everywhere(1, &[0, 1, 2]);
    until_remaining(&[&a, &b, &c], "rate", 100).await;
    take_ten(&a, "rate").await;
    take_ten(&b, "rate").await;
    until_remaining(&[&a, &b, &c], "rate", 80).await;

    everywhere(2, &[0]);
    until("the first has changed", async || (a.document("/v1/limits/rate").await["limit"] == 2).then_some(())).await;
    until_remaining(&[&a, &b, &c], "rate", 80).await;
    // Each side counts under what it knows.
    take_ten(&a, "rate").await;
    take_ten(&b, "rate").await;
    until_remaining(&[&a], "rate", 70).await;
    until_remaining(&[&b, &c], "rate", 70).await;

    everywhere(2, &[1, 2]);
    until_remaining(&[&a, &b, &c], "rate", 60).await;
    take_ten(&c, "rate").await;
    until_remaining(&[&a, &b, &c], "rate", 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_one_node_knows_before_the_others() {
    let cluster = Cluster::start().await;
    let asks = [0, 1, 2].map(|node| cluster.ask(node));
    let text = format!("{LIMITS}{}", bucket("new", 1));
    cluster.configure(0, &text);
    until_remaining(&[&asks[0]], "new", 100).await;
    take_ten(&asks[0], "new").await;
    for (node, name) in NODES.iter().enumerate().skip(1) {
        until(&format!("{name} has heard of it"), async || {
            let differ = asks[node].document("/v1/cluster").await["limits_differ"].clone();
            differ.as_array().unwrap().iter().any(|one| one["limit"] == "new").then_some(())
        })
        .await;
        assert_eq!(remaining(&asks[node], "new").await, None);
    }
    for node in 1..NODES.len() {
        cluster.configure(node, &text);
    }
    until_remaining(&[&asks[0], &asks[1], &asks[2]], "new", 90).await;
    take_ten(&asks[1], "new").await;
    until_remaining(&[&asks[0], &asks[1], &asks[2]], "new", 80).await;
}

#[tokio::test]
async fn a_bucket_changed_while_the_node_was_down_still_owes() {
    let folder = tempfile::tempdir().unwrap();
    let start = |limit| start_single(folder.path(), limit);
    let node = start(1);
    take_ten(&Asker::new(&node), "bucket").await;
    assert_eq!(node.stop(), Some(0));

    let node = start(2);
    assert_eq!(remaining(&Asker::new(&node), "bucket").await, Some(90));
    take_ten(&Asker::new(&node), "bucket").await;
    assert_eq!(node.stop(), Some(0));

    let node = start(3);
    assert_eq!(remaining(&Asker::new(&node), "bucket").await, Some(80));
    assert_eq!(node.stop(), Some(0));
}

fn start_single(folder: &Path, limit: u64) -> Served {
    let config = "[node]\ndata_dir = \"data\"\n[http]\nlisten = \"127.0.0.1:0\"\n";
    Served::start(&write(folder, "node.toml", &format!("{config}{}", bucket("bucket", limit))))
}
