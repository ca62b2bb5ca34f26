//! The node that a command asks.

use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Failure;
use crate::client::{Client, Response};
use crate::config;

/// Where a node is asked for without an address.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// The variable that names another.
const URL_VARIABLE: &str = "TIDEGATE_URL";

/// Which node.
#[derive(Args)]
pub(super) struct Node {
    /// The node [default: $TIDEGATE_URL, else http://127.0.0.1:8080]
    #[arg(long)]
    url: Option<String>,
}

/// Which node, and the right to change it.
#[derive(Args)]
pub(super) struct ChangedNode {
    #[command(flatten)]
    node: Node,
    /// Holds the bearer token, where the node has one: its http.token_file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A node to ask.
pub(super) struct Asked {
    pub(super) url: String,
    pub(super) client: Client,
}

impl Node {
    pub(super) fn asked(self) -> Result<Asked, Failure> {
        let url = self.url.or_else(|| std::env::var(URL_VARIABLE).ok()).unwrap_or_else(|| DEFAULT_URL.to_owned());
        let client = Client::new(&url).map_err(Failure::cannot)?;
        Ok(Asked { url, client })
    }
}

impl ChangedNode {
    pub(super) fn asked(self) -> Result<Asked, Failure> {
        let token = self.token_file.map(|file| config::read_token(&file)).transpose().map_err(Failure::cannot)?;
        let Asked { url, client } = self.node.asked()?;
        let client = match token {
            Some(token) => client.with_token(&token).map_err(Failure::cannot)?,
            None => client,
        };
        Ok(Asked { url, client })
    }
}

impl Asked {
    /// A document; whatever else listens there is no node.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.client.get(path).await.map_err(Failure::no)?;
        self.read(path, &answer)
    }

    /// What was answered to a request for `path`.
    pub(super) fn read<T: DeserializeOwned>(&self, path: &str, answer: &Response) -> Result<T, Failure> {
        let (url, status) = (&self.url, answer.status);
        let no_node =
            |error| Failure::no(format!("{url}{path} answers {status} and not what a tidegate would: {error}"));
        answer.json().map_err(no_node)
    }
}

/// A problem document, of which only this is shown.
#[derive(Deserialize)]
struct Problem {
    detail: Option<String>,
}

/// Why the answer is no.
pub(super) fn problem(answer: &Response) -> String {
    let detail = answer.json::<Problem>().ok().and_then(|problem| problem.detail);
    detail.unwrap_or_else(|| format!("the answer is {}", answer.status))
}
