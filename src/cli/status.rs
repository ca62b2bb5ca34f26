//! `tidegate status`: the cluster as a node sees it. Containers use it as their health check.

use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Failure, print};
use crate::client::Client;

/// Where a node is asked for without an address.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// The variable that names another.
const URL_VARIABLE: &str = "TIDEGATE_URL";

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

/// A problem document, of which only this is shown.
#[derive(Deserialize)]
struct Problem {
    detail: Option<String>,
}

/// Asks a node and prints what it says. It is a failure when it is not ready or does not answer.
pub(super) async fn status(url: Option<String>) -> Result<(), Failure> {
    let url = url.or_else(|| std::env::var(URL_VARIABLE).ok()).unwrap_or_else(|| DEFAULT_URL.to_owned());
    let client = Client::new(&url).map_err(Failure::cannot)?;
    let cluster: Cluster = ask(&client, &url, "/v1/cluster").await?;
    let health: Health = ask(&client, &url, "/healthz").await?;
    let ready = client.get("/readyz").await.map_err(Failure::no)?;

    let mut text = table(&cluster.members);
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
    let detail = ready.json::<Problem>().ok().and_then(|problem| problem.detail);
    Err(Failure::no(format!("{url}: {}", detail.unwrap_or_else(|| format!("readyz answers {}", ready.status)))))
}

/// A document of a node; whatever else listens there is no node.
async fn ask<T: DeserializeOwned>(client: &Client, url: &str, path: &str) -> Result<T, Failure> {
    let answer = client.get(path).await.map_err(Failure::no)?;
    let no_node =
        |error| Failure::no(format!("{url}{path} answers {} and not what a tidegate would: {error}", answer.status));
    answer.json().map_err(no_node)
}

/// Members below each other, columns as wide as their widest cell.
fn table(members: &[Member]) -> String {
    let shown = |ms: Option<String>| ms.map_or_else(|| "-".to_owned(), |ms| ms + " ms");
    let head = ["node", "region", "state", "round trip", "lag", "clock", "backlog"].map(str::to_owned);
    let rows = members.iter().map(|member| {
        [
            member.name.clone(),
            member.region.clone(),
            member.state.clone(),
            shown(member.rtt_ms.map(|ms| ms.to_string())),
            shown(member.lag_ms.map(|ms| ms.to_string())),
            shown(member.clock_offset_ms.map(|ms| format!("{ms:+}"))),
            member.backlog.to_string(),
        ]
    });
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let line = |row: &[String; 7]| {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
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
        let table = table(&[member("eu-1", None), member("a-longer-name", Some(81))]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "node           region  state      round trip  lag    clock  backlog");
        assert_eq!(lines[1], "eu-1           eu      connected  160 ms      -      -3 ms  0");
        assert_eq!(lines[2], "a-longer-name  eu      connected  160 ms      81 ms  -3 ms  0");
    }
}
