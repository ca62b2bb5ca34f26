//! The stores keep what they promise: one suite over both, and for the one on disk a process that is killed at random
//! moments, many times in the same folder.

#![expect(clippy::disallowed_methods, reason = "a process is killed at random moments of real time")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use tidegate::id::{NodeName, ReplicaId, Secret};
use tidegate::journal::{Batch, DiskFault, MemoryDisk, MemoryImage, Record, SledStore, Store, StoreError};
use tidegate::limits::{LimitSet, LimitSpec};
use tidegate::time::SECOND;

const FAR_NS: u64 = u64::MAX / 2;

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn life(name: &str, generation: u64) -> ReplicaId {
    ReplicaId { node: node(name), generation, nonce: 7 }
}

/// Stands for a chunk: a checksum, a number, filler.
fn record(expires_ns: u64, seq: u64, len: usize) -> Record {
    let mut body = seq.to_le_bytes().to_vec();
    body.resize(8 + len, seq as u8);
    let mut bytes = crc32fast::hash(&body).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    Record { expires_ns, bytes }
}

fn sound(bytes: &[u8]) -> bool {
    bytes.len() >= 12 && bytes[..4] == crc32fast::hash(&bytes[4..]).to_le_bytes()
}

fn seq_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[4..12].try_into().unwrap())
}

fn seqs(records: &[Vec<u8>]) -> Vec<u64> {
    let mut seqs: Vec<u64> = records.iter().map(|bytes| seq_of(bytes)).collect();
    seqs.sort_unstable();
    seqs
}

fn some_limits() -> LimitSet {
    let spec = LimitSpec { name: "l".into(), limit: Some(3), window: Some("1s".into()), ..LimitSpec::default() };
    LimitSet::new([spec.check().unwrap()]).unwrap()
}

fn batch(records: Vec<Record>, have: Option<u64>) -> Batch {
    let have = have.map(|seq| vec![(life("eu-1", 5), seq)]);
    Batch { records, have, slot_clock_ns: 1_000, generation: 5, ..Batch::default() }
}

/// A place to open stores in.
enum Bed {
    Sled(TempDir),
    Memory(MemoryDisk),
}

impl Bed {
    fn both() -> [Self; 2] {
        [Self::Sled(tempfile::tempdir().unwrap()), Self::Memory(MemoryDisk::new())]
    }

    fn open(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(match self {
            Self::Sled(dir) => Box::new(SledStore::open(dir.path())?),
            Self::Memory(disk) => Box::new(disk.open()?),
        })
    }

    /// A store of eu-1 that was recovered.
    fn recovered(&self) -> Box<dyn Store> {
        let mut store = self.open().unwrap();
        store.recover(&node("eu-1"), 0, sound).unwrap();
        store
    }
}

#[test]
fn a_store_is_empty_at_first_and_gives_back_what_was_committed() {
    for bed in Bed::both() {
        let mut store = bed.open().unwrap();
        assert_eq!(store.recover(&node("eu-1"), 0, sound).unwrap(), Default::default());
        store.begin_life(&life("eu-1", 5)).unwrap();
        store.commit(&batch(vec![record(50, 1, 10), record(10, 2, 20_000)], Some(2))).unwrap();
        let limits = Some(Arc::new(some_limits()));
        store.commit(&Batch { limits, ..batch(vec![record(50, 3, 10)], None) }).unwrap();
        store.commit(&batch(vec![], None)).unwrap();
        assert_eq!((store.next_number(), store.held_bytes()), (3, 20_056));
        drop(store);

        let mut store = bed.open().unwrap();
        let found = store.recover(&node("eu-1"), 0, sound).unwrap();
        assert_eq!(seqs(&found.records), [1, 2, 3]);
        assert_eq!(found.have, [(life("eu-1", 5), 2)]);
        assert_eq!(found.limits, some_limits());
        assert_eq!((found.slot_clock_ns, found.generation, found.damaged), (1_000, 5, 0));
        assert_eq!((store.next_number(), store.held_bytes()), (3, 20_056));
    }
}

#[test]
fn records_go_by_expiry_and_by_number() {
    for bed in Bed::both() {
        let mut store = bed.recovered();
        let soon = (0..20_000).map(|seq| record(100 + seq % 7, seq, 0)).collect();
        store.commit(&batch(soon, Some(9))).unwrap();
        store.commit(&batch(vec![record(200, 70_000, 0), record(200, 70_001, 0)], None)).unwrap();
        assert_eq!(store.expire(100).unwrap(), 0);
        let mut expired = 0;
        loop {
            match store.expire(200).unwrap() {
                0 => break,
                count => expired += count,
            }
        }
        assert_eq!(expired, 20_000);
        assert_eq!(store.forget_below(20_001).unwrap(), 1);
        assert_eq!(store.held_bytes(), 12);
        drop(store);
        let found = bed.open().unwrap().recover(&node("eu-1"), 200, sound).unwrap();
        assert_eq!(seqs(&found.records), [70_001]);
        assert_eq!(found.have, [(life("eu-1", 5), 9)], "how far the journal reaches is no record");
        // As of ten seconds before it was last written: what expired since then may still be owed.
        for (lag_s, left) in [(10, vec![70_001]), (11, vec![])] {
            let mut store = bed.open().unwrap();
            store.recover(&node("eu-1"), 200, sound).unwrap();
            let slot_clock_ns = 200 + lag_s * SECOND;
            store.commit(&Batch { slot_clock_ns, ..batch(vec![], Some(9)) }).unwrap();
            drop(store);
            let much_later_ns = 3600 * SECOND;
            let found = bed.open().unwrap().recover(&node("eu-1"), much_later_ns, sound).unwrap();
            assert_eq!(seqs(&found.records), left);
        }
    }
}

#[test]
fn a_damaged_record_is_skipped_counted_and_leaves_nothing_claimed() {
    for bed in Bed::both() {
        let mut store = bed.recovered();
        let mut flipped = record(50, 2, 100);
        flipped.bytes[60] ^= 4;
        let mut cut = record(50, 3, 100);
        cut.bytes.truncate(40);
        store.commit(&batch(vec![record(50, 1, 100), flipped, cut, record(50, 4, 100)], Some(4))).unwrap();
        drop(store);
        let found = bed.open().unwrap().recover(&node("eu-1"), 0, sound).unwrap();
        assert_eq!(seqs(&found.records), [1, 4]);
        assert_eq!((found.damaged, found.have.len()), (2, 0));
        // It is told once: what is claimed from then on is there.
        let mut store = bed.open().unwrap();
        let found = store.recover(&node("eu-1"), 0, sound).unwrap();
        assert_eq!((found.records.len(), found.damaged, found.have.len()), (2, 0, 0));
        assert_eq!(store.held_bytes(), 224);
    }
}

#[test]
fn generations_only_rise_and_a_secret_is_drawn_once() {
    for bed in Bed::both() {
        let mut store = bed.recovered();
        store.begin_life(&life("eu-1", 4)).unwrap();
        assert_eq!(store.secret(Secret([1; 32])).unwrap(), Secret([1; 32]));
        assert_eq!(store.secret(Secret([2; 32])).unwrap(), Secret([1; 32]));
        // A life that began while the node ran is told with the batches.
        store.commit(&Batch { generation: 9, ..batch(vec![], None) }).unwrap();
        store.commit(&Batch { generation: 0, ..batch(vec![], None) }).unwrap();
        drop(store);
        let mut store = bed.open().unwrap();
        assert_eq!(store.recover(&node("eu-1"), 0, sound).unwrap().generation, 9);
        assert_eq!(store.secret(Secret([3; 32])).unwrap(), Secret([1; 32]));
    }
}

#[test]
fn one_user_at_a_time_and_no_other_node() {
    for bed in Bed::both() {
        let store = bed.recovered();
        assert!(matches!(bed.open().err(), Some(StoreError::Locked { .. })));
        drop(store);
        let refused = bed.open().unwrap().recover(&node("us-1"), 0, sound).unwrap_err();
        assert!(matches!(&refused, StoreError::Foreign { ours, theirs, .. } if ours == "us-1" && theirs == "eu-1"));
        assert!(refused.to_string().contains("us-1") && refused.to_string().contains("eu-1"));
        assert!(bed.open().unwrap().recover(&node("eu-1"), 0, sound).is_ok());
    }
}

#[test]
fn nothing_is_written_before_what_is_there_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(dir.path()).unwrap();
    assert!(store.commit(&batch(vec![record(1, 1, 1)], None)).is_err());
    assert!(store.begin_life(&life("eu-1", 1)).is_err());
}

#[test]
fn what_is_no_folder_or_not_writable_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let told = |path: &Path| SledStore::open(path).err().expect("it must not open").to_string();
    assert!(told(&file).contains("not a folder"), "{}", told(&file));
    assert!(told(&file.join("below")).contains("file/below"), "{}", told(&file.join("below")));
    if cfg!(target_os = "linux") {
        // Nobody may write here, root neither.
        assert!(told(Path::new("/proc/tidegate")).contains("/proc/tidegate"));
        assert!(told(Path::new("/proc/self")).contains("not writable"), "{}", told(Path::new("/proc/self")));
    }
}

#[test]
fn a_crash_of_the_memory_disk_loses_the_last_batches_as_wholes() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = MemoryDisk::new();
        let mut store = Bed::Memory(disk.clone()).recovered();
        store.commit(&batch(vec![record(FAR_NS, 1, 0)], Some(1))).unwrap();
        disk.set_fault(Some(DiskFault::Lying));
        for first in [2, 4, 6, 8] {
            store
                .commit(&batch(vec![record(FAR_NS, first, 0), record(FAR_NS, first + 1, 0)], Some(first + 1)))
                .unwrap();
        }
        disk.crash(&mut StdRng::seed_from_u64(seed));
        assert!(store.commit(&batch(vec![], None)).is_err(), "the crashed node's store has no disk any more");
        let found = disk.open().unwrap().recover(&node("eu-1"), 0, sound).unwrap();
        let reach = found.have[0].1;
        assert_eq!(seqs(&found.records), (1..=reach).collect::<Vec<_>>());
        lost += u64::from(reach < 9);
    }
    assert!((1..50).contains(&lost), "{lost} of 50 crashes lost something");
}

#[test]
fn a_memory_disk_can_be_full_fail_be_damaged_restored_and_of_another_version() {
    let disk = MemoryDisk::new();
    let mut store = Bed::Memory(disk.clone()).recovered();
    store.commit(&batch(vec![record(FAR_NS, 1, 0)], Some(1))).unwrap();
    let old = disk.image();
    disk.set_fault(Some(DiskFault::Full));
    assert!(store.commit(&batch(vec![record(FAR_NS, 2, 0)], Some(2))).is_err());
    disk.set_fault(Some(DiskFault::Failing));
    assert!(store.commit(&batch(vec![record(FAR_NS, 3, 0)], Some(3))).is_err());
    disk.set_fault(None);
    drop(store);
    let mut store = disk.open().unwrap();
    let found = store.recover(&node("eu-1"), 0, sound).unwrap();
    assert_eq!(seqs(&found.records), [1, 3], "what failed may be there, what found the disk full is not");

    disk.damage(1, &mut StdRng::seed_from_u64(1));
    let found = store.recover(&node("eu-1"), 0, sound).unwrap();
    assert_eq!((found.records.len(), found.damaged, found.have.len()), (1, 1, 0));

    disk.restore(old);
    let mut store = disk.open().unwrap();
    assert_eq!(store.recover(&node("eu-1"), 0, sound).unwrap().have, [(life("eu-1", 5), 1)]);
    disk.restore(MemoryImage::default());
    disk.set_format(1);
    assert!(matches!(disk.open().err(), Some(StoreError::Version { ours: 2, theirs: 1, .. })));
}

/// Names the folder for [`child_that_writes_until_killed`].
const CHILD_FOLDER: &str = "TIDEGATE_TEST_JOURNAL";
const KILLS: usize = 25;
const LINE_WAIT: Duration = Duration::from_secs(60);

/// The process that [`kill_9_loses_nothing_that_was_committed`] kills.
#[test]
#[ignore = "started by kill_9_loses_nothing_that_was_committed as a process of its own"]
fn child_that_writes_until_killed() {
    let folder = std::env::var_os(CHILD_FOLDER).expect("the parent names the folder");
    let mut store = SledStore::open(Path::new(&folder)).unwrap();
    let found = store.recover(&node("eu-1"), 0, sound).unwrap();
    let own = life("eu-1", found.generation + 1);
    store.begin_life(&own).unwrap();
    println!("\nlife {}", own.generation);
    let mut rng = StdRng::seed_from_u64(own.generation);
    let mut seq = found.have.first().map_or(0, |(_, seq)| *seq);
    for round in 1u64.. {
        let records = rng.random_range(1..8);
        let mut written: Vec<Record> =
            (1..=records).map(|n| record(FAR_NS + n % 3, seq + n, rng.random_range(0..4000))).collect();
        written.push(record(round, u64::MAX, 500));
        seq += records;
        store.commit(&batch(written, Some(seq))).unwrap();
        println!("\ncommitted {seq}");
        if round.is_multiple_of(8) {
            store.expire(round).unwrap();
        }
        if round.is_multiple_of(50) {
            // A rewrite: everything anew, then the old ones go.
            let next = store.next_number();
            store.commit(&batch((1..=seq).map(|seq| record(FAR_NS, seq, 30)).collect(), None)).unwrap();
            store.forget_below(next).unwrap();
        }
    }
}

fn spawn_child(folder: &Path) -> (Child, Receiver<String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_that_writes_until_killed", "--nocapture"])
        .env(CHILD_FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines_of(&mut child);
    (child, lines)
}

fn lines_of(child: &mut Child) -> Receiver<String> {
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let (sender, lines) = channel();
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    lines
}

#[test]
fn kill_9_loses_nothing_that_was_committed() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = StdRng::seed_from_u64(1);
    let (mut generation, mut committed) = (0, 0);
    for kill in 0..KILLS {
        let (mut child, lines) = spawn_child(dir.path());
        let mut said = Vec::new();
        if kill % 5 == 0 {
            // Anywhere, most often while it opens the folder.
            std::thread::sleep(Duration::from_millis(rng.random_range(0..30)));
        } else {
            let commits = rng.random_range(1..120);
            while said.iter().filter(|line: &&String| line.starts_with("committed")).count() < commits {
                said.push(lines.recv_timeout(LINE_WAIT).expect("the child goes on writing"));
            }
            std::thread::sleep(Duration::from_micros(rng.random_range(0..5_000)));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        said.extend(lines.iter());
        let told = |what| said.iter().filter_map(|line| line.strip_prefix(what)?.trim().parse::<u64>().ok()).max();
        let began = told("life ");
        assert!(began.is_none_or(|began| began > generation), "kill {kill}: {began:?} after {generation}");

        let mut store = SledStore::open(dir.path()).unwrap();
        let found = store.recover(&node("eu-1"), 0, sound).unwrap();
        let reach = found.have.first().map_or(0, |(_, seq)| *seq);
        assert_eq!(found.damaged, 0);
        assert!(found.generation >= began.unwrap_or(generation), "kill {kill}");
        let told = told("committed ").unwrap_or(committed);
        assert!(reach >= told, "kill {kill}: {told} was committed, {reach} is there");
        let mut there = seqs(&found.records);
        there.dedup();
        there.retain(|seq| *seq != u64::MAX);
        assert!(there.iter().copied().eq(1..=reach), "kill {kill}: have says {reach}, {} are there", there.len());
        (generation, committed) = (found.generation, reach);
    }
    assert!(generation > KILLS as u64 / 2 && committed > 0, "the child came far enough to be worth killing");
}

/// Bytes that a file may have while the disk of [`child_that_fills_its_disk`] is full.
const SMALL_DISK: &str = "4194304";

/// The process whose files [`a_full_disk_is_told_and_written_again_once_there_is_room`] limits.
#[test]
#[ignore = "started by a_full_disk_is_told_and_written_again_once_there_is_room as a process of its own"]
fn child_that_fills_its_disk() {
    let folder = std::env::var_os(CHILD_FOLDER).expect("the parent names the folder");
    let mut store = SledStore::open(Path::new(&folder)).unwrap();
    store.recover(&node("eu-1"), 0, sound).unwrap();
    store.begin_life(&life("eu-1", 5)).unwrap();
    let mut write = |seq| store.commit(&batch(vec![record(FAR_NS, seq, 15_000)], Some(seq)));
    // Opened anew after a failure it may find a little more room, so one failure is not the end.
    let full = (1..10_000).find(|seq| write(*seq).is_err() && write(*seq).is_err()).expect("the limit is met");
    println!("\nfull {full}");
    // The parent makes room, then says so.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    write(full).unwrap();
    write(full + 1).unwrap();
    println!("\nwritten {}", full + 1);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told_and_written_again_once_there_is_room() {
    use std::io::Write;

    if Command::new("prlimit").arg("--version").output().is_err() {
        println!("not tested: there is no prlimit (util-linux) here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // A limit on the size of files is a full disk as far as writing goes; its signal is ignored, so that writes fail.
    let mut child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec prlimit --fsize=$0: \"$@\"", SMALL_DISK])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_that_fills_its_disk", "--nocapture"])
        .env(CHILD_FOLDER, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines_of(&mut child);
    let wait_for = |what: &str| loop {
        let line = lines.recv_timeout(LINE_WAIT).expect("the child says more");
        if let Some(rest) = line.strip_prefix(what) {
            return rest.trim().to_owned();
        }
    };
    let full: u64 = wait_for("full ").parse().unwrap();
    let room = Command::new("prlimit").args(["--fsize=unlimited:", "--pid", &child.id().to_string()]).status();
    assert!(room.unwrap().success());
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(wait_for("written "), (full + 1).to_string());
    assert!(child.wait().unwrap().success());
    let found = SledStore::open(dir.path()).unwrap().recover(&node("eu-1"), 0, sound).unwrap();
    let mut there = seqs(&found.records);
    there.dedup();
    assert!(there.into_iter().eq(1..=full + 1), "what was committed before the disk was full is there too");
    assert_eq!((found.have, found.damaged), (vec![(life("eu-1", 5), full + 1)], 0));
}
