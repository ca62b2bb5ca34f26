//! Three real nodes on loopback, and what to ask them.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use serde_json::{Value, json};
use tidegate::client::Client;

use crate::ground::{DEADLINE, LOOK_EVERY, Served, run, write};

/// Names of the nodes; regions are the same.
pub const NODES: [&str; 3] = ["eu", "us", "ap"];

/// Windows of 1000 days: none ends while a test runs.
pub const LIMITS: &str = "[[limits]]\nname = \"hits\"\nalgorithm = \"fixed_window\"\nlimit = 1000000000\nwindow = \
                          \"1000d\"\n[[limits]]\nname = \"few\"\nalgorithm = \"fixed_window\"\nlimit = 30\nwindow = \
                          \"1000d\"\n";

/// A cluster in a folder of its own.
pub struct Cluster {
    pub folder: tempfile::TempDir,
    gossip: Vec<SocketAddr>,
    nodes: Vec<Option<Served>>,
}

impl Cluster {
    /// Makes certificates and configs, starts all nodes, and waits until each is connected to each.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path(), &NODES);
        // Seeds are written down before any node runs: the ports are found free, then given to the nodes.
        let sockets: Vec<UdpSocket> = NODES.map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).into();
        let gossip = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        drop(sockets);
        let mut cluster = Self { folder, gossip, nodes: NODES.map(|_| None).into() };
        for node in 0..NODES.len() {
            cluster.configure(node, LIMITS);
            cluster.start_node(node);
        }
        cluster.until_together().await;
        cluster
    }

    /// Writes a node's config.
    pub fn configure(&self, node: usize, limits: &str) {
        let seeds: Vec<String> = self.gossip.iter().map(|seed| format!("\"{seed}\"")).collect();
        let seeds: Vec<String> = seeds.into_iter().enumerate().filter(|(n, _)| *n != node).map(|(_, s)| s).collect();
        let text = config(NODES[node], self.gossip[node], &seeds.join(", "), limits);
        write(self.folder.path(), &format!("{}.toml", NODES[node]), &text);
    }

    pub fn start_node(&mut self, node: usize) {
        let file = self.folder.path().join(format!("{}.toml", NODES[node]));
        self.nodes[node] = Some(Served::start(&file));
    }

    pub fn node(&self, node: usize) -> &Served {
        self.nodes[node].as_ref().expect("it runs")
    }

    /// Takes a node out, to stop or kill it.
    pub fn take(&mut self, node: usize) -> Served {
        self.nodes[node].take().expect("it runs")
    }

    pub fn ask(&self, node: usize) -> Asker {
        Asker::new(self.node(node))
    }

    /// Where a node hears its peers.
    pub fn gossip(&self, node: usize) -> SocketAddr {
        self.gossip[node]
    }

    pub fn remove_data(&self, node: usize) {
        fs::remove_dir_all(self.folder.path().join(format!("{}-data", NODES[node]))).unwrap();
    }

    /// Waits until every node is ready and connected to all others.
    pub async fn until_together(&self) {
        for (node, name) in NODES.iter().enumerate() {
            let ask = self.ask(node);
            until(&format!("{name} is connected to the others"), async || {
                let ready = ask.client.get("/readyz").await.ok()?.status.is_success();
                (ready && ask.connected().await == NODES.len() - 1).then_some(())
            })
            .await;
        }
    }
}

/// An authority and certificates of `nodes` in `folder`.
pub fn certificates(folder: &Path, nodes: &[&str]) {
    let made = run(folder, &["cert", "ca", "--out", "."]);
    assert_eq!(made.code, Some(0), "{made:?}");
    for node in nodes {
        let made = run(folder, &["cert", "node", node, "--ca", ".", "--out", "."]);
        assert_eq!(made.code, Some(0), "{made:?}");
    }
}

/// The config of a node whose files are beside it.
pub fn config(name: &str, gossip: SocketAddr, seeds: &str, limits: &str) -> String {
    format!(
        "[node]\nname = \"{name}\"\nregion = \"{name}\"\ndata_dir = \"{name}-data\"\n[http]\nlisten = \
         \"127.0.0.1:0\"\n[gossip]\nlisten = \"{gossip}\"\nseeds = [{seeds}]\n[gossip.tls]\nca_file = \
         \"ca.pem\"\ncert_file = \"{name}.pem\"\nkey_file = \"{name}.key\"\nsecret_file = \"cluster.secret\"\n{limits}"
    )
}

/// Waits until `condition` gives something.
pub async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(value) = condition().await {
                return value;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(DEADLINE, looking).await {
        Ok(value) => value,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// What a node knows of a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    pub used: u64,
    /// By node, all its lives together.
    pub by_node: BTreeMap<String, u64>,
}

impl Usage {
    pub fn of(&self, node: usize) -> u64 {
        self.by_node.get(NODES[node]).copied().unwrap_or(0)
    }
}

/// Asks one node.
#[derive(Clone)]
pub struct Asker {
    pub client: Client,
}

impl Asker {
    pub fn new(node: &Served) -> Self {
        Self { client: Client::new(&node.url).unwrap() }
    }

    /// Whether one token is admitted; None without an answer.
    pub async fn check(&self, limit: &str, key: &str) -> Option<bool> {
        let body = json!({"limit": limit, "key": key});
        let answer = self.client.post_json("/v1/check", &body).await.ok()?;
        match answer.status.as_u16() {
            200 => Some(true),
            429 => Some(false),
            other => panic!("{other}: {:?}", answer.body),
        }
    }

    /// What it knows of a key; None without an answer.
    pub async fn usage(&self, limit: &str, key: &str) -> Option<Usage> {
        let answer = self.client.post_json("/v1/usage", &json!({"limit": limit, "key": key})).await.ok()?;
        assert!(answer.status.is_success(), "{:?}", answer.body);
        let document: Value = answer.json().unwrap();
        let mut usage = Usage { used: document["used"].as_u64().unwrap(), by_node: BTreeMap::new() };
        for replica in document["replicas"].as_array().unwrap() {
            let node = replica["node"].as_str().unwrap().to_owned();
            *usage.by_node.entry(node).or_default() += replica["used"].as_u64().unwrap();
        }
        Some(usage)
    }

    /// A JSON document that must be there.
    pub async fn document(&self, path: &str) -> Value {
        self.client.get(path).await.unwrap().json().unwrap()
    }

    /// A number of `/metrics`.
    pub async fn metric(&self, name: &str) -> u64 {
        let answer = self.client.get("/metrics").await.unwrap();
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// How many peers it is connected to.
    pub async fn connected(&self) -> usize {
        let cluster = self.document("/v1/cluster").await;
        let members = cluster["members"].as_array().unwrap();
        members.iter().filter(|member| member["state"] == "connected").count()
    }
}

/// A task that ends when it is told to, and says what it came to.
pub struct Running<T> {
    stop: tokio::sync::watch::Sender<bool>,
    task: tokio::task::JoinHandle<T>,
}

impl<T: Send + 'static> Running<T> {
    pub fn start<F: Future<Output = T> + Send + 'static>(
        work: impl FnOnce(tokio::sync::watch::Receiver<bool>) -> F,
    ) -> Self {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        Self { stop, task: tokio::spawn(work(stopped)) }
    }

    pub async fn stop(self) -> T {
        self.stop.send_replace(true);
        self.task.await.unwrap()
    }
}
