//! The writer over a small model of a node: cells that only grow, a sequence of changes, a queue.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::id::NodeName;
use crate::journal::{DiskFault, MAX_PENDING_BYTES, MemoryDisk, Pending, SledStore};
use crate::time::MS;

const FAR_NS: u64 = u64::MAX / 2;
const START_NS: u64 = 1_000 * SECOND;

struct Model(Mutex<Inner>);

struct Inner {
    cells: BTreeMap<u64, u64>,
    /// The cell that was changed at each seq, from 1.
    history: Vec<(u64, u64)>,
    pending: Pending,
    mono_ns: u64,
    /// By how much the sweep lags behind.
    unswept_ns: u64,
}

fn own() -> ReplicaId {
    ReplicaId { node: NodeName::new("eu-1").unwrap(), generation: 1, nonce: 1 }
}

fn record(key: u64, value: u64) -> Record {
    Record { expires_ns: FAR_NS, bytes: [key.to_le_bytes(), value.to_le_bytes()].concat() }
}

fn sound(bytes: &[u8]) -> bool {
    bytes.len() >= 16
}

impl Model {
    fn new(cells: BTreeMap<u64, u64>, history: Vec<(u64, u64)>, status: &Arc<Status>) -> Arc<Self> {
        let pending = Pending::new(status.clone());
        Arc::new(Self(Mutex::new(Inner { cells, history, pending, mono_ns: START_NS, unswept_ns: 0 })))
    }

    fn spend(&self, key: u64) {
        let mut inner = self.0.lock();
        let cell = inner.cells.entry(key).or_default();
        *cell += 1;
        let value = *cell;
        inner.history.push((key, value));
        inner.pending.push(vec![record(key, value)]);
    }

    fn pass(&self, ns: u64) {
        self.0.lock().mono_ns += ns;
    }
}

impl Source for Model {
    fn now(&self) -> Now {
        let mono_ns = self.0.lock().mono_ns;
        Now { slot_ns: mono_ns, wall_ns: mono_ns, mono_ns }
    }
    fn swept_ns(&self) -> u64 {
        let inner = self.0.lock();
        inner.mono_ns - inner.unswept_ns
    }
    fn cut(&self) -> Result<Batch, Overflow> {
        let mut inner = self.0.lock();
        let records = inner.pending.take()?;
        let have = Some(vec![(own(), inner.history.len() as u64)]);
        Ok(Batch { records, have, slot_clock_ns: inner.mono_ns, generation: 1, ..Batch::default() })
    }
    fn pause(&self) {
        self.0.lock().pending.pause();
    }
    fn resume(&self) {
        self.0.lock().pending.resume();
    }
    fn export(&self, from: ExportCursor) -> (Vec<Record>, Option<ExportCursor>) {
        let inner = self.0.lock();
        let piece = inner.cells.range(u64::from(from.entry)..).take(2).map(|(key, value)| (*key, *value));
        let piece: Vec<_> = piece.collect();
        let next = piece.last().map(|(key, _)| ExportCursor { shard: 0, entry: *key as u32 + 1 });
        (piece.into_iter().map(|(key, value)| record(key, value)).collect(), next)
    }
}

/// What the records of a store come to when merged, and how far it says they reach.
fn merged(store: &mut dyn Store) -> (BTreeMap<u64, u64>, usize) {
    let found = store.recover(&own().node, START_NS, sound).unwrap();
    let mut cells = BTreeMap::new();
    for bytes in &found.records {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let cell: &mut u64 = cells.entry(number(0)).or_default();
        *cell = (*cell).max(number(8));
    }
    (cells, found.have.first().map_or(0, |(_, seq)| *seq as usize))
}

fn writer(disk: &MemoryDisk, model: &Arc<Model>, status: &Arc<Status>) -> Writer {
    let mut store = disk.open().unwrap();
    store.recover(&own().node, START_NS, sound).unwrap();
    Writer::new(Box::new(store), model.clone(), status.clone())
}

/// A node through random spends, faults and crashes of its disk.
fn random_run(seed: u64) -> (u64, u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let disk = MemoryDisk::new();
    let (mut rewrites, mut crashes) = (0, 0);
    let mut status = Arc::new(Status::default());
    let mut model = Model::new(BTreeMap::new(), Vec::new(), &status);
    let mut journal = writer(&disk, &model, &status);
    for _ in 0..400 {
        match rng.random_range(0..100) {
            0..60 => model.spend(rng.random_range(0..20)),
            60..85 => journal.step(),
            85..92 => model.pass(rng.random_range(0..2 * SECOND)),
            92..94 => disk.set_fault(Some(DiskFault::Full)),
            94..96 => disk.set_fault(Some(DiskFault::Failing)),
            96..99 => disk.set_fault(None),
            _ => {
                crashes += 1;
                rewrites += status.figures().rewrites;
                disk.set_fault(None);
                disk.crash(&mut rng);
                let (cells, reach) = merged(&mut disk.open().unwrap());
                let mut history = model.0.lock().history.clone();
                assert!(reach <= history.len(), "seed {seed}");
                history.truncate(reach);
                for (seq, (key, value)) in history.iter().enumerate() {
                    let there = cells.get(key).copied().unwrap_or(0);
                    assert!(there >= *value, "seed {seed}: have says {reach}, change {seq} of {key} is not there");
                }
                status = Arc::new(Status::default());
                model = Model::new(cells, history, &status);
                journal = writer(&disk, &model, &status);
            }
        }
    }
    disk.set_fault(None);
    for _ in 0..100 {
        model.pass(SECOND);
        journal.step();
    }
    assert_eq!(status.degraded(), None, "seed {seed}");
    rewrites += status.figures().rewrites;
    drop(journal);
    let (cells, reach) = merged(&mut disk.open().unwrap());
    let inner = model.0.lock();
    assert_eq!((&cells, reach), (&inner.cells, inner.history.len()), "seed {seed}");
    (rewrites, crashes)
}

#[test]
fn have_is_never_ahead_of_the_records_and_all_is_there_once_the_disk_is_well() {
    let (mut rewrites, mut crashes) = (0, 0);
    for seed in 0..400 {
        let run = random_run(seed);
        (rewrites, crashes) = (rewrites + run.0, crashes + run.1);
    }
    assert!(rewrites > 200 && crashes > 200, "{rewrites} rewrites, {crashes} crashes");
}

#[test]
fn a_disk_that_fails_is_told_retried_ever_more_seldom_and_written_anew() {
    let (disk, status) = (MemoryDisk::new(), Arc::new(Status::default()));
    let model = Model::new(BTreeMap::new(), Vec::new(), &status);
    let mut journal = writer(&disk, &model, &status);
    model.spend(1);
    journal.step();
    disk.set_fault(Some(DiskFault::Full));
    model.spend(2);
    for _ in 0..300 {
        journal.step();
        model.spend(3);
        model.pass(100 * MS);
    }
    let figures = status.figures();
    // At 0, 1, 3, 7, 15 and 23 seconds.
    assert_eq!((figures.commits, figures.failures), (1, 6));
    assert!(figures.degraded.is_some_and(|reason| reason.contains("no space left")));
    assert_eq!(model.0.lock().pending.bytes(), 0, "queues nothing");
    disk.set_fault(None);
    for _ in 0..90 {
        model.pass(100 * MS);
        journal.step();
    }
    let figures = status.figures();
    assert_eq!((figures.degraded, figures.rewrites), (None, 1));
    drop(journal);
    let (cells, reach) = merged(&mut disk.open().unwrap());
    assert_eq!((cells, reach), (model.0.lock().cells.clone(), 302));
}

#[test]
fn an_overflow_is_a_failure_without_a_wait() {
    let (disk, status) = (MemoryDisk::new(), Arc::new(Status::default()));
    let model = Model::new(BTreeMap::new(), Vec::new(), &status);
    let mut journal = writer(&disk, &model, &status);
    model.spend(1);
    let big = Record { expires_ns: FAR_NS, bytes: vec![0; MAX_PENDING_BYTES] };
    model.0.lock().pending.push(vec![big]);
    assert!(status.degraded().is_some(), "before the writer knows");
    for _ in 0..3 {
        journal.step();
    }
    assert_eq!((status.degraded(), status.figures().rewrites), (None, 1));
    drop(journal);
    assert_eq!(merged(&mut disk.open().unwrap()), (BTreeMap::from([(1, 1)]), 1));
}

#[test]
fn an_idle_node_writes_nothing_and_what_expired_goes() {
    let (disk, status) = (MemoryDisk::new(), Arc::new(Status::default()));
    let model = Model::new(BTreeMap::new(), Vec::new(), &status);
    let mut journal = writer(&disk, &model, &status);
    let over = Record { expires_ns: START_NS + 5 * SECOND, ..record(1, 1) };
    model.0.lock().pending.push(vec![over]);
    journal.step();
    let commits = status.figures().commits;
    for _ in 0..70 {
        model.pass(100 * MS);
        journal.step();
    }
    let figures = status.figures();
    assert_eq!((figures.commits, figures.expired, figures.held_bytes), (commits, 1, 0));
}

/// A bucket's slots leave a base, which the sweep makes: until it is written they stay.
#[test]
fn what_was_not_swept_stays() {
    let (disk, status) = (MemoryDisk::new(), Arc::new(Status::default()));
    let model = Model::new(BTreeMap::new(), Vec::new(), &status);
    let mut journal = writer(&disk, &model, &status);
    let over = Record { expires_ns: START_NS + 5 * SECOND, ..record(1, 1) };
    model.0.lock().pending.push(vec![over]);
    model.0.lock().unswept_ns = 3 * SECOND;
    for (passed, expired) in [(0, 0), (7, 0), (9, 1)] {
        model.0.lock().mono_ns = START_NS + passed * SECOND;
        journal.step();
        assert_eq!(status.figures().expired, expired, "after {passed} s");
    }
}

#[test]
fn a_journal_that_grew_is_compacted() {
    let (disk, status) = (MemoryDisk::new(), Arc::new(Status::default()));
    let model = Model::new(BTreeMap::new(), Vec::new(), &status);
    let mut journal = writer(&disk, &model, &status);
    let round = COMPACT_ABOVE_BYTES as usize / 16;
    for _ in 0..20 {
        model.spend(1);
        // Superseded as soon as it is written.
        let mut filler = record(1, 0);
        filler.bytes.resize(round, 0);
        model.0.lock().pending.push(vec![filler]);
        journal.step();
        assert!(status.figures().held_bytes <= COMPACT_ABOVE_BYTES + round as u64 + 320);
    }
    let figures = status.figures();
    assert_eq!((figures.rewrites, figures.degraded), (1, None));
    model.spend(2);
    journal.finish();
    drop(journal);
    assert_eq!(merged(&mut disk.open().unwrap()), (BTreeMap::from([(1, 20), (2, 1)]), 21));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a deadline for a real thread")]
fn the_thread_writes_and_stops_after_a_last_round() {
    let (dir, status) = (tempfile::tempdir().unwrap(), Arc::new(Status::default()));
    let model = Model::new(BTreeMap::new(), Vec::new(), &status);
    let mut store = SledStore::open(dir.path()).unwrap();
    store.recover(&own().node, START_NS, sound).unwrap();
    let thread = Writer::new(Box::new(store), model.clone(), status.clone()).spawn(Duration::from_millis(1)).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    model.spend(1);
    while status.figures().records < 1 {
        assert!(std::time::Instant::now() < deadline, "the thread does not write");
        thread::yield_now();
    }
    model.spend(1);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(thread.stop());
    let mut store = SledStore::open(dir.path()).expect("closed when stop returns");
    assert_eq!(merged(&mut store), (BTreeMap::from([(1, 2)]), 2));
}
