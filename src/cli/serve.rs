//! `tidegate serve`: a node from its start to its stop.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tracing::info;

use super::reload::Reload;
use super::{Failure, print};
use crate::config::Config;
use crate::journal::SledStore;
use crate::node::{self, JournalRunner, Node, Parts, SystemClock};
use crate::telemetry;
use crate::transport::UdpNetwork;

/// How often the files are looked at that may change while the node runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is logged when nothing else is asked for.
const LOG_FILTER: &str = "info";

/// Runs a node until a signal stops it.
pub(super) async fn serve(file: Option<&Path>, exit_with_stdin: bool) -> Result<(), Failure> {
    let Config { settings, http_listen, data_dir, limits_watcher, identity_watcher } =
        Config::load(file, std::env::vars_os())?;
    telemetry::init_logs(LOG_FILTER).map_err(Failure::cannot)?;
    // From here on a signal means what it should, also one that comes before the node is up.
    let mut signals = Signals::new(exit_with_stdin)?;

    let http = TcpListener::bind(http_listen).await.map_err(|error| {
        Failure::cannot(format!(
            "{http_listen}: HTTP cannot listen here: {error}; free it or set http.listen to another"
        ))
    })?;
    let address = http.local_addr().map_err(Failure::cannot)?;
    let store = SledStore::open(&data_dir).map_err(Failure::cannot)?;
    let parts = Parts {
        clock: Arc::new(SystemClock::new()),
        network: Arc::new(UdpNetwork),
        store: Box::new(store),
        rng: StdRng::from_os_rng(),
        journal: JournalRunner::Thread,
    };
    // An answer is one small packet: waiting to fill it only delays it.
    let http = http.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let (name, region, limits) = (settings.name.clone(), settings.region.clone(), settings.limits.len());
    let mut node = node::start(settings, parts, http).await.map_err(Failure::cannot)?;
    let reload = Reload { limits: limits_watcher, identity: identity_watcher };

    info!(
        "tidegate {}: node {name} in region {region}, {}, data in {}, limits: {limits}",
        env!("CARGO_PKG_VERSION"),
        node.gossip_addr().map_or_else(|| "no peers".to_owned(), |address| format!("peers on udp://{address}")),
        data_dir.display()
    );
    if file.is_none() {
        info!("no config: one limit, \"default\": 100 in 60s, for every key");
    }
    print(&format!("listening on http://{address}\n"))?;
    let ended = run(&mut node, reload, &mut signals).await;
    tokio::select! {
        () = node.stop() => ended,
        () = signals.interrupted() => Err(Failure::no("SIGINT while stopping: ended at once, without a last flush")),
    }
}

/// Keeps the node as its files have it, until a signal to stop.
async fn run(node: &mut Node, mut reload: Reload, signals: &mut Signals) -> Result<(), Failure> {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let asked = tokio::select! {
            heard = signals.next() => match heard {
                Heard::Stop => {
                    info!("stopping");
                    return Ok(());
                }
                Heard::Reload => true,
            },
            _ = look.tick() => false,
            why = node.failed() => return Err(Failure::no(format!("a bug, the node stops: {why}"))),
        };
        // Disks may be slow, and a file may hold ten thousand limits.
        let looked = tokio::task::spawn_blocking(move || {
            let changes = reload.look(asked);
            (reload, changes)
        });
        let (held, changes) = looked
            .await
            .map_err(|error| Failure::no(format!("a bug, the node stops: reading its files again: {error}")))?;
        reload = held;
        reload.apply(node, changes);
    }
}

/// What a signal asks for.
enum Heard {
    /// SIGTERM, SIGINT, or the end of standard input where that was asked for.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals a node answers to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    stdin: Option<JoinHandle<()>>,
}

impl Signals {
    fn new(exit_with_stdin: bool) -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::cannot(format!("signals cannot be heard: {error}")));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            stdin: exit_with_stdin.then(|| tokio::task::spawn_blocking(read_stdin_to_its_end)),
        })
    }

    /// The next one.
    async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.terminate.recv() => Heard::Stop,
            _ = self.interrupt.recv() => Heard::Stop,
            _ = self.hangup.recv() => Heard::Reload,
            () = ended(&mut self.stdin) => Heard::Stop,
        }
    }

    /// The next SIGINT: somebody at a terminal has lost patience. A second SIGTERM says nothing new: GNU `timeout` always
    /// sends two.
    async fn interrupted(&mut self) {
        if self.interrupt.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

fn read_stdin_to_its_end() {
    // An error is an end too.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
}

/// Waits for a task once; afterwards, and where there is none, for ever.
async fn ended(task: &mut Option<JoinHandle<()>>) {
    match task {
        Some(running) => {
            let _ = running.await;
            *task = None;
        }
        None => std::future::pending().await,
    }
}
