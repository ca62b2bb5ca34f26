//! The demo's folder: certificates, one config file a node, and later the nodes' data and logs. Removed at the end.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use super::options::{NODES, Options, as_written};

/// The one limit of the demo.
pub(super) const LIMIT: &str = "demo";
/// The one key that all regions count on.
pub(super) const KEY: &str = "everyone";
/// How long a node may take to stop.
const SHUTDOWN_TIMEOUT: &str = "3s";

/// A folder that goes when it is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// A new one for this user only, among the system's temporary files.
    pub(super) fn create(keep: bool) -> io::Result<Self> {
        let name = format!("tidegate-demo-{}-{:08x}", std::process::id(), StdRng::from_os_rng().next_u32());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, keep })
    }

    /// Where.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// It stays after all, for whoever wants to see what went wrong.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }

    /// Whether it stays.
    pub(super) fn is_kept(&self) -> bool {
        self.keep
    }

    /// A node's config file.
    pub(super) fn config_file(&self, node: usize) -> PathBuf {
        self.path.join(format!("{}.toml", NODES[node].0))
    }

    /// What a node says on its standard error.
    pub(super) fn log_file(&self, node: usize) -> PathBuf {
        self.path.join(format!("{}.log", NODES[node].0))
    }

    /// Writes a node's config file. Its seeds are relays: it knows no peer's own address.
    pub(super) fn write_config(
        &self,
        node: usize,
        gossip: SocketAddr,
        seeds: &[SocketAddr],
        options: &Options,
    ) -> io::Result<()> {
        fs::write(self.config_file(node), config(node, gossip, seeds, options))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            // Where standard error cannot be written either, nobody is left to be told.
            let _ = writeln!(io::stderr(), "cannot remove {}: {error}", self.path.display());
        }
    }
}

fn config(node: usize, gossip: SocketAddr, seeds: &[SocketAddr], options: &Options) -> String {
    let (name, region) = NODES[node];
    let seeds: Vec<String> = seeds.iter().map(|seed| format!("\"{seed}\"")).collect();
    let mut text = format!("shutdown_timeout = \"{SHUTDOWN_TIMEOUT}\"\n\n");
    let mut section = |lines: std::fmt::Arguments<'_>| text.write_fmt(lines).expect("a String takes everything");
    section(format_args!("[node]\nname = \"{name}\"\nregion = \"{region}\"\ndata_dir = \"{name}-data\"\n\n"));
    section(format_args!("[http]\nlisten = \"127.0.0.1:0\"\n\n"));
    section(format_args!("[gossip]\nlisten = \"{gossip}\"\nseeds = [{}]\n\n", seeds.join(", ")));
    section(format_args!(
        "[gossip.tls]\nca_file = \"ca.pem\"\ncert_file = \"{name}.pem\"\nkey_file = \"{name}.key\"\n\
         secret_file = \"cluster.secret\"\n\n"
    ));
    section(format_args!(
        "[[limits]]\nname = \"{LIMIT}\"\nalgorithm = \"sliding_window\"\nlimit = {}\nwindow = \"{}\"\n",
        options.limit,
        as_written(options.window)
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_names_relays_as_seeds() {
        let seeds = ["127.0.0.1:2".parse().unwrap(), "127.0.0.1:3".parse().unwrap()];
        let text = config(1, "127.0.0.1:1".parse().unwrap(), &seeds, &Options::default());
        let value: toml::Table = text.parse().unwrap();
        assert_eq!(value["node"]["name"].as_str(), Some("us-1"));
        assert_eq!(value["gossip"]["listen"].as_str(), Some("127.0.0.1:1"));
        assert_eq!(value["gossip"]["seeds"], vec!["127.0.0.1:2", "127.0.0.1:3"].into());
        assert_eq!(value["gossip"]["tls"]["key_file"].as_str(), Some("us-1.key"));
        assert_eq!(value["limits"][0]["limit"].as_integer(), Some(100));
        assert_eq!(value["limits"][0]["window"].as_str(), Some("10s"));
    }

    #[test]
    fn the_folder_goes_unless_kept() {
        let folder = Folder::create(false).unwrap();
        let path = folder.path().to_owned();
        folder.write_config(0, "127.0.0.1:1".parse().unwrap(), &[], &Options::default()).unwrap();
        assert!(folder.config_file(0).exists());
        drop(folder);
        assert!(!path.exists());
        let mut kept = Folder::create(false).unwrap();
        kept.keep();
        let path = kept.path().to_owned();
        drop(kept);
        assert!(path.exists());
        fs::remove_dir_all(path).unwrap();
    }
}
