//! A store in memory with a crash model, for simulations and tests.
//!
//! A [`MemoryDisk`] outlives the node that writes to it. It has a durable part and a pending one: what was written but is
//! not yet flushed. As with sled, a batch is atomic and writes become durable in their order, so a crash loses some number
//! of the last pending writes, each as a whole. What is pending at all is up to the [`DiskFault`] in force: without one, a
//! commit that returned is durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::{Rng, RngCore};

use super::{Batch, Check, FORMAT_VERSION, Recovered, Store, StoreError, alive_from_ns};
use crate::crdt::Registry;
use crate::id::{NodeName, ReplicaId, Secret};
use crate::limits::LimitSet;

/// What is wrong with a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskFault {
    /// Nothing can be written.
    Full,
    /// Writing fails, but what was to be written may be there afterwards: it stays pending.
    Failing,
    /// Writing seems to work, but nothing is durable before the fault is gone: a cache that loses power.
    Lying,
}

/// Everything on a disk at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryImage {
    format: Option<u16>,
    node: Option<NodeName>,
    generation: u64,
    secret: Option<Secret>,
    /// By expiry and number.
    records: BTreeMap<(u64, u64), Vec<u8>>,
    have: Vec<(ReplicaId, u64)>,
    slot_clock_ns: u64,
    limits: Arc<LimitSet>,
    definitions: Arc<Registry>,
    /// The number of the next record.
    next_number: u64,
    held_bytes: u64,
}

/// What a disk's cache holds back at most; beyond it the oldest write becomes durable.
const MAX_PENDING_WRITES: usize = 1024;

/// One change of what is stored.
#[derive(Clone, Debug)]
enum Write {
    Owner(NodeName),
    Life(u64),
    Secret(Secret),
    Batch(Batch),
    Expire {
        now_ns: u64,
    },
    ForgetBelow {
        number: u64,
    },
    /// By expiry and number; with them all claims go.
    ClearDamage(BTreeSet<(u64, u64)>),
}

#[derive(Debug, Default)]
struct Disk {
    durable: MemoryImage,
    pending: VecDeque<Write>,
    fault: Option<DiskFault>,
    /// Counts openings and crashes: a store of an earlier opening has lost the disk.
    opening: u64,
    in_use: bool,
}

/// A disk. Clones are handles to the same one.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<Disk>>);

/// A journal on a [`MemoryDisk`].
#[derive(Debug)]
pub struct MemoryStore {
    disk: MemoryDisk,
    opening: u64,
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the journal on it, as [`super::SledStore::open`] would.
    pub fn open(&self) -> Result<MemoryStore, StoreError> {
        let mut disk = self.0.lock();
        if disk.in_use {
            return Err(StoreError::Locked { path: PATH.into() });
        }
        if let Some(theirs) = disk.durable.format.filter(|theirs| *theirs != FORMAT_VERSION) {
            return Err(StoreError::Version { path: PATH.into(), ours: FORMAT_VERSION, theirs });
        }
        disk.in_use = true;
        disk.opening += 1;
        Ok(MemoryStore { disk: self.clone(), opening: disk.opening })
    }

    /// The machine loses power: of the pending writes a random number of the last ones is lost. A store that is still
    /// open has lost its disk.
    pub fn crash(&self, rng: &mut dyn RngCore) {
        let mut disk = self.0.lock();
        let kept = rng.random_range(0..=disk.pending.len());
        disk.pending.truncate(kept);
        disk.flush();
        disk.in_use = false;
        disk.opening += 1;
    }

    /// From now on this is wrong with the disk; None: nothing.
    pub fn set_fault(&self, fault: Option<DiskFault>) {
        let mut disk = self.0.lock();
        disk.fault = fault;
        if fault.is_none() {
            disk.flush();
        }
    }

    /// Flips a bit of up to `count` durable records.
    pub fn damage(&self, count: usize, rng: &mut dyn RngCore) {
        let mut disk = self.0.lock();
        for _ in 0..count.min(disk.durable.records.len()) {
            let at = rng.random_range(0..disk.durable.records.len());
            if let Some(bytes) = disk.durable.records.values_mut().nth(at).filter(|bytes| !bytes.is_empty()) {
                let bit = rng.random_range(0..bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// Pretends that another version of tidegate wrote it.
    pub fn set_format(&self, version: u16) {
        self.0.lock().durable.format = Some(version);
    }

    /// What is durable: to be restored later, here or on another disk.
    pub fn image(&self) -> MemoryImage {
        self.0.lock().durable.clone()
    }

    /// Puts an image in place of everything. The default image is an empty disk. A store that is still open has lost its
    /// disk.
    pub fn restore(&self, image: MemoryImage) {
        let mut disk = self.0.lock();
        disk.durable = image;
        disk.pending.clear();
        disk.in_use = false;
        disk.opening += 1;
    }
}

/// How errors call it.
const PATH: &str = "memory";

impl Disk {
    fn flush(&mut self) {
        while let Some(write) = self.pending.pop_front() {
            self.durable.apply(write);
        }
    }

    fn next_number(&self) -> u64 {
        let waiting = self.pending.iter().map(|write| match write {
            Write::Batch(batch) => batch.records.len() as u64,
            _ => 0,
        });
        self.durable.next_number + waiting.sum::<u64>()
    }

    /// What a process sees: the pending writes too.
    fn seen(&self) -> MemoryImage {
        let mut image = self.durable.clone();
        self.pending.iter().for_each(|write| _ = image.apply(write.clone()));
        image
    }

    /// Returns how many records went; 0 while they go only later.
    fn write(&mut self, write: Write) -> Result<u64, StoreError> {
        if self.fault == Some(DiskFault::Full) {
            return Err(failed("no space left on the disk"));
        }
        self.pending.push_back(write);
        if self.pending.len() > MAX_PENDING_WRITES {
            let oldest = self.pending.pop_front();
            oldest.map(|write| self.durable.apply(write));
        }
        match self.fault {
            None => Ok(self.pending.drain(..).map(|write| self.durable.apply(write)).sum()),
            Some(DiskFault::Lying) => Ok(0),
            Some(DiskFault::Failing | DiskFault::Full) => Err(failed("input/output error")),
        }
    }
}

impl MemoryImage {
    /// Returns how many records went.
    fn apply(&mut self, write: Write) -> u64 {
        match write {
            Write::Owner(node) => (self.node, self.format) = (Some(node), Some(FORMAT_VERSION)),
            Write::Life(generation) => self.generation = generation,
            Write::Secret(secret) => self.secret = Some(secret),
            Write::Batch(batch) => self.apply_batch(batch),
            Write::Expire { now_ns } => return self.forget(|expires_ns, _| expires_ns < now_ns),
            Write::ForgetBelow { number } => return self.forget(|_, of| of < number),
            Write::ClearDamage(bad) => {
                self.have.clear();
                return self.forget(|expires_ns, number| bad.contains(&(expires_ns, number)));
            }
        }
        0
    }

    fn forget(&mut self, gone: impl Fn(u64, u64) -> bool) -> u64 {
        let before = self.records.len();
        let held_bytes = &mut self.held_bytes;
        self.records.retain(|(expires_ns, number), bytes| {
            let gone = gone(*expires_ns, *number);
            *held_bytes -= if gone { bytes.len() as u64 } else { 0 };
            !gone
        });
        (before - self.records.len()) as u64
    }

    fn apply_batch(&mut self, batch: Batch) {
        for record in batch.records {
            self.held_bytes += record.bytes.len() as u64;
            self.records.insert((record.expires_ns, self.next_number), record.bytes);
            self.next_number += 1;
        }
        if let Some(have) = batch.have {
            self.have = have;
        }
        if let Some(limits) = batch.limits {
            self.limits = limits;
        }
        if let Some(definitions) = batch.definitions {
            self.definitions = definitions;
        }
        self.slot_clock_ns = batch.slot_clock_ns;
        self.generation = self.generation.max(batch.generation);
    }
}

impl MemoryStore {
    /// Works on the disk, as long as this store has it.
    fn with<T>(&self, work: impl FnOnce(&mut Disk) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut disk = self.disk.0.lock();
        if disk.opening != self.opening {
            return Err(failed("the disk was taken away"));
        }
        work(&mut disk)
    }

    fn write(&self, write: Write) -> Result<u64, StoreError> {
        self.with(|disk| disk.write(write))
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let mut disk = self.disk.0.lock();
        if disk.opening == self.opening {
            disk.in_use = false;
        }
    }
}

impl Store for MemoryStore {
    fn recover(&mut self, node: &NodeName, now_ns: u64, sound: Check) -> Result<Recovered, StoreError> {
        let image = self.with(|disk| Ok(disk.seen()))?;
        match &image.node {
            Some(theirs) if theirs != node => {
                let (ours, theirs) = (node.to_string(), theirs.to_string());
                return Err(StoreError::Foreign { path: PATH.into(), ours, theirs });
            }
            Some(_) => {}
            None => _ = self.write(Write::Owner(node.clone()))?,
        }
        let alive_ns = alive_from_ns(now_ns, image.slot_clock_ns);
        let live = image.records.into_iter().filter(|((expires_ns, _), _)| *expires_ns >= alive_ns);
        let (good, bad): (Vec<_>, Vec<_>) = live.partition(|(_, bytes)| sound(bytes));
        let damaged = bad.len() as u64;
        if damaged > 0 {
            self.write(Write::ClearDamage(bad.into_iter().map(|(key, _)| key).collect()))?;
        }
        Ok(Recovered {
            records: good.into_iter().map(|(_, bytes)| bytes).collect(),
            have: if damaged == 0 { image.have } else { Vec::new() },
            slot_clock_ns: image.slot_clock_ns,
            generation: image.generation,
            limits: LimitSet::clone(&image.limits),
            definitions: Registry::clone(&image.definitions),
            damaged,
        })
    }

    fn begin_life(&mut self, own: &ReplicaId) -> Result<(), StoreError> {
        self.write(Write::Life(own.generation)).map(|_| ())
    }

    fn secret(&mut self, fresh: Secret) -> Result<Secret, StoreError> {
        if let Some(secret) = self.with(|disk| Ok(disk.seen().secret))? {
            return Ok(secret);
        }
        self.write(Write::Secret(fresh.clone()))?;
        Ok(fresh)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.write(Write::Batch(batch.clone())).map(|_| ())
    }

    fn expire(&mut self, now_ns: u64) -> Result<u64, StoreError> {
        self.write(Write::Expire { now_ns })
    }

    fn next_number(&self) -> u64 {
        self.disk.0.lock().next_number()
    }

    fn forget_below(&mut self, number: u64) -> Result<u64, StoreError> {
        self.write(Write::ForgetBelow { number })
    }

    fn held_bytes(&self) -> u64 {
        self.disk.0.lock().durable.held_bytes
    }
}

fn failed(problem: &str) -> StoreError {
    StoreError::Io { path: PATH.into(), problem: problem.into() }
}
