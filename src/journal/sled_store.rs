//! The store on disk. The only place that names sled; `docs/disk-format.md` describes the bytes.
//!
//! One sled record a chunk, under a key that starts with its expiry: the oldest go by range, nothing is rewritten in
//! place, and the folder stays as small as what is live. How far the chunks reach stands in the same tree, because a
//! sled batch is atomic per tree only.

use std::fs::File;
use std::ops::RangeFrom;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::folder::{self, failed, shown};
use super::{Batch, Check, FORMAT_VERSION, Recovered, Store, StoreError, alive_from_ns};
use crate::codec::{StoredDefinitions, StoredError, StoredHave, StoredLimits, StoredMeta};
use crate::crdt::Registry;
use crate::id::{NodeName, ReplicaId, Secret};
use crate::limits::LimitSet;

/// Pages that sled keeps in memory, bytes. Chunks are written once and hardly read: more would buy nothing.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// Records removed in one sled batch.
const REMOVE_AT_ONCE: usize = 512;
/// Such batches in one call of [`Store::expire`].
const REMOVALS_PER_EXPIRE: usize = 16;

/// How long closing waits for sled's own threads to let go of its file.
const LET_GO_WAIT: Duration = Duration::from_secs(5);
const LET_GO_POLL: Duration = Duration::from_millis(1);

/// Within the data folder: sled's own.
const SLED_FOLDER: &str = "journal";
/// Within sled's folder: the file that must be synced.
const SLED_FILE: &str = "db";

const CHUNKS_TREE: &[u8] = b"chunks";
const META_TREE: &[u8] = b"meta";
const FORMAT_KEY: &[u8] = b"format";
const META_KEY: &[u8] = b"node";
/// Shorter than a record's key and a prefix of the lowest one: it sorts before every record.
const HAVE_KEY: &[u8] = &[0];
/// Likewise.
const LIMITS_KEY: &[u8] = &[0, 0];
/// Likewise.
const DEFINITIONS_KEY: &[u8] = &[0, 0, 0];
const RECORD_KEY_BYTES: usize = 16;
/// Numbers are below this, so that adding to one never overflows; no node writes as many.
const NUMBERS: u64 = 1 << 63;

/// A journal in a folder of this machine, held by this process alone.
pub struct SledStore {
    dir: PathBuf,
    /// None after a failure: sled takes no more writes then, the next call opens it anew.
    open: Option<Opened>,
    /// Known from [`Store::recover`] on.
    meta: Option<StoredMeta>,
    /// As it was last stored.
    reach: StoredHave,
    next_number: u64,
    held_bytes: u64,
    /// Last: released after sled has let go of its files.
    _lock: folder::Claim,
}

struct Opened {
    db: sled::Db,
    chunks: sled::Tree,
    meta: sled::Tree,
    file: File,
}

impl SledStore {
    /// Opens the journal in `dir`, which is made when it is missing.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let lock = folder::claim(dir)?;
        let opened = Opened::open(dir)?;
        check_format(dir, &opened)?;
        Ok(Self {
            dir: dir.to_owned(),
            open: Some(opened),
            meta: None,
            reach: StoredHave::default(),
            next_number: 0,
            held_bytes: 0,
            _lock: lock,
        })
    }

    /// Works on the open journal; a failure closes it, so that the next call begins with opening it.
    fn with<T>(&mut self, work: impl FnOnce(&Opened) -> Result<T, sled::Error>) -> Result<T, StoreError> {
        self.reopen()?;
        let opened = self.open.as_ref().expect("reopened above");
        let result = guarded(&self.dir, || work(opened));
        if result.is_err() {
            self.close();
        }
        result
    }

    /// After a failure: what had been written may be gone by now, with the owner's name too.
    fn reopen(&mut self) -> Result<(), StoreError> {
        if self.open.is_some() {
            return Ok(());
        }
        let opened = Opened::open(&self.dir)?;
        self.reach = guarded(&self.dir, || {
            if let Some(meta) = &self.meta {
                opened.put_meta(meta)?;
            }
            let reach = opened.chunks.get(HAVE_KEY)?.and_then(|bytes| StoredHave::decode(&bytes).ok());
            Ok(reach.unwrap_or_default())
        })?;
        self.open = Some(opened);
        Ok(())
    }

    fn close(&mut self) {
        if let Some(opened) = self.open.take() {
            opened.close();
        }
    }

    fn write_meta(&mut self, meta: StoredMeta) -> Result<(), StoreError> {
        let dir = self.dir.clone();
        self.with(|opened| {
            opened.put_meta(&meta)?;
            // Of files made just now the names too.
            File::open(&dir)?.sync_all()?;
            Ok(File::open(dir.join(SLED_FOLDER))?.sync_all()?)
        })?;
        self.meta = Some(meta);
        Ok(())
    }

    /// Forgets damaged records, and with them all claims: what is claimed later is there.
    fn clear_damage(&mut self, bad_keys: &[sled::IVec]) -> Result<(), StoreError> {
        let reach = self.reach.encode();
        self.with(|opened| {
            let mut batch = sled::Batch::default();
            bad_keys.iter().for_each(|key| batch.remove(key));
            batch.insert(HAVE_KEY, reach);
            opened.chunks.apply_batch(batch)?;
            opened.flush()
        })
    }

    fn known_meta(&self) -> Result<StoredMeta, StoreError> {
        self.meta.clone().ok_or_else(|| failed(&self.dir, "nothing is written before what is there was read".into()))
    }

    /// Removes those records that `gone` names by key, from the lowest key to `until`, `rounds` batches at most.
    fn remove(&mut self, until: Option<&[u8]>, rounds: usize, gone: impl Fn(&[u8]) -> bool) -> Result<u64, StoreError> {
        let (count, bytes) = self.with(|opened| {
            let (mut from, mut count, mut bytes) = (first_record(), 0u64, 0u64);
            for _ in 0..rounds {
                let mut batch = sled::Batch::default();
                let mut found = 0;
                for item in opened.chunks.range(from.clone()) {
                    let (key, value) = item?;
                    if until.is_some_and(|until| &*key >= until) || found == REMOVE_AT_ONCE {
                        break;
                    }
                    from = key.to_vec()..;
                    if gone(&key) {
                        found += 1;
                        bytes += value.len() as u64;
                        batch.remove(key);
                    }
                }
                opened.chunks.apply_batch(batch)?;
                count += found as u64;
                if found < REMOVE_AT_ONCE {
                    break;
                }
            }
            Ok((count, bytes))
        })?;
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        Ok(count)
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for SledStore {
    fn recover(&mut self, node: &NodeName, now_ns: u64, sound: Check) -> Result<Recovered, StoreError> {
        let dir = self.dir.clone();
        let stored = self.with(|opened| {
            let chunks = &opened.chunks;
            let values = [chunks.get(HAVE_KEY)?, chunks.get(LIMITS_KEY)?, chunks.get(DEFINITIONS_KEY)?];
            Ok((opened.meta.get(META_KEY)?, chunks.is_empty(), values))
        })?;
        let (meta, empty, [reach, limits, definitions]) = stored;
        let meta = match (meta, empty) {
            (Some(bytes), _) => StoredMeta::decode(&bytes).map_err(|e| damaged(&dir, format!("of its owner, {e}")))?,
            (None, false) => return Err(damaged(&dir, "it does not say which node it is of".into())),
            (None, true) => {
                let meta = StoredMeta { node: node.clone(), generation: 0, secret: None };
                self.write_meta(meta.clone())?;
                meta
            }
        };
        if meta.node != *node {
            let path = shown(&dir);
            return Err(StoreError::Foreign { path, ours: node.to_string(), theirs: meta.node.to_string() });
        }
        let mut damaged = 0;
        self.reach = or_damaged(reach.map(|bytes| StoredHave::decode(&bytes)), &mut damaged);
        let StoredLimits(limits) = or_damaged(limits.map(|bytes| StoredLimits::decode(&bytes)), &mut damaged);
        let definitions = definitions.map(|bytes| StoredDefinitions::decode(&bytes));
        let StoredDefinitions(definitions) = or_damaged(definitions, &mut damaged);
        let alive_ns = alive_from_ns(now_ns, self.reach.slot_clock_ns);
        let scan = self.with(|opened| Ok(Scan::run(&opened.chunks, alive_ns, sound)))?;
        damaged += scan.damaged;
        if damaged > 0 {
            self.reach.have.clear();
            self.clear_damage(&scan.bad_keys)?;
        }
        self.next_number = scan.next_number;
        self.held_bytes = scan.held_bytes;
        let generation = meta.generation.max(self.reach.generation);
        self.meta = Some(meta);
        let (have, slot_clock_ns) = (self.reach.have.clone(), self.reach.slot_clock_ns);
        Ok(Recovered { records: scan.records, have, slot_clock_ns, generation, limits, definitions, damaged })
    }

    fn begin_life(&mut self, own: &ReplicaId) -> Result<(), StoreError> {
        let meta = StoredMeta { generation: own.generation, ..self.known_meta()? };
        self.write_meta(meta)
    }

    fn secret(&mut self, fresh: Secret) -> Result<Secret, StoreError> {
        let meta = self.known_meta()?;
        if let Some(secret) = meta.secret {
            return Ok(secret);
        }
        self.write_meta(StoredMeta { secret: Some(fresh.clone()), ..meta })?;
        Ok(fresh)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.known_meta()?;
        let first = self.next_number;
        self.next_number += batch.records.len() as u64;
        self.reopen()?;
        let reach = StoredHave {
            have: batch.have.clone().unwrap_or_else(|| self.reach.have.clone()),
            slot_clock_ns: batch.slot_clock_ns,
            generation: batch.generation.max(self.reach.generation),
        };
        self.with(|opened| {
            let mut writes = sled::Batch::default();
            for (number, record) in (first..).zip(&batch.records) {
                writes.insert(record_key(record.expires_ns, number).as_slice(), record.bytes.as_slice());
            }
            writes.insert(HAVE_KEY, reach.encode());
            if let Some(limits) = &batch.limits {
                writes.insert(LIMITS_KEY, StoredLimits(LimitSet::clone(limits)).encode());
            }
            if let Some(definitions) = &batch.definitions {
                writes.insert(DEFINITIONS_KEY, StoredDefinitions(Registry::clone(definitions)).encode());
            }
            opened.chunks.apply_batch(writes)?;
            opened.flush()
        })?;
        self.reach = reach;
        self.held_bytes += batch.records.iter().map(|record| record.bytes.len() as u64).sum::<u64>();
        Ok(())
    }

    fn expire(&mut self, now_ns: u64) -> Result<u64, StoreError> {
        self.remove(Some(&record_key(now_ns, 0)), REMOVALS_PER_EXPIRE, |_| true)
    }

    fn next_number(&self) -> u64 {
        self.next_number
    }

    fn forget_below(&mut self, number: u64) -> Result<u64, StoreError> {
        self.remove(None, usize::MAX, |key| number_of(key).is_none_or(|of| of < number))
    }

    fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

impl Opened {
    fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(SLED_FOLDER);
        let config = sled::Config::new().path(&path).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        guarded(dir, || {
            let db = config.open()?;
            let (chunks, meta) = (db.open_tree(CHUNKS_TREE)?, db.open_tree(META_TREE)?);
            Ok(Self { file: File::open(path.join(SLED_FILE))?, db, chunks, meta })
        })
    }

    fn flush(&self) -> Result<(), sled::Error> {
        self.db.flush()?;
        // sled 0.34 only asks for its pages to be written (sync_file_range): the file's new length and the disk's own
        // cache are not covered by that.
        Ok(self.file.sync_data()?)
    }

    fn put_meta(&self, meta: &StoredMeta) -> Result<(), sled::Error> {
        let mut batch = sled::Batch::default();
        batch.insert(FORMAT_KEY, &FORMAT_VERSION.to_be_bytes());
        batch.insert(META_KEY, meta.encode());
        self.meta.apply_batch(batch)?;
        self.flush()
    }

    #[expect(clippy::disallowed_methods, reason = "sled's own threads run on the machine's clock and give no sign")]
    fn close(self) {
        let Self { db, chunks, meta, file } = self;
        // sled may panic when it cannot sync its file at the end; what it could not write is known to be lost already.
        let _ = catch_unwind(AssertUnwindSafe(|| drop((chunks, meta, db))));
        // Tasks in sled's threads hold its file, and with it the lock on it, for a moment longer. Whoever opens the
        // folder next, in this process or another, must not meet that lock.
        let deadline = Instant::now() + LET_GO_WAIT;
        while file.try_lock().is_err() && Instant::now() < deadline {
            thread::sleep(LET_GO_POLL);
        }
        // As a claim ends.
        let _ = file.unlock();
    }
}

/// What stood there; nothing, counted as damaged, when it cannot be read.
fn or_damaged<T: Default>(stored: Option<Result<T, StoredError>>, damaged: &mut u64) -> T {
    let stored = stored.unwrap_or_else(|| Ok(T::default()));
    stored.inspect_err(|_| *damaged += 1).unwrap_or_default()
}

/// What a pass over all records came to.
#[derive(Default)]
struct Scan {
    records: Vec<Vec<u8>>,
    damaged: u64,
    /// Of those damaged ones that can be removed.
    bad_keys: Vec<sled::IVec>,
    next_number: u64,
    held_bytes: u64,
}

impl Scan {
    fn run(chunks: &sled::Tree, now_ns: u64, sound: Check) -> Self {
        let mut scan = Self::default();
        let expired_below = record_key(now_ns, 0);
        for item in chunks.range(first_record()) {
            let Ok((key, value)) = item else {
                // A page that sled itself finds corrupt: it cannot be stepped over, what lies behind it is lost.
                scan.damaged += 1;
                break;
            };
            let number = number_of(&key);
            scan.next_number = scan.next_number.max(number.map_or(0, |number| number + 1));
            let expired = *key < expired_below[..];
            if number.is_none() || !(expired || sound(&value)) {
                scan.damaged += 1;
                scan.bad_keys.push(key);
                continue;
            }
            scan.held_bytes += value.len() as u64;
            if !expired {
                scan.records.push(value.to_vec());
            }
        }
        scan
    }
}

fn record_key(expires_ns: u64, number: u64) -> [u8; RECORD_KEY_BYTES] {
    // Expiry first, both big endian: the order of keys is the order in which records go.
    ((u128::from(expires_ns) << 64) | u128::from(number)).to_be_bytes()
}

fn first_record() -> RangeFrom<Vec<u8>> {
    record_key(0, 0).to_vec()..
}

/// None: no record has such a key.
fn number_of(key: &[u8]) -> Option<u64> {
    let key: [u8; RECORD_KEY_BYTES] = key.try_into().ok()?;
    // The lower half.
    Some(u128::from_be_bytes(key) as u64).filter(|number| *number < NUMBERS)
}

fn check_format(dir: &Path, opened: &Opened) -> Result<(), StoreError> {
    let Some(bytes) = guarded(dir, || opened.meta.get(FORMAT_KEY))? else { return Ok(()) };
    let bytes = (*bytes).try_into().map_err(|_| damaged(dir, "its format version is no number".into()))?;
    match u16::from_be_bytes(bytes) {
        FORMAT_VERSION => Ok(()),
        theirs => Err(StoreError::Version { path: shown(dir), ours: FORMAT_VERSION, theirs }),
    }
}

/// Runs what calls sled: its errors, and its panics on files that it does not understand, become errors of the store.
fn guarded<T>(dir: &Path, work: impl FnOnce() -> Result<T, sled::Error>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Corruption { .. })) => Err(damaged(dir, "sled finds its files corrupt".into())),
        Ok(Err(error)) => Err(failed(dir, error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(damaged(dir, format!("sled gave up on its files ({})", text.unwrap_or("it did not say why"))))
        }
    }
}

fn damaged(dir: &Path, problem: String) -> StoreError {
    StoreError::Damaged { path: shown(dir), problem }
}

#[cfg(test)]
mod tests;
