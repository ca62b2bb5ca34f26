//! Three real nodes: processes, sockets, data folders.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::ground::{Served, run, write};
use crate::nodes::{Asker, Cluster, LIMITS, NODES, Running, Usage, certificates, config, until};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;
use tidegate::cert::Authority;
use tidegate::id::NodeName;
use tidegate::time::SECOND;
use tokio::sync::watch;

/// Keys under load.
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];
/// The node that is killed.
const VICTIM: usize = 0;
/// A kill comes once the peers have heard this much more from the victim.
const HEARD_BEFORE_KILL: u64 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_count_together() {
    let cluster = Cluster::start().await;
    for node in 0..NODES.len() {
        let ask = cluster.ask(node);
        for _ in 0..10 {
            assert_eq!(ask.check("few", "together").await, Some(true));
        }
    }
    for node in 0..NODES.len() {
        let ask = cluster.ask(node);
        until("the node knows all 30", async || {
            let usage = ask.usage("few", "together").await?;
            (usage.used == 30 && (0..NODES.len()).all(|other| usage.of(other) == 10)).then_some(())
        })
        .await;
        let denied = ask.client.post_json("/v1/check", &json!({"limit": "few", "key": "together"})).await.unwrap();
        assert_eq!(denied.status.as_u16(), 429);
        assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
        assert_eq!(denied.header("ratelimit-policy"), Some("\"few\";q=30;w=86400000"));
        assert!(denied.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
        let body: serde_json::Value = denied.json().unwrap();
        assert_eq!(body["violated-policies"], json!(["few"]));
    }
    let status = run(cluster.folder.path(), &["status", "--url", &cluster.node(1).url]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(NODES.iter().all(|name| status.stdout.contains(name)), "{}", status.stdout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_remembers_what_it_told() {
    killed_three_times(|_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_without_its_data_is_told_by_its_peers() {
    killed_three_times(|cluster| cluster.remove_data(VICTIM)).await;
}

/// Kills a node under load three times in a row and starts it again after `between`.
async fn killed_three_times(between: impl Fn(&Cluster)) {
    let mut cluster = Cluster::start().await;
    let peers = [1, 2].map(|node| cluster.ask(node));
    let load = peers.clone().map(|ask| Running::start(|stop| offer(ask, stop)));
    // Peers' counts are looked at all the time: they never fall, whatever becomes of the victim.
    let watching = peers.clone().map(|ask| Running::start(|stop| never_falls(ask, stop)));
    let mut heard_last = 0;
    for round in 0..3 {
        let victims_load = Running::start(|stop| offer(cluster.ask(VICTIM), stop));
        until("the peers hear enough of the victim", async || {
            let heard = peers[0].usage("hits", KEYS[0]).await?.of(VICTIM);
            (heard >= heard_last + HEARD_BEFORE_KILL).then(|| heard_last = heard)
        })
        .await;
        cluster.take(VICTIM).kill();
        victims_load.stop().await;
        // What any peer had heard of it, at the latest now.
        let heard = heard_of_victim(&peers).await;
        between(&cluster);
        cluster.start_node(VICTIM);
        let restarted = cluster.ask(VICTIM);
        until("the victim is ready", async || {
            restarted.client.get("/readyz").await.ok()?.status.is_success().then_some(())
        })
        .await;
        for (key, heard) in &heard {
            let known = restarted.usage("hits", key).await.unwrap();
            assert!(known.of(VICTIM) >= *heard, "round {round}: {key}: {known:?}, a peer had heard {heard}");
        }
        cluster.until_together().await;
    }
    let mut admitted: BTreeMap<String, u64> = BTreeMap::new();
    for (node, load) in (1..).zip(load) {
        for (key, count) in load.stop().await {
            admitted.insert(format!("{key} {}", NODES[node]), count);
        }
    }
    for key in KEYS {
        let usage = agreed(&cluster, key).await;
        for node in [1, 2] {
            assert_eq!(usage.of(node), admitted[&format!("{key} {}", NODES[node])], "{key}: {usage:?}");
        }
        assert_eq!(usage.used, (0..NODES.len()).map(|node| usage.of(node)).sum::<u64>());
    }
    for watching in watching {
        assert!(watching.stop().await > 0, "somebody looked");
    }
}

/// Takes tokens as fast as the node answers, until told to stop or it is gone. What was admitted, by key.
async fn offer(ask: Asker, stop: watch::Receiver<bool>) -> BTreeMap<String, u64> {
    let mut admitted = BTreeMap::new();
    for key in KEYS.iter().cycle() {
        if *stop.borrow() {
            break;
        }
        match ask.check("hits", key).await {
            Some(true) => *admitted.entry((*key).to_owned()).or_default() += 1,
            Some(false) => panic!("the limit is out of reach"),
            None => break,
        }
    }
    admitted
}

/// Looks at a node's counts until told to stop; they only grow. How often it looked.
async fn never_falls(ask: Asker, stop: watch::Receiver<bool>) -> u64 {
    let mut known: BTreeMap<&str, Usage> = BTreeMap::new();
    let mut looks = 0;
    while !*stop.borrow() {
        for key in KEYS {
            let usage = ask.usage("hits", key).await.expect("this node is never killed");
            let before = known.entry(key).or_default();
            assert!(usage.used >= before.used, "{key} fell from {before:?} to {usage:?}");
            assert!((0..NODES.len()).all(|node| usage.of(node) >= before.of(node)), "{key}: {before:?}, {usage:?}");
            *before = usage;
            looks += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    looks
}

/// By key, the most that a peer has heard of the victim.
async fn heard_of_victim(peers: &[Asker]) -> BTreeMap<&'static str, u64> {
    let mut heard = BTreeMap::new();
    for key in KEYS {
        for peer in peers {
            let of = peer.usage("hits", key).await.unwrap().of(VICTIM);
            let most: &mut u64 = heard.entry(key).or_default();
            *most = of.max(*most);
        }
    }
    heard
}

/// What all nodes know of a key once they know the same.
async fn agreed(cluster: &Cluster, key: &str) -> Usage {
    let nodes = [0, 1, 2].map(|node| cluster.ask(node));
    until(&format!("all nodes know the same of {key}"), async || {
        let first = nodes[0].usage("hits", key).await?;
        for node in &nodes[1..] {
            if node.usage("hits", key).await? != first {
                return None;
            }
        }
        Some(first)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_stopped_tells_all_it_knows_first() {
    let mut cluster = Cluster::start().await;
    let ask = cluster.ask(VICTIM);
    for _ in 0..25 {
        assert_eq!(ask.check("few", "last words").await, Some(true));
    }
    assert_eq!(cluster.take(VICTIM).stop(), Some(0));
    for node in [1, 2] {
        let known = cluster.ask(node).usage("few", "last words").await.unwrap();
        assert_eq!(known.of(VICTIM), 25, "{} was told before the end", NODES[node]);
    }
    // Alone, it has it from its disk.
    let others = [1, 2].map(|node| cluster.take(node).stop());
    assert_eq!(others, [Some(0), Some(0)]);
    cluster.start_node(VICTIM);
    assert_eq!(cluster.ask(VICTIM).usage("few", "last words").await.unwrap().used, 25);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_follow_the_file_and_a_bad_file_changes_nothing() {
    let cluster = Cluster::start().await;
    let (node, ask) = (cluster.node(0), cluster.ask(0));
    for _ in 0..3 {
        assert_eq!(ask.check("few", "k").await, Some(true));
    }
    let limit_of = async || ask.document("/v1/limits/few").await["limit"].as_u64();
    let health = async || ask.document("/healthz").await;

    cluster.configure(0, &LIMITS.replace("limit = 30", "limit = \"30\""));
    node.signal("HUP");
    let sick = until("health tells of the bad file", async || {
        let health = health().await;
        (health["status"] == "degraded").then(|| health["reasons"][0].as_str().unwrap().to_owned())
    })
    .await;
    assert!(sick.contains("eu.toml:") && sick.contains("limits[1].limit") && sick.contains("whole number"), "{sick}");
    assert_eq!(limit_of().await, Some(30));
    assert_eq!(ask.check("few", "k").await, Some(true));

    // No signal: the file is looked at.
    cluster.configure(0, &LIMITS.replace("limit = 30", "limit = 200"));
    until("the new limit is in force", async || (limit_of().await == Some(200)).then_some(())).await;
    until("health is well again", async || (health().await["status"] == "ok").then_some(())).await;
    let answer = ask.client.post_json("/v1/peek", &json!({"limit": "few", "key": "k"})).await.unwrap();
    assert_eq!(answer.json::<serde_json::Value>().unwrap()["results"][0]["remaining"], 196, "what was used stays used");

    // The other nodes have it otherwise, and say so.
    let differ = until("the difference is told", async || {
        let differ = ask.document("/v1/cluster").await["limits_differ"].clone();
        (differ.as_array().is_some_and(|all| all.len() == 1 && all[0]["nodes"].as_array().unwrap().len() == 2))
            .then_some(differ)
    })
    .await;
    assert_eq!(differ[0]["limit"], "few");
    let status = run(cluster.folder.path(), &["status", "--url", &node.url]);
    assert!(status.stdout.contains("limit \"few\" is not the same on"), "{}", status.stdout);

    cluster.configure(0, &format!("[journal]\nflush = \"1s\"\n{LIMITS}"));
    until("the log says what needs a restart", async || {
        node.log().contains("journal.flush changed, which needs a restart").then_some(())
    })
    .await;
    assert_eq!(limit_of().await, Some(30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_needs_no_restart() {
    let cluster = Cluster::start().await;
    let (folder, node) = (cluster.folder.path(), cluster.node(0));
    let made = run(folder, &["cert", "node", "eu", "--ca", ".", "--out", "new"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    fs::write(folder.join("eu.pem"), "none").unwrap();
    until("the bad one is told", async || node.log().contains("gossip.tls.cert_file: ").then_some(())).await;
    for file in ["eu.key", "eu.pem"] {
        fs::rename(folder.join("new").join(file), folder.join(file)).unwrap();
    }
    until("the new one is used", async || node.log().contains("new connections use this certificate").then_some(()))
        .await;
    cluster.until_together().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_that_never_answered_is_told_until_it_does() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["eu", "us"]);
    // Somebody has the port and says nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let seed = silent.local_addr().unwrap();
    let text = config("eu", SocketAddr::from(([127, 0, 0, 1], 0)), &format!("\"{seed}\""), LIMITS);
    let eu = Served::start(&write(folder.path(), "eu.toml", &text));
    let ask = Asker::new(&eu);
    let told = format!("the seed {seed} has not answered since the start");
    until("health names the seed", async || (ask.document("/healthz").await["reasons"] == json!([told])).then_some(()))
        .await;
    drop(silent);
    let us = Served::start(&write(folder.path(), "us.toml", &config("us", seed, "", LIMITS)));
    until("health is well", async || (ask.document("/healthz").await["status"] == "ok").then_some(())).await;
    assert_eq!((us.stop(), eu.stop()), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_has_expired_is_told() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["eu"]);
    // Of the cluster's first day, as it were: a node's certificate ends long before this.
    let authority = Authority::load(folder.path()).unwrap();
    let expired = authority.issue(&NodeName::new("eu").unwrap(), &[], &mut StdRng::seed_from_u64(1), SECOND).unwrap();
    write(folder.path(), "eu.pem", &expired.cert_pem);
    write(folder.path(), "eu.key", &expired.key_pem);
    let text = config("eu", SocketAddr::from(([127, 0, 0, 1], 0)), "", LIMITS);
    let eu = Served::start(&write(folder.path(), "eu.toml", &text));
    let health = Asker::new(&eu).document("/healthz").await;
    assert_eq!(health["reasons"], json!(["this node's certificate has expired: peers refuse it"]));
    assert_eq!(eu.stop(), Some(0));
}
