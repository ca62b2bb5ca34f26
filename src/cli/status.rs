//! `tidegate status`: the cluster as a node sees it. Containers use it as their health check.

use axum::http::StatusCode;
use serde::Deserialize;

use super::node::{Asked, Node, problem};
use super::table::table;
use super::{Failure, print};

#[derive(Deserialize)]
struct Cluster {
    members: Vec<Member>,
    limits_differ: Vec<Difference>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    region: String,
    state: String,
    rtt_ms: Option<u64>,
    lag_ms: Option<u64>,
    clock_offset_ms: Option<i64>,
    backlog: u64,
}

#[derive(Deserialize)]
struct Difference {
    limit: String,
    nodes: Vec<String>,
}

#[derive(Deserialize)]
struct Health {
    status: String,
    #[serde(default)]
    reasons: Vec<String>,
}

/// Asks a node and prints what it says. It is a failure when it is not ready or does not answer.
pub(super) async fn status(node: Node) -> Result<(), Failure> {
    let node = node.asked()?;
    let cluster: Cluster = node.get("/v1/cluster").await?;
    let health: Health = node.get("/healthz").await?;
    let ready = node.client.get("/readyz").await.map_err(Failure::no)?;

    let mut text = members(&cluster.members);
    for Difference { limit, nodes } in &cluster.limits_differ {
        text += &format!("limit {limit:?} is not the same on {}\n", nodes.join(", "));
    }
    text += &format!("health: {}\n", health.status);
    for reason in &health.reasons {
        text += &format!("  {}\n", reason.replace('\n', "\n  "));
    }
    if ready.status == StatusCode::OK {
        return print(&(text + "ready: yes\n"));
    }
    print(&(text + "ready: no\n"))?;
    let Asked { url, .. } = node;
    Err(Failure::no(format!("{url}: {}", problem(&ready))))
}

fn members(members: &[Member]) -> String {
    let shown = |ms: Option<String>| ms.map_or_else(|| "-".to_owned(), |ms| ms + " ms");
    let row = |member: &Member| {
        [
            member.name.clone(),
            member.region.clone(),
            member.state.clone(),
            shown(member.rtt_ms.map(|ms| ms.to_string())),
            shown(member.lag_ms.map(|ms| ms.to_string())),
            shown(member.clock_offset_ms.map(|ms| format!("{ms:+}"))),
            member.backlog.to_string(),
        ]
    };
    let head = ["node", "region", "state", "round trip", "lag", "clock", "backlog"];
    table(head, members.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let member = |name: &str, lag_ms| Member {
            name: name.into(),
            region: "eu".into(),
            state: "connected".into(),
            rtt_ms: Some(160),
            lag_ms,
            clock_offset_ms: Some(-3),
            backlog: 0,
        };
        let table = members(&[member("eu-1", None), member("a-longer-name", Some(81))]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "node           region  state      round trip  lag    clock  backlog");
        assert_eq!(lines[1], "eu-1           eu      connected  160 ms      -      -3 ms  0");
        assert_eq!(lines[2], "a-longer-name  eu      connected  160 ms      81 ms  -3 ms  0");
    }
}
