//! What the nodes say of themselves: each one's count of the demo's key, and what it knows of the others.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::files::{KEY, LIMIT};
use crate::client::{Client, ClientError};

/// How long a node may take to answer anything.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// Between two looks at counts that should become equal.
const SETTLE_POLL: Duration = Duration::from_millis(20);

/// A node's view, or why there is none.
pub(super) type Seen = Result<Observed, String>;

/// What a node has counted for one node.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Share {
    /// Whose spends. A node has one entry for each of its lives.
    pub node: String,
    /// Tokens that count now.
    pub used: u64,
    /// How old this knowledge is; 0 for its own.
    pub stale_ms: Option<u64>,
}

/// Another node as a node sees it, or itself.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Peer {
    /// Who.
    pub name: String,
    /// `self` or `connected`; anything else is not well.
    pub state: String,
    /// How old the newest complete knowledge of it is.
    pub lag_ms: Option<u64>,
}

/// One node's view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Observed {
    /// Its own count of the key.
    pub used: u64,
    /// By node.
    pub shares: Vec<Share>,
    /// The cluster.
    pub peers: Vec<Peer>,
}

impl Observed {
    /// Tokens counted for a node, all its lives together.
    pub(super) fn share(&self, node: &str) -> u64 {
        self.shares.iter().filter(|share| share.node == node).map(|share| share.used).sum()
    }

    /// How old the knowledge of a node's spends is.
    pub(super) fn stale_ms(&self, node: &str) -> Option<u64> {
        self.shares.iter().filter(|share| share.node == node).filter_map(|share| share.stale_ms).min()
    }

    /// How far it lags behind a node.
    pub(super) fn lag_ms(&self, node: &str) -> Option<u64> {
        self.peers.iter().find(|peer| peer.name == node).and_then(|peer| peer.lag_ms)
    }

    /// How far it lags behind the one it knows least of.
    pub(super) fn lag_of_peers_ms(&self) -> Option<u64> {
        self.peers.iter().filter(|peer| peer.state != "self").filter_map(|peer| peer.lag_ms).max()
    }
}

#[derive(Deserialize)]
struct Usage {
    used: u64,
    replicas: Vec<Share>,
}

#[derive(Deserialize)]
struct Members {
    members: Vec<Peer>,
}

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "the demo watches from outside, by the machine's own clock")]
pub(super) fn unix_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

/// One client a node.
pub(super) fn clients(nodes: &[SocketAddr]) -> Result<Vec<Client>, ClientError> {
    nodes.iter().map(|node| Ok(Client::new(&format!("http://{node}"))?.with_timeout(ANSWER_DEADLINE))).collect()
}

/// Asks all nodes at the same time.
pub(super) async fn look(clients: &[Client]) -> Vec<Seen> {
    let mut asked = JoinSet::new();
    for (node, client) in clients.iter().cloned().enumerate() {
        asked.spawn(async move { (node, observe(&client).await.map_err(|error| error.to_string())) });
    }
    let mut seen = vec![Err("no answer".to_owned()); clients.len()];
    while let Some(answer) = asked.join_next().await {
        let (node, answer) = answer.expect("asking does not panic and is not aborted");
        seen[node] = answer;
    }
    seen
}

async fn observe(client: &Client) -> Result<Observed, ClientError> {
    let usage = format!("/v1/usage?limit={LIMIT}&key={KEY}");
    let (usage, cluster) = tokio::join!(fetch::<Usage>(client, &usage), fetch::<Members>(client, "/v1/cluster"));
    let (usage, cluster) = (usage?, cluster?);
    Ok(Observed { used: usage.used, shares: usage.replicas, peers: cluster.members })
}

async fn fetch<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, ClientError> {
    client.get(path).await?.json()
}

/// Why the nodes are not one cluster yet; None: every one is ready and connected to every other.
pub(super) async fn not_together(clients: &[Client]) -> Option<String> {
    for client in clients {
        let ready = match client.get("/readyz").await {
            Ok(answer) => answer,
            Err(error) => return Some(error.to_string()),
        };
        if !ready.status.is_success() {
            return Some(String::from_utf8_lossy(&ready.body).into_owned());
        }
        let members = match fetch::<Members>(client, "/v1/cluster").await {
            Ok(cluster) => cluster.members,
            Err(error) => return Some(error.to_string()),
        };
        let up = members.iter().filter(|peer| peer.state == "self" || peer.state == "connected").count();
        if up < clients.len() {
            return Some(format!("a node hears {} of {} nodes", up, clients.len()));
        }
    }
    None
}

/// Whether all nodes count the same, for each node and in all, and anything at all.
pub(super) fn agree(seen: &[Seen]) -> bool {
    let Some(Ok(first)) = seen.first() else { return false };
    let same = |other: &Seen| {
        let Ok(other) = other else { return false };
        let nodes = first.shares.iter().chain(&other.shares).map(|share| &share.node);
        other.used == first.used && nodes.into_iter().all(|node| first.share(node) == other.share(node))
    };
    first.used > 0 && seen.iter().all(same)
}

/// Looks until all nodes agree or `deadline` has passed; returns what was seen last.
pub(super) async fn settle(clients: &[Client], deadline: Instant) -> (bool, Vec<Seen>) {
    loop {
        let seen = look(clients).await;
        let agree = agree(&seen);
        if agree || Instant::now() >= deadline {
            return (agree, seen);
        }
        tokio::time::sleep(SETTLE_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(used: u64, shares: &[(&str, u64)]) -> Seen {
        let share = |(node, used): &(&str, u64)| Share { node: (*node).into(), used: *used, stale_ms: None };
        Ok(Observed { used, shares: shares.iter().map(share).collect(), peers: Vec::new() })
    }

    #[test]
    fn agreement_is_about_every_nodes_share() {
        let all = seen(10, &[("a", 4), ("b", 6)]);
        assert!(agree(&[all.clone(), seen(10, &[("b", 5), ("a", 4), ("b", 1), ("c", 0)])]));
        assert!(!agree(&[all.clone(), seen(10, &[("a", 5), ("b", 5)])]));
        assert!(!agree(&[all.clone(), seen(9, &[("a", 4), ("b", 6)])]));
        assert!(!agree(&[all.clone(), Err("gone".into())]));
        assert!(!agree(&[Err("gone".into()), all]));
        assert!(!agree(&[seen(0, &[]), seen(0, &[])]));
        assert!(!agree(&[]));
    }

    #[test]
    fn answers_of_nodes_are_read() {
        let usage = r#"{"limit":"demo","key":"everyone","used":9,"remaining":91,
            "replicas":[{"node":"eu-1","region":"eu","generation":1,"used":9,"stale_ms":0}]}"#;
        let cluster = r#"{"members":[{"name":"eu-1","region":"eu","generation":1,"state":"self","rtt_ms":null,
            "lag_ms":0,"clock_offset_ms":null,"backlog":0},{"name":"us-1","region":"us","generation":1,
            "state":"connected","rtt_ms":160,"lag_ms":120,"clock_offset_ms":0,"backlog":0}],"limits_differ":[]}"#;
        let usage: Usage = serde_json::from_str(usage).unwrap();
        let members: Members = serde_json::from_str(cluster).unwrap();
        let observed = Observed { used: usage.used, shares: usage.replicas, peers: members.members };
        assert_eq!((observed.share("eu-1"), observed.share("us-1")), (9, 0));
        assert_eq!(observed.stale_ms("us-1"), None);
        assert_eq!((observed.lag_ms("us-1"), observed.lag_of_peers_ms()), (Some(120), Some(120)));
    }
}
