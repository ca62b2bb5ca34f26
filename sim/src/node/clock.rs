//! Time as a simulated host has it.

use std::time::Duration;

use tidegate::time::{Clock, MS};

use crate::clock::SimClock;

/// Nanoseconds since the start of the run. Only on a simulated host.
pub fn elapsed_ns() -> u64 {
    let elapsed = turmoil::sim_elapsed().expect("virtual time is read on simulated hosts only");
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits until `ms` of the run.
pub async fn sleep_until_ms(ms: u64) {
    tokio::time::sleep(Duration::from_nanos((ms * MS).saturating_sub(elapsed_ns()))).await;
}

/// The clocks of one machine. The monotonic one is true time: what makes nodes disagree is what they believe the time of
/// day to be.
pub struct NodeClock(pub SimClock);

impl Clock for NodeClock {
    fn monotonic_ns(&self) -> u64 {
        elapsed_ns()
    }

    fn system_ns(&self) -> u64 {
        self.0.system_at(elapsed_ns())
    }
}
