//! The second half of reading a configuration: opening the files that it names.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::draft::{Draft, Gossip, Http, Tls};
use super::identity::IdentityWatcher;
use super::problem::Problems;
use super::section::FileField;
use crate::id::NodeName;
use crate::node::{Cluster, RING_BYTES, Settings};
use crate::{api, cert};

/// The largest token file that is read, bytes.
const MAX_TOKEN_FILE_BYTES: u64 = 64 * 1024;
/// Characters of a bearer token.
const TOKEN_LENGTH: std::ops::RangeInclusive<usize> = 16..=4096;

/// Opens what `draft` names, relative to `base`. None: a problem was reported.
pub(super) fn open(draft: Draft, base: &Path, problems: &Problems) -> Option<(Settings, Option<IdentityWatcher>)> {
    let http = open_http(draft.http, base, problems);
    let (cluster, watcher) = match draft.gossip {
        None => (None, None),
        Some(gossip) => open_gossip(gossip, &draft.name, base, problems).map(|(c, w)| (Some(c), Some(w)))?,
    };
    let settings = Settings {
        name: draft.name,
        region: draft.region,
        engine: draft.engine,
        http,
        cluster,
        limits: draft.limits,
        journal_flush: draft.journal_flush,
        shutdown_timeout: draft.shutdown_timeout,
    };
    Some((settings, watcher))
}

fn open_http(http: Http, base: &Path, problems: &Problems) -> api::Settings {
    let Http { token_file, max_body, denied_status, .. } = http;
    let token = token_file.and_then(|field| {
        let path = resolve(base, &field.path);
        read_token(&path).map_err(|what| problems.add(field.place, field.field, what)).ok()
    });
    api::Settings { max_body, denied_status, token }
}

/// The bearer token that a file holds: of a node, or of who asks it.
///
/// # Errors
/// What is wrong, beginning with the file's name.
pub fn read_token(file: &Path) -> Result<String, String> {
    let token = read_bounded(file, MAX_TOKEN_FILE_BYTES).and_then(token);
    token.map_err(|what| format!("{}: {what}", file.display()))
}

fn token(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).unwrap_or_default();
    let token = text.trim();
    if token.is_empty() {
        return Err("holds no token: write one line of 16 or more letters and digits".to_owned());
    }
    if !TOKEN_LENGTH.contains(&token.len()) || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("must hold one token: 16 to 4096 printable ASCII characters without spaces".to_owned());
    }
    Ok(token.to_owned())
}

/// None: a problem was reported.
fn open_gossip(
    gossip: Gossip,
    name: &NodeName,
    base: &Path,
    problems: &Problems,
) -> Option<(Cluster, IdentityWatcher)> {
    let Gossip { listen, seeds, interval, sync_timeout, tls } = gossip;
    let resolved = |field: FileField| FileField { path: resolve(base, &field.path), ..field };
    let Tls { ca, cert, key, secret } = tls?;
    let tls = Tls { ca: resolved(ca), cert: resolved(cert), key: resolved(key), secret: resolved(secret) };
    let secret = cert::read_secret(&tls.secret.path)
        .map_err(|error| problems.add(tls.secret.place.clone(), tls.secret.field.clone(), error.to_string()));
    let (identity, watcher) = IdentityWatcher::start(tls, name, problems)?;
    Some((
        Cluster { listen, seeds, interval, sync_timeout, ring_bytes: RING_BYTES, secret: secret.ok()?, identity },
        watcher,
    ))
}

/// A path as the file has it: relative to the file's folder.
pub(super) fn resolve(base: &Path, path: &Path) -> PathBuf {
    base.join(path)
}

/// All of a file of at most `most` bytes.
pub(super) fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(cannot)?.take(most + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > most {
        return Err(format!("is larger than {most} bytes"));
    }
    Ok(bytes)
}
