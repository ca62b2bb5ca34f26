//! `tidegate limits`: what limits a running node has, and changing them.

use std::path::{Path, PathBuf};

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use clap::Subcommand;
use serde::{Deserialize, Serialize};

use super::node::{Asked, ChangedNode, Node, problem};
use super::table::{LIMIT_HEAD, limit_row, table};
use super::{Failure, print};
use crate::config;
use crate::limits::{Limit, LimitSpec, OverrideSpec};

/// What may be done to limits.
#[derive(Subcommand)]
pub(super) enum Command {
    /// Shows all limits in force
    List {
        #[command(flatten)]
        node: Node,
    },
    /// Writes one limit as a file has it
    Get {
        /// The limit
        name: String,
        #[command(flatten)]
        node: Node,
    },
    /// Makes or changes the limits that a file defines; others stay as they are
    Apply {
        /// A TOML file of [[limits]] and [[overrides]], or a node's configuration
        file: PathBuf,
        #[command(flatten)]
        node: ChangedNode,
    },
    /// Deletes a limit, here and everywhere
    Delete {
        /// The limit
        name: String,
        #[command(flatten)]
        node: ChangedNode,
    },
}

/// Does it.
pub(super) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List { node } => list(&node.asked()?).await,
        Command::Get { name, node } => get(&node.asked()?, &name).await,
        Command::Apply { file, node } => apply(&node.asked()?, &file).await,
        Command::Delete { name, node } => delete(&node.asked()?, &name).await,
    }
}

/// `GET /v1/limits`, of which more is answered than is shown.
#[derive(Deserialize)]
struct Listed {
    limits: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    source: String,
    #[serde(flatten)]
    limit: LimitSpec,
}

async fn list(node: &Asked) -> Result<(), Failure> {
    let Listed { limits } = node.get("/v1/limits").await?;
    let with = |[name, rest @ ..]: [String; 6], from: String| {
        let [algorithm, allows, enforce, key, overrides] = rest;
        [name, from, algorithm, allows, enforce, key, overrides]
    };
    let rows = limits.into_iter().map(|item| with(limit_row(item.limit), item.source));
    print(&table(with(LIMIT_HEAD.map(str::to_owned), "from".to_owned()).each_ref().map(String::as_str), rows))
}

/// A limit as a configuration file has it.
#[derive(Serialize)]
struct File {
    limits: [LimitSpec; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<Override>,
}

#[derive(Serialize)]
struct Override {
    of: String,
    #[serde(flatten)]
    own: OverrideSpec,
}

async fn get(node: &Asked, name: &str) -> Result<(), Failure> {
    let path = format!("/v1/limits/{}", in_path(name));
    let answer = node.client.get(&path).await.map_err(Failure::no)?;
    if answer.status == StatusCode::NOT_FOUND {
        return Err(Failure::no(problem(&answer)));
    }
    let mut spec: LimitSpec = node.read(&path, &answer)?;
    let overrides = std::mem::take(&mut spec.overrides);
    let overrides = overrides.into_iter().map(|own| Override { of: spec.name.clone(), own }).collect();
    let text = toml::to_string(&File { limits: [spec], overrides });
    print(&text.map_err(|error| Failure::cannot(format!("{name:?} cannot be written as TOML: {error}")))?)
}

/// Sends the whole file, also when a limit of it is refused: each is told.
async fn apply(node: &Asked, file: &Path) -> Result<(), Failure> {
    let mut refused = Vec::new();
    for limit in config::load_limits(file)?.iter() {
        match put(node, limit).await? {
            Ok(done) => print(&format!("{}: {done}\n", limit.name))?,
            Err(why) => refused.push(why),
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::no(refused.join("\n"))) }
}

/// What was done, or why it was refused.
async fn put(node: &Asked, limit: &Limit) -> Result<Result<&'static str, String>, Failure> {
    let path = format!("/v1/limits/{}", limit.name);
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let body = LimitSpec::canonical(limit);
    let answer = node.client.send(Method::PUT, &path, headers, body.into()).await.map_err(Failure::no)?;
    Ok(match answer.status {
        StatusCode::CREATED => Ok("made"),
        StatusCode::OK => Ok("changed"),
        _ => Err(format!("{}: {}", limit.name, problem(&answer))),
    })
}

async fn delete(node: &Asked, name: &str) -> Result<(), Failure> {
    let path = format!("/v1/limits/{}", in_path(name));
    let answer = node.client.send(Method::DELETE, &path, HeaderMap::new(), Bytes::new()).await.map_err(Failure::no)?;
    match answer.status {
        StatusCode::NO_CONTENT => print(&format!("{name}: deleted\n")),
        _ => Err(Failure::no(problem(&answer))),
    }
}

/// A name in a path: what no name has is escaped, so that the node tells what is wrong with it.
fn in_path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
