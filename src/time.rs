//! Time: the [`Clock`] trait, and the [`SlotClock`] by which every node places its spends in slots.
//!
//! `slot clock = max(last, wall + adj)`. `wall` runs on the monotonic clock and follows the system clock; `adj` follows
//! the furthest peer heard, so that a slow node does not starve. All times are nanoseconds since the Unix epoch, except
//! the monotonic ones, which have no meaning but their differences.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::id::NodeName;
use crate::planted::{self, PlantedBug};

/// One millisecond.
pub const MS: u64 = 1_000_000;
/// One second.
pub const SECOND: u64 = 1_000_000_000;

/// How fast `wall` and `adj` are brought down, in parts per million.
pub const SLEW_PPM: u64 = 500;
/// A system clock ahead of `wall` by more than this makes `wall` step forward.
pub const STEP_FORWARD_NS: u64 = 10 * MS;
/// A lead of `wall` below this is not told as slewing: clocks that agree differ by as much from one look to the next.
pub const SLEW_NOTICE_NS: u64 = MS;
/// For how long a stamp heard from a peer says something about its clock.
pub const HEARD_FOR_NS: u64 = 2 * SECOND;
/// A slot clock that would stand still for longer than this starts a new life instead.
pub const STAND_STILL_NS: u64 = 10 * SECOND;
/// Peers whose clocks are remembered at most.
pub const MAX_HEARD: usize = 4096;

/// The two clocks of a machine, real or simulated.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds since some fixed instant; never steps.
    fn monotonic_ns(&self) -> u64;
    /// Nanoseconds since the Unix epoch as the system has it; may step.
    fn system_ns(&self) -> u64;
}

/// What a comparison with the system clock came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discipline {
    /// `wall` is as it should be, or on its way there by slewing.
    Following,
    /// `wall` stepped to the system clock, by this many nanoseconds.
    Stepped(i64),
    /// `wall` stepped down so far that the slot clock would stand still for more than [`STAND_STILL_NS`]: the node must
    /// take a new id and drop its own cells beyond the slot clock, which was set to wall + max_skew.
    NewLife,
}

/// What one node knows of another's clock.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// Peer's wall minus the own monotonic clock, nanoseconds.
    offset_ns: i64,
    at_mono_ns: u64,
}

#[derive(Debug, Default)]
struct Inner {
    heard: BTreeMap<NodeName, Heard>,
    disciplined_at_mono_ns: u64,
}

/// The clock of slots. Reading it is two atomic loads and a max; it never runs backwards.
#[derive(Debug)]
pub struct SlotClock {
    max_skew_ns: u64,
    /// wall minus the monotonic clock.
    wall_offset_ns: AtomicI64,
    adj_ns: AtomicI64,
    last_ns: AtomicU64,
    /// How many of `wall` and `adj` are being brought down.
    slewing: AtomicU64,
    inner: Mutex<Inner>,
}

impl SlotClock {
    /// A clock that starts now. `stored_ns` is the slot clock as the journal last saw it, 0 when there is none: the
    /// clock goes on from there, but at most `max_skew_ns` ahead of the system's.
    pub fn start(mono_ns: u64, system_ns: u64, stored_ns: u64, max_skew_ns: u64) -> Self {
        let last = system_ns.max(stored_ns.min(system_ns.saturating_add(max_skew_ns)));
        Self {
            max_skew_ns,
            wall_offset_ns: AtomicI64::new(difference(system_ns, mono_ns)),
            adj_ns: AtomicI64::new(0),
            last_ns: AtomicU64::new(last),
            slewing: AtomicU64::new(0),
            inner: Mutex::new(Inner { heard: BTreeMap::new(), disciplined_at_mono_ns: mono_ns }),
        }
    }

    /// The largest difference between two nodes' clocks that is worked with, nanoseconds.
    pub fn max_skew_ns(&self) -> u64 {
        self.max_skew_ns
    }

    /// The slot clock: monotone over all callers.
    pub fn now(&self, mono_ns: u64) -> u64 {
        let adj = self.adj_ns.load(Ordering::Relaxed);
        let now = self.wall(mono_ns).saturating_add_signed(adj);
        if planted::has(PlantedBug::ClockBackwards) {
            return now;
        }
        self.last_ns.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// This node's own idea of the time of day: what its messages bear. Slot-clock stamps would make perfect clocks
    /// drive each other forward.
    pub fn wall(&self, mono_ns: u64) -> u64 {
        mono_ns.saturating_add_signed(self.wall_offset_ns.load(Ordering::Relaxed))
    }

    /// How far the slot clock is set ahead of `wall` on account of peers, nanoseconds.
    pub fn adj_ns(&self) -> u64 {
        self.adj_ns.load(Ordering::Relaxed).max(0) as u64
    }

    /// How many of `wall` and `adj` were being slewed down at the last comparison (0 to 2): each makes waits in slot-clock
    /// time last longer by [`SLEW_PPM`].
    pub fn slewing(&self) -> u64 {
        self.slewing.load(Ordering::Relaxed)
    }

    /// A message from `peer` arrived that bore its wall, over a link of round trip `rtt_ns`.
    pub fn heard(&self, peer: &NodeName, stamp_ns: u64, rtt_ns: u64, mono_ns: u64) {
        let mut inner = self.inner.lock();
        if inner.heard.len() >= MAX_HEARD && !inner.heard.contains_key(peer) {
            return;
        }
        let offset_ns = difference(stamp_ns.saturating_add(rtt_ns / 2), mono_ns);
        inner.heard.insert(peer.clone(), Heard { offset_ns, at_mono_ns: mono_ns });
        let wanted = self.wanted_adj(&inner, mono_ns);
        self.adj_ns.fetch_max(wanted, Ordering::Relaxed);
    }

    /// How far `peer`'s clock was ahead of this node's when it was last heard, nanoseconds.
    pub fn offset_of(&self, peer: &NodeName) -> Option<i64> {
        let inner = self.inner.lock();
        inner.heard.get(peer).map(|h| h.offset_ns - self.wall_offset_ns.load(Ordering::Relaxed))
    }

    /// Whether `peer`'s clock is further away than can be worked with.
    pub fn beyond_skew(&self, peer: &NodeName) -> bool {
        self.offset_of(peer).is_some_and(|offset| offset.unsigned_abs() > self.max_skew_ns)
    }

    /// The largest lead of a fresh peer that is within the skew; never negative.
    fn wanted_adj(&self, inner: &Inner, mono_ns: u64) -> i64 {
        let wall = self.wall_offset_ns.load(Ordering::Relaxed);
        if planted::has(PlantedBug::AdjIgnored) {
            return 0;
        }
        let leads = inner.heard.values().filter(|h| fresh(h, mono_ns)).map(|h| h.offset_ns - wall);
        leads.filter(|lead| lead.unsigned_abs() <= self.max_skew_ns).fold(0, i64::max)
    }

    /// Compares `wall` with the system clock and slews what is to be slewed. To be called about once a second.
    pub fn discipline(&self, mono_ns: u64, system_ns: u64) -> Discipline {
        let mut inner = self.inner.lock();
        let elapsed = mono_ns.saturating_sub(inner.disciplined_at_mono_ns);
        inner.disciplined_at_mono_ns = mono_ns;
        let slew = (elapsed / 1_000_000 * SLEW_PPM) as i64 + ((elapsed % 1_000_000) * SLEW_PPM / 1_000_000) as i64;

        let adj = self.adj_ns.load(Ordering::Relaxed);
        let wanted = self.wanted_adj(&inner, mono_ns);
        if adj > wanted {
            self.adj_ns.store(adj - slew.min(adj - wanted), Ordering::Relaxed);
        }

        let wall = self.wall(mono_ns);
        let ahead = difference(wall, system_ns);
        let wall_slews = ahead > SLEW_NOTICE_NS as i64;
        self.slewing.store(u64::from(wall_slews) + u64::from(adj > wanted), Ordering::Relaxed);
        if ahead < -(STEP_FORWARD_NS as i64) {
            // What `adj` made up for is in `wall` now: both together must not pass the furthest peer.
            self.adj_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |adj| Some((adj + ahead).max(0))).ok();
            self.wall_offset_ns.store(difference(system_ns, mono_ns), Ordering::Relaxed);
            self.adj_ns.fetch_max(self.wanted_adj(&inner, mono_ns), Ordering::Relaxed);
            return Discipline::Stepped(-ahead);
        }
        if ahead > self.max_skew_ns as i64 && self.ahead_of_all(&inner, mono_ns) {
            return self.step_down(mono_ns, system_ns, ahead);
        }
        if ahead > 0 {
            self.wall_offset_ns.fetch_sub(slew.min(ahead), Ordering::Relaxed);
        }
        Discipline::Following
    }

    /// Whether every fresh peer is more than `max_skew` behind; true when there is none.
    fn ahead_of_all(&self, inner: &Inner, mono_ns: u64) -> bool {
        let wall = self.wall_offset_ns.load(Ordering::Relaxed);
        let mut fresh = inner.heard.values().filter(|h| fresh(h, mono_ns));
        fresh.all(|h| wall - h.offset_ns > self.max_skew_ns as i64)
    }

    fn step_down(&self, mono_ns: u64, system_ns: u64, ahead: i64) -> Discipline {
        self.wall_offset_ns.store(difference(system_ns, mono_ns), Ordering::Relaxed);
        self.adj_ns.store(0, Ordering::Relaxed);
        self.slewing.store(0, Ordering::Relaxed);
        let last = self.last_ns.load(Ordering::Relaxed);
        if last.saturating_sub(system_ns) > STAND_STILL_NS {
            self.last_ns.store(system_ns.saturating_add(self.max_skew_ns), Ordering::Relaxed);
            return Discipline::NewLife;
        }
        Discipline::Stepped(-ahead)
    }
}

fn fresh(heard: &Heard, mono_ns: u64) -> bool {
    mono_ns.saturating_sub(heard.at_mono_ns) <= HEARD_FOR_NS
}

/// `a - b` for times, which are below 2^63 until the year 2262.
fn difference(a: u64, b: u64) -> i64 {
    (i128::from(a) - i128::from(b)).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKEW: u64 = 2 * SECOND;
    const T0: u64 = 1_700_000_000 * SECOND;

    fn name(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[test]
    fn never_backwards_and_on_from_what_was_stored() {
        let clock = SlotClock::start(0, T0, T0 + SECOND, SKEW);
        assert_eq!(clock.now(0), T0 + SECOND);
        assert_eq!(clock.now(SECOND / 2), T0 + SECOND);
        assert_eq!(clock.now(3 * SECOND), T0 + 3 * SECOND);
        let far = SlotClock::start(0, T0, T0 + 100 * SECOND, SKEW);
        assert_eq!(far.now(0), T0 + SKEW);
    }

    #[test]
    fn follows_the_furthest_peer_within_the_skew_and_slews_back() {
        let clock = SlotClock::start(0, T0, 0, SKEW);
        clock.heard(&name("far"), T0 + 3 * SECOND, 0, 0);
        assert_eq!(clock.adj_ns(), 0);
        assert!(clock.beyond_skew(&name("far")));
        clock.heard(&name("ahead"), T0 + 80 * MS, 40 * MS, 0);
        assert_eq!(clock.adj_ns(), 100 * MS);
        assert_eq!(clock.offset_of(&name("ahead")), Some(100 * MS as i64));
        assert_eq!(clock.discipline(3 * SECOND, T0 + 3 * SECOND), Discipline::Following);
        assert_eq!(clock.adj_ns(), 100 * MS - 1500 * 1000);
        assert_eq!(clock.slewing(), 1);
    }

    #[test]
    fn perfect_clocks_do_not_drive_each_other() {
        let (a, b) = (SlotClock::start(0, T0, 0, SKEW), SlotClock::start(0, T0, 0, SKEW));
        for step in 1..2_000u64 {
            let now = step * 50 * MS;
            // 40 ms each way: what is heard now was stamped 40 ms ago.
            a.heard(&name("b"), b.wall(now - 40 * MS), 80 * MS, now);
            b.heard(&name("a"), a.wall(now - 40 * MS), 80 * MS, now);
        }
        assert_eq!((a.adj_ns(), b.adj_ns()), (0, 0));
    }

    #[test]
    fn steps_forward_slews_down() {
        let clock = SlotClock::start(0, T0, 0, SKEW);
        assert_eq!(clock.discipline(SECOND, T0 + 6 * SECOND), Discipline::Stepped(5 * SECOND as i64));
        assert_eq!(clock.wall(SECOND), T0 + 6 * SECOND);
        assert_eq!(clock.discipline(2 * SECOND, T0 + 6 * SECOND), Discipline::Following);
        assert_eq!(clock.wall(2 * SECOND), T0 + 7 * SECOND - 500 * 1000);
    }

    #[test]
    fn a_step_forward_takes_over_what_peers_had_made_up_for() {
        let clock = SlotClock::start(0, T0, 0, SKEW);
        // The machine was paused: its peers are ahead, and so is the system clock.
        clock.heard(&name("p"), T0 + 1500 * MS, 0, 0);
        assert_eq!(clock.now(0), T0 + 1500 * MS);
        assert_eq!(clock.discipline(0, T0 + 1490 * MS), Discipline::Stepped(1490 * MS as i64));
        assert_eq!((clock.adj_ns(), clock.now(0)), (10 * MS, T0 + 1500 * MS));
    }

    #[test]
    fn far_ahead_steps_down_unless_a_peer_agrees() {
        let clock = SlotClock::start(0, T0, 0, SKEW);
        let peer = name("p");
        clock.heard(&peer, T0 + SECOND, 0, SECOND);
        assert_eq!(clock.discipline(SECOND, T0 - 4 * SECOND), Discipline::Following);
        assert!(matches!(clock.discipline(9 * SECOND, T0 + 4 * SECOND), Discipline::Stepped(_)));
        clock.now(9 * SECOND);
        assert_eq!(clock.discipline(10 * SECOND, T0 - 3600 * SECOND), Discipline::NewLife);
        assert_eq!(clock.now(10 * SECOND), T0 - 3600 * SECOND + SKEW);
    }
}
