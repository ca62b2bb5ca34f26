//! The demo from beginning to end: brings the cluster up, offers load, shows what happens, lets the counts settle,
//! stops everything and says what it came to.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cluster::{Cluster, StartError};
use super::load::Load;
use super::observe::{self, Seen, unix_ns};
use super::options::{BadOptions, NODES, Options, as_written};
use super::partition::{Event, HEAL_GRACE, Partition};
use super::screen::{Key, Screen, print};
use super::signals::Signals;
use super::summary::{Settled, Summary};
use super::table::Frame;
use super::windows::Windows;
use crate::client::{Client, ClientError};

/// Between two redraws, and two looks at plan and processes.
const TICK: Duration = Duration::from_millis(100);
/// Between two plain lines.
const PLAIN_PERIOD: Duration = Duration::from_secs(1);
/// Between two looks at the nodes.
const OBSERVE_PERIOD: Duration = Duration::from_millis(250);
/// How long the counts may take to become equal after the load; a second is usual. More after a heal.
const AGREE_DEADLINE: Duration = Duration::from_secs(5);
/// Events that stay on the table.
const NEWS: usize = 5;

/// Why there was no demo, or none to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The options make no demo.
    #[error(transparent)]
    Options(#[from] BadOptions),
    /// The cluster did not come up.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A node's address is none.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A signal came before the cluster was up.
    #[error("stopped before the cluster was up")]
    Stopped,
    /// Signals cannot be caught, or standard output cannot be written.
    #[error("standard output or signals: {0}")]
    Io(#[from] io::Error),
}

/// What the demo came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether all nodes had the same counts after the load.
    pub regions_agree: bool,
    /// Whether every window's total stayed within the bound.
    pub within_bound: bool,
    /// What else was wrong.
    pub problems: Vec<String>,
}

impl Verdict {
    /// 0: all is as it should be; 1: it is not.
    pub fn exit_code(&self) -> u8 {
        u8::from(!(self.regions_agree && self.within_bound && self.problems.is_empty()))
    }
}

/// Runs the demo until its time is up or somebody stops it. Whatever it returns, its nodes are gone by then.
pub async fn run(options: Options) -> Result<Verdict, DemoError> {
    options.check()?;
    let mut signals = Signals::install()?;
    print(&introduction(&options))?;
    let begun = Instant::now();
    let cluster = tokio::select! {
        cluster = Cluster::start(&options) => cluster?,
        () = signals.stop() => return Err(DemoError::Stopped),
    };
    print(&up(&cluster, begun.elapsed()))?;

    let mut show = Show::new(&options, cluster)?;
    let watched = show.watch(&mut signals).await;
    let settled = show.settle(&mut signals).await;
    let (verdict, lines) = show.finish(settled.as_ref()).await;
    match watched.and_then(|()| print(&lines)) {
        // Who stopped reading (`| head`) has seen enough: that stops the demo and is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(verdict),
    }
}

fn introduction(options: &Options) -> Vec<String> {
    let window = as_written(options.window);
    let rate = options.limit * options.load * 10_000 / options.window.as_millis() as u64;
    vec![
        format!(
            "tidegate demo: {} nodes in {0} regions hold one limit together: {} requests per {window}.",
            options.regions, options.limit
        ),
        format!(
            "Every node is a process that decides alone and at once; what it admits, it tells the others over links of {}",
            as_written(options.latency)
        ),
        format!(
            "each way. Each region is offered {}.{} requests a second, {} times the whole limit, for the same key.",
            rate / 10,
            rate % 10,
            options.load
        ),
        "Watch the total admitted in each window against the limit, and each node's count of the key.".to_owned(),
        String::new(),
    ]
}

fn up(cluster: &Cluster, after: Duration) -> Vec<String> {
    let mut lines = vec![format!("all nodes are up and hear each other after {:.1} s:", after.as_secs_f64())];
    lines.extend(cluster.http().iter().zip(NODES).map(|(http, (name, _))| format!("  {name}  http://{http}")));
    lines.push(String::new());
    lines
}

/// The running demo.
struct Show<'a> {
    options: &'a Options,
    cluster: Cluster,
    clients: Vec<Client>,
    books: Arc<Mutex<Windows>>,
    partition: Partition,
    seen: Vec<Seen>,
    news: VecDeque<String>,
    began: Instant,
    load_ns: (u64, u64),
    problems: Vec<String>,
}

impl<'a> Show<'a> {
    fn new(options: &'a Options, cluster: Cluster) -> Result<Self, DemoError> {
        let now_ns = unix_ns();
        Ok(Self {
            options,
            clients: observe::clients(&cluster.http())?,
            books: Arc::new(Mutex::new(Windows::new(options))),
            partition: Partition::new(options.regions, cluster.cuts(), &options.cuts),
            seen: vec![Err("not asked yet".to_owned()); options.regions],
            news: VecDeque::new(),
            began: Instant::now(),
            load_ns: (now_ns, now_ns),
            problems: Vec::new(),
            cluster,
        })
    }

    /// Offers load and shows what happens, until the time is up, somebody stops it, or a node ends by itself.
    async fn watch(&mut self, signals: &mut Signals) -> io::Result<()> {
        let mut screen = Screen::open();
        if !screen.is_live() {
            print(&[
                "each line: the window's total | per region admitted+denied in it, the node's count of the key, its lag",
            ])?;
        }
        let (mut observed, _observer) = observer(self.clients.clone());
        let load = Load::start(&self.clients, self.options.pace_ns(), &self.books);
        let shown = self.show_until_stopped(&mut screen, &mut observed, signals).await;
        load.stop().await;
        self.load_ns.1 = unix_ns();
        shown
    }

    async fn show_until_stopped(
        &mut self,
        screen: &mut Screen,
        observed: &mut watch::Receiver<(Instant, Vec<Seen>)>,
        signals: &mut Signals,
    ) -> io::Result<()> {
        let mut tick = tokio::time::interval(TICK);
        let mut plain_due = self.began + PLAIN_PERIOD;
        loop {
            let events = tokio::select! {
                _ = tick.tick() => self.partition.follow_plan(self.began.elapsed(), Instant::now()),
                Ok(()) = observed.changed() => {
                    let (asked, seen) = observed.borrow_and_update().clone();
                    self.seen = seen;
                    self.partition.learn(&self.seen, asked)
                }
                key = screen.key() => match key {
                    Key::Toggle(region) => self.partition.toggle(region, Instant::now()).into_iter().collect(),
                    Key::Stop => return Ok(()),
                },
                () = signals.stop() => return Ok(()),
            };
            self.books.lock().set_apart(unix_ns(), &self.partition.apart());
            self.tell(screen, &events)?;
            if screen.is_live() || Instant::now() >= plain_due {
                plain_due += PLAIN_PERIOD;
                screen.show(&self.frame())?;
            }
            if let Some(problem) = self.cluster.ended_by_itself() {
                self.problems.push(problem);
                return Ok(());
            }
            if self.options.run_for.is_some_and(|run_for| self.began.elapsed() >= run_for) {
                return Ok(());
            }
        }
    }

    /// On a terminal news have their place under the table.
    fn tell(&mut self, screen: &Screen, events: &[Event]) -> io::Result<()> {
        for event in events {
            let text = format!("{:.1} s: {}", self.began.elapsed().as_secs_f64(), event.text());
            if !screen.is_live() {
                print(&[format!("--- {text}")])?;
            }
            if self.news.len() >= NEWS {
                self.news.pop_front();
            }
            self.news.push_back(text);
        }
        Ok(())
    }

    fn frame(&self) -> Frame {
        let now_ns = unix_ns();
        let mut books = self.books.lock();
        Frame {
            elapsed: self.began.elapsed(),
            now_ns,
            window_ns: self.options.window_ns(),
            window: books.current(now_ns),
            worst: books.worst().cloned(),
            bound: books.bound(),
            seen: self.seen.clone(),
            cut: (0..self.options.regions).map(|region| self.partition.is_cut(region)).collect(),
            news: self.news.iter().cloned().collect(),
        }
    }

    /// Heals what is cut and waits for the nodes' counts to become equal. None: a signal came first.
    async fn settle(&mut self, signals: &mut Signals) -> Option<Settled> {
        let stopped = Instant::now();
        self.partition.heal_all(stopped);
        let patience = if self.partition.apart().contains(&true) { HEAL_GRACE } else { AGREE_DEADLINE };
        // What was counted in the last window still counts in the next: equal because forgotten would prove nothing.
        let deadline = stopped + patience.min(self.options.window);
        tokio::select! {
            (agree, seen) = observe::settle(&self.clients, deadline) => {
                Some(Settled { agree, after: stopped.elapsed(), seen })
            }
            () = signals.stop() => None,
        }
    }

    /// Stops the nodes. Returns the verdict and the summary.
    async fn finish(mut self, settled: Option<&Settled>) -> (Verdict, Vec<String>) {
        let overflowed = self.cluster.overflowed();
        let (problems, kept) = self.cluster.stop().await;
        self.problems.extend(problems);
        let windows = self.books.lock();
        let (options, load_ns, problems) = (self.options, self.load_ns, &self.problems);
        let summary = Summary { options, windows: &windows, settled, load_ns, overflowed, problems };
        let mut lines = summary.lines();
        lines.extend(kept.map(|kept| format!("kept: {}", kept.display())));
        (summary.verdict(), lines)
    }
}

/// Looks at the nodes again and again for as long as the second part of the result lives.
fn observer(clients: Vec<Client>) -> (watch::Receiver<(Instant, Vec<Seen>)>, JoinSet<()>) {
    let (sender, receiver) = watch::channel((Instant::now(), Vec::new()));
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut period = tokio::time::interval(OBSERVE_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            let asked = Instant::now();
            let seen = observe::look(&clients).await;
            if sender.send((asked, seen)).is_err() {
                return;
            }
        }
    });
    (receiver, task)
}
