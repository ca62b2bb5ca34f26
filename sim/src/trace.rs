//! The trace: one hash over everything that happens in a run, in the order in which it happens. Two runs of one seed
//! must give the same hash, in one process or in two: that is what makes a failure repeatable.

use std::fs::File;
use std::hash::Hasher;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use siphasher::sip128::{Hasher128, SipHasher13};

/// Collects the events of one run. Clones share it.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    hasher: SipHasher13,
    events: u64,
    lines: Option<BufWriter<File>>,
}

impl Trace {
    /// A trace of hashes alone.
    pub fn new() -> Self {
        Self::with(None)
    }

    /// A trace that also writes every event as a line to `path`: where two runs part is where to look.
    pub fn to_file(path: &Path) -> std::io::Result<Self> {
        Ok(Self::with(Some(BufWriter::new(File::create(path)?))))
    }

    fn with(lines: Option<BufWriter<File>>) -> Self {
        Self(Arc::new(Mutex::new(Inner { hasher: SipHasher13::new(), events: 0, lines })))
    }

    /// Something happened on `host`, at `at_ns` of virtual time.
    pub fn event(&self, at_ns: u64, host: &str, what: &str, numbers: &[u64]) {
        let mut inner = self.lock();
        inner.events += 1;
        inner.hasher.write_u64(at_ns);
        for text in [host, what] {
            inner.hasher.write_u64(text.len() as u64);
            inner.hasher.write(text.as_bytes());
        }
        inner.hasher.write_u64(numbers.len() as u64);
        for number in numbers {
            inner.hasher.write_u64(*number);
        }
        if let Some(lines) = &mut inner.lines {
            writeln!(lines, "{at_ns} {host} {what} {numbers:?}").expect("the trace file can be written");
        }
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.lock().events
    }

    /// The hash so far, 32 lower-case hexadecimal digits.
    pub fn hash(&self) -> String {
        format!("{:032x}", self.lock().hasher.finish128().as_u128())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("a simulation is one thread, and ends with the first panic")
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_event_counts_and_so_does_the_order() {
        let hash = |events: &[(u64, &str, &str, &[u64])]| {
            let trace = Trace::new();
            for (at_ns, host, what, numbers) in events {
                trace.event(*at_ns, host, what, numbers);
            }
            trace.hash()
        };
        let (a, b) = ((1, "eu", "send", &[7, 8][..]), (1, "us", "send", &[7, 8][..]));
        assert_eq!(hash(&[a, b]), hash(&[a, b]));
        let other = [(2, "eu", "send", &[7, 8][..]), (1, "eus", "end", &[7, 8]), (1, "eu", "send", &[7]), b];
        for one in other {
            assert_ne!(hash(&[a]), hash(&[one]));
        }
        assert_ne!(hash(&[a, b]), hash(&[b, a]));
    }
}
