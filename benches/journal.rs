//! What four million counter updates do to the journal: resident memory and the size of its folder over time.
//!
//! `cargo bench --bench journal [-- FOLDER]`. The updates come in flushes as a busy node makes them, in virtual time, and
//! expire behind; one part in a hundred is of a window that lives much longer. Both figures must stay flat once the
//! first flushes expire.

#![expect(clippy::disallowed_methods, reason = "it measures how long the machine takes")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use tidegate::id::{NodeName, ReplicaId};
use tidegate::journal::{Batch, Record, SledStore, Store};
use tidegate::time::{MS, SECOND};

const UPDATES: u64 = 4_000_000;
const UPDATES_PER_FLUSH: u64 = 2_500;
/// Two flush intervals: what one commit of the journal takes.
const FLUSH_NS: u64 = 50 * MS;
/// A window cell on the wire.
const UPDATE_BYTES: usize = 24;
const CHUNK_BYTES: usize = 16 * 1024;
const KEPT_NS: u64 = 10 * SECOND;
const LONG_KEPT_NS: u64 = 3_600 * SECOND;
const EXPIRY_STEP_NS: u64 = 10 * SECOND;
const BEGIN_NS: u64 = 1_700_000_000 * SECOND;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let given = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).map(PathBuf::from);
    let folder = given.unwrap_or_else(|| temporary.path().to_owned());
    let node = NodeName::new("bench")?;
    let own = ReplicaId { node: node.clone(), generation: 1, nonce: 0 };
    println!("resident before the journal is opened: {} MB", resident_mb());
    let mut store = SledStore::open(&folder)?;
    store.recover(&node, BEGIN_NS, |_| true)?;
    store.begin_life(&own)?;

    println!("{:>9} {:>12} {:>10} {:>10} {:>9}", "updates", "written MB", "held MB", "folder MB", "RSS MB");
    let (began, mut written, mut noise) = (Instant::now(), 0, 1u64);
    let flushes = UPDATES / UPDATES_PER_FLUSH;
    for flush in 1..=flushes {
        let now_ns = BEGIN_NS + flush * FLUSH_NS;
        let records = records_of(flush, now_ns, &mut noise);
        written += records.iter().map(|record| record.bytes.len()).sum::<usize>();
        let have = Some(vec![(own.clone(), flush)]);
        store.commit(&Batch {
            records,
            have,
            slot_clock_ns: now_ns,
            generation: 1,
            limits: None,
            definitions: None,
        })?;
        if (flush * FLUSH_NS).is_multiple_of(SECOND) {
            store.expire(now_ns)?;
        }
        if flush.is_multiple_of(flushes / 20) {
            let (held, folder_bytes) = (store.held_bytes() as usize, folder_bytes(&folder)?);
            let updates = flush * UPDATES_PER_FLUSH;
            println!("{updates:>9} {:>12} {:>10} {:>10} {:>9}", mb(written), mb(held), mb(folder_bytes), resident_mb());
        }
    }
    let took = began.elapsed();
    println!("{flushes} commits in {took:.2?}, {:.0} us each", took.as_secs_f64() * 1e6 / flushes as f64);
    drop(store);

    let began = Instant::now();
    let mut store = SledStore::open(&folder)?;
    let opened = began.elapsed();
    let recovered = store.recover(&node, BEGIN_NS + flushes * FLUSH_NS, |_| true)?;
    println!("reopened in {opened:.2?}, {} records read in {:.2?}", recovered.records.len(), began.elapsed() - opened);
    Ok(())
}

/// One flush: chunks of incompressible bytes.
fn records_of(flush: u64, now_ns: u64, noise: &mut u64) -> Vec<Record> {
    let mut left = UPDATES_PER_FLUSH as usize * UPDATE_BYTES;
    let kept_ns = if flush.is_multiple_of(100) { LONG_KEPT_NS } else { KEPT_NS };
    let expires_ns = (now_ns + kept_ns).next_multiple_of(EXPIRY_STEP_NS);
    let mut records = Vec::new();
    while left > 0 {
        let len = left.min(CHUNK_BYTES);
        left -= len;
        let bytes = std::iter::repeat_with(|| {
            *noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*noise >> 56) as u8
        });
        records.push(Record { expires_ns, bytes: bytes.take(len).collect() });
    }
    records
}

fn folder_bytes(folder: &Path) -> std::io::Result<usize> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        sum += if meta.is_dir() { folder_bytes(&entry.path())? } else { meta.len() as usize };
    }
    Ok(sum)
}

/// What Linux says; `-` elsewhere.
fn resident_mb() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kb.map_or("-".into(), |kb| mb(kb * 1024))
}

fn mb(bytes: usize) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
