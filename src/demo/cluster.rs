//! The demo's nodes: child processes of this same program, each with its own config, certificate and folder, that know
//! each other only through relays.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path as FilePath, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::SeedableRng;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Options;
use super::files::Folder;
use super::observe;
use super::options::NODES;
use super::relay::{Cuts, Path, Relay};
use crate::cert;
use crate::id::NodeName;

/// How long the nodes may take until all of them answer and hear each other.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How long they may take to stop; they are told to take less.
const STOP_DEADLINE: Duration = Duration::from_secs(8);
/// Between two looks at nodes that are coming up.
const START_POLL: Duration = Duration::from_millis(50);
/// What `serve` prints before its address.
const LISTENING: &str = "listening on http://";
/// Lines of a log that are shown when its node failed.
const LOG_LINES: usize = 12;

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No folder, no file, no socket, no process.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// No certificates.
    #[error("cannot make the certificates: {0}")]
    Certificates(#[from] cert::CertError),
    /// A node ended before it served.
    #[error("{name} did not start; the end of its log:\n{log}")]
    Node {
        /// Which.
        name: &'static str,
        /// The end of its log.
        log: String,
    },
    /// The nodes run but not together.
    #[error("the nodes did not come together within {} s: {why}", START_DEADLINE.as_secs())]
    Late {
        /// What was missing.
        why: String,
    },
}

fn cannot(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    |source| StartError::Io { what: what.into(), source }
}

/// A running node.
#[derive(Debug)]
struct Node {
    child: Child,
    http: SocketAddr,
}

/// All nodes and the relays between them. Dropping it kills the nodes; [`Cluster::stop`] is the clean way.
#[derive(Debug)]
pub(super) struct Cluster {
    // In this order: nodes are gone before their folder is.
    nodes: Vec<Node>,
    relays: JoinSet<()>,
    folder: Folder,
    cuts: Cuts,
    overflowed: Arc<AtomicU64>,
}

impl Cluster {
    /// Makes everything and waits until all nodes hear each other.
    pub(super) async fn start(options: &Options) -> Result<Self, StartError> {
        let deadline = Instant::now() + START_DEADLINE;
        let folder = Folder::create(options.keep).map_err(cannot("make a temporary folder"))?;
        let cuts = Cuts::none(options.regions);
        // Addresses must be known before the nodes are. These are given back only when every other socket of the demo
        // is bound, so that none of those can take them.
        let reserved = reserve(options.regions).map_err(cannot("reserve a UDP port"))?;
        let links = Links::bind(options, &cuts).await.map_err(cannot("bind a relay"))?;
        write_certificates(&folder, options.regions)?;
        for (node, socket) in reserved.iter().enumerate() {
            let gossip = socket.local_addr().map_err(cannot("reserve a UDP port"))?;
            let seeds = links.seeds(node).map_err(cannot("bind a relay"))?;
            folder.write_config(node, gossip, &seeds, options).map_err(cannot("write a config file"))?;
        }
        let gossip: io::Result<Vec<SocketAddr>> = reserved.iter().map(UdpSocket::local_addr).collect();
        let gossip = gossip.map_err(cannot("reserve a UDP port"))?;
        drop(reserved);

        let mut cluster = Self { nodes: Vec::new(), relays: JoinSet::new(), folder, cuts, overflowed: Arc::default() };
        links.run(&gossip, &cluster.overflowed, &mut cluster.relays);
        let mut starting = Vec::new();
        for (node, (name, _)) in NODES[..options.regions].iter().enumerate() {
            starting.push(spawn(&cluster.folder, node).map_err(cannot(format!("start {name}")))?);
        }
        for (node, mut child) in starting.into_iter().enumerate() {
            let Some(http) = address(&mut child, deadline).await else {
                return Err(cluster.failed(node));
            };
            cluster.nodes.push(Node { child, http });
        }
        cluster.wait_until_together(deadline).await?;
        Ok(cluster)
    }

    /// Where the nodes answer.
    pub(super) fn http(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.http).collect()
    }

    /// The switches of all relays.
    pub(super) fn cuts(&self) -> Cuts {
        self.cuts.clone()
    }

    /// Packets dropped by full relays so far.
    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// A node that ended although nobody asked it to, with the end of its log.
    pub(super) fn ended_by_itself(&mut self) -> Option<String> {
        let ended = |(index, node): (usize, &mut Node)| match node.child.try_wait() {
            Ok(Some(status)) => Some((index, status)),
            _ => None,
        };
        let (index, status) = self.nodes.iter_mut().enumerate().find_map(ended)?;
        let log = end_of(&self.folder.log_file(index));
        Some(format!("{} ended by itself ({status}); the end of its log:\n{log}", NODES[index].0))
    }

    /// Stops all nodes and waits for them. Returns what was not as it should be, and the folder when it stays.
    pub(super) async fn stop(mut self) -> (Vec<String>, Option<PathBuf>) {
        let deadline = Instant::now() + STOP_DEADLINE;
        // Each node was started to stop when its standard input ends: no node can outlive the demo, however that ends.
        self.nodes.iter_mut().for_each(|node| drop(node.child.stdin.take()));
        let mut problems = Vec::new();
        for (node, (name, _)) in self.nodes.iter_mut().zip(NODES) {
            match tokio::time::timeout_at(deadline, node.child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => problems.push(format!("{name} stopped with {status}")),
                Ok(Err(error)) => problems.push(format!("{name} cannot be waited for: {error}")),
                Err(_) => {
                    problems.push(format!("{name} did not stop within {} s and was killed", STOP_DEADLINE.as_secs()));
                    // It is one's own child: this fails only if it has ended after all.
                    let _ended = node.child.kill().await;
                }
            }
        }
        if !problems.is_empty() {
            self.folder.keep();
        }
        self.relays.shutdown().await;
        let kept = self.folder.is_kept().then(|| self.folder.path().to_owned());
        (problems, kept)
    }
}

impl Cluster {
    fn failed(&self, node: usize) -> StartError {
        StartError::Node { name: NODES[node].0, log: end_of(&self.folder.log_file(node)) }
    }

    /// Ready, and each connected to each: a node may be ready before it hears all.
    async fn wait_until_together(&mut self, deadline: Instant) -> Result<(), StartError> {
        let clients = observe::clients(&self.http()).map_err(|error| StartError::Late { why: error.to_string() })?;
        loop {
            let Some(why) = observe::not_together(&clients).await else { return Ok(()) };
            for node in 0..self.nodes.len() {
                if let Ok(Some(_)) = self.nodes[node].child.try_wait() {
                    return Err(self.failed(node));
                }
            }
            if Instant::now() >= deadline {
                return Err(StartError::Late { why });
            }
            tokio::time::sleep(START_POLL).await;
        }
    }
}

fn reserve(count: usize) -> io::Result<Vec<UdpSocket>> {
    (0..count).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect()
}

/// One relay for every ordered pair of nodes.
struct Links {
    /// Who dials, who is dialed, through what.
    relays: Vec<(usize, usize, Relay)>,
}

impl Links {
    async fn bind(options: &Options, cuts: &Cuts) -> io::Result<Self> {
        let mut relays = Vec::new();
        for from in 0..options.regions {
            for to in (0..options.regions).filter(|to| *to != from) {
                let path = Path { from, to, latency: options.latency, cuts: cuts.clone() };
                relays.push((from, to, Relay::bind(path).await?));
            }
        }
        Ok(Self { relays })
    }

    /// What a node dials.
    fn seeds(&self, node: usize) -> io::Result<Vec<SocketAddr>> {
        self.relays.iter().filter(|(from, ..)| *from == node).map(|(.., relay)| relay.addr()).collect()
    }

    fn run(self, gossip: &[SocketAddr], overflowed: &Arc<AtomicU64>, tasks: &mut JoinSet<()>) {
        for (_, to, relay) in self.relays {
            relay.run(gossip[to], overflowed, tasks);
        }
    }
}

fn write_certificates(folder: &Folder, nodes: usize) -> Result<(), StartError> {
    let rng = &mut rand::rngs::StdRng::from_os_rng();
    let now_ns = observe::unix_ns();
    let dir = folder.path();
    let authority = cert::Authority::generate(rng, now_ns)?;
    cert::write_new(&dir.join(cert::CA_FILE), authority.cert_pem.as_bytes(), false)?;
    let secret = cert::new_secret(rng);
    cert::write_new(&dir.join(cert::SECRET_FILE), cert::secret_text(&secret).as_bytes(), true)?;
    for (name, _) in &NODES[..nodes] {
        let node = NodeName::new(name).expect("the names of the demo's nodes are node names");
        let issued = authority.issue(&node, &[], rng, now_ns)?;
        cert::write_new(&dir.join(format!("{name}.pem")), issued.cert_pem.as_bytes(), false)?;
        cert::write_new(&dir.join(format!("{name}.key")), issued.key_pem.as_bytes(), true)?;
    }
    Ok(())
}

fn spawn(folder: &Folder, node: usize) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // What is set for a node of the user's own is not meant for these.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    command
        .args(["serve", "--exit-with-stdin", "--config"])
        .arg(folder.config_file(node))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(folder.log_file(node))?)
        // Ctrl-C in the terminal is for the demo alone; it then stops its nodes in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// The HTTP address that a node prints. None: it ended or said nothing in time.
async fn address(child: &mut Child, deadline: Instant) -> Option<SocketAddr> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    let find = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(at) = line.find(LISTENING) {
                let rest = &line[at + LISTENING.len()..];
                return rest.split_whitespace().next()?.trim_end_matches('/').parse().ok();
            }
        }
        None
    };
    let found = tokio::time::timeout_at(deadline, find).await.ok()?;
    tokio::spawn(drain(lines.into_inner()));
    found
}

/// Reads on, so that a node that prints more never waits for the demo.
async fn drain(mut stdout: BufReader<ChildStdout>) {
    let _ended = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
}

fn end_of(log: &FilePath) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    if last.is_empty() { "(nothing)".to_owned() } else { last.iter().map(|line| format!("  {line}\n")).collect() }
}
