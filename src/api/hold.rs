//! Holding an answer back until its caller's turn has come: `wait=true`.

use std::time::Duration;

use super::App;
use super::waits::Waits;

/// The longest that an answer is held; what is left of a longer delay is told in it.
pub const MAX_HOLD: Duration = Duration::from_secs(60);
/// Answers that are held at once. Beyond it they go out at once and tell their delay.
pub const MAX_HELD: usize = 10_000;

impl App {
    /// Holds an admitted answer for its delay, in slot-clock nanoseconds. Returns how much of that has passed: less than
    /// all when the delay is longer than [`MAX_HOLD`], too many are held already, or the node stops. The turn was given
    /// when the request was decided: nothing changes it.
    pub(super) async fn hold(&self, delay_ns: u64, waits: Waits) -> u64 {
        let Ok(_held) = self.held.try_acquire() else { return 0 };
        let mut stopping = self.service.stopping.clone();
        let begun_ns = self.service.clock.monotonic_ns();
        let told = Duration::from_nanos(waits.told_ns(delay_ns));
        tokio::select! {
            () = tokio::time::sleep(told.min(MAX_HOLD)) => {
                if told <= MAX_HOLD { delay_ns } else { MAX_HOLD.as_nanos() as u64 }
            }
            // An error means that the node was dropped, which stops it too.
            _ = stopping.wait_for(|stop| *stop) => {
                self.service.clock.monotonic_ns().saturating_sub(begun_ns).min(delay_ns)
            }
        }
    }
}
