//! Tells of failed handshakes, but not too often: whoever can reach the port can make them fail.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// An address is told of once in this time.
pub const REJECTS_EVERY: Duration = Duration::from_secs(60);
/// Addresses remembered, and so told of, within [`REJECTS_EVERY`].
pub const MAX_REJECTS: usize = 1024;

/// The addresses told of lately.
#[derive(Default)]
pub(super) struct Rejects(Mutex<Table>);

#[derive(Default)]
struct Table {
    told: HashSet<SocketAddr>,
    /// The same, in the order of time.
    order: VecDeque<(Instant, SocketAddr)>,
}

impl Rejects {
    /// Whether to tell of a stranger now. A stranger may choose its port, so it counts by its address alone.
    pub(super) fn stranger(&self, remote: SocketAddr, now: Instant) -> bool {
        self.may_tell(SocketAddr::new(remote.ip(), 0), now)
    }

    /// Whether to tell of an address that this node dialed now.
    pub(super) fn seed(&self, remote: SocketAddr, now: Instant) -> bool {
        self.may_tell(remote, now)
    }

    fn may_tell(&self, addr: SocketAddr, now: Instant) -> bool {
        let mut table = self.0.lock();
        while let Some(&(at, old)) = table.order.front() {
            if now.saturating_duration_since(at) < REJECTS_EVERY {
                break;
            }
            table.order.pop_front();
            table.told.remove(&old);
        }
        if table.order.len() >= MAX_REJECTS || !table.told.insert(addr) {
            return false;
        }
        table.order.push_back((now, addr));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u32, port: u16) -> SocketAddr {
        SocketAddr::new(std::net::Ipv4Addr::from(n).into(), port)
    }

    #[test]
    fn once_an_address_and_minute() {
        let (rejects, start) = (Rejects::default(), Instant::now());
        assert!(rejects.stranger(addr(1, 1), start));
        assert!(!rejects.stranger(addr(1, 2), start + Duration::from_secs(59)));
        assert!(rejects.stranger(addr(2, 1), start + Duration::from_secs(59)));
        assert!(rejects.stranger(addr(1, 3), start + Duration::from_secs(60)));
        assert!(!rejects.stranger(addr(2, 1), start + Duration::from_secs(61)));
        // Seeds of one machine are told apart.
        assert!(rejects.seed(addr(1, 1), start) && rejects.seed(addr(1, 2), start));
    }

    #[test]
    fn the_table_is_bounded_and_empties() {
        let (rejects, start) = (Rejects::default(), Instant::now());
        let told = (0..5000).filter(|n| rejects.stranger(addr(*n, 1), start)).count();
        assert_eq!(told, MAX_REJECTS);
        assert_eq!(rejects.0.lock().told.len(), MAX_REJECTS);
        assert!(rejects.stranger(addr(4999, 1), start + REJECTS_EVERY));
        assert_eq!(rejects.0.lock().told.len(), 1);
    }
}
