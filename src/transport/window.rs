//! Congestion control with a floor; and the least round trip, which quinn tells only its congestion control.
//!
//! quinn sends no acknowledgement while data of its own waits for the congestion window. After a cut in which both sides
//! filled their windows neither acknowledges the other's probes, and each waits for its own, which by then are as far
//! apart as the cut was long: a cut of four seconds took up to ten to heal. A window that such a cut does not fill leaves
//! the acknowledgements free, and a beat sent right after the heal is the probe.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::Connection;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

/// What may be in flight to a peer whatever was lost, bytes.
pub const WINDOW_FLOOR_BYTES: u64 = 64 * 1024;

/// Makes Cubic with a floor.
#[derive(Debug, Default)]
pub(super) struct FlooredConfig(Arc<CubicConfig>);

impl ControllerFactory for FlooredConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Floored { inner: self.0.clone().build(now, current_mtu), least_rtt: Duration::ZERO })
    }
}

struct Floored {
    inner: Box<dyn Controller>,
    least_rtt: Duration,
}

/// The least round trip that was measured on a connection; zero before any was. What was lost makes a measurement too
/// long, and the smoothed one with it.
pub(super) fn least_rtt(conn: &Connection) -> Duration {
    conn.congestion_state().into_any().downcast::<Floored>().map_or(Duration::ZERO, |floored| floored.least_rtt)
}

impl Controller for Floored {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.least_rtt = rtt.min();
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window().max(WINDOW_FLOOR_BYTES)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), least_rtt: self.least_rtt })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window().max(WINDOW_FLOOR_BYTES)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a controller takes an instant; which one is no matter")]
    fn whatever_is_lost_the_floor_stays_and_above_it_cubic_decides() {
        let (now, mtu) = (Instant::now(), 1200);
        let mut cubic = Arc::new(CubicConfig::default()).build(now, mtu);
        let mut floored = Arc::new(FlooredConfig::default()).build(now, mtu);
        assert_eq!(floored.initial_window(), WINDOW_FLOOR_BYTES);
        for controller in [&mut cubic, &mut floored] {
            controller.on_congestion_event(now, now, true, 12_000);
        }
        assert!(cubic.window() < WINDOW_FLOOR_BYTES);
        assert_eq!(floored.window(), WINDOW_FLOOR_BYTES);

        let mut wide = CubicConfig::default();
        wide.initial_window(10 * WINDOW_FLOOR_BYTES);
        let mut floored = Arc::new(FlooredConfig(Arc::new(wide))).build(now, mtu);
        floored.on_congestion_event(now, now, false, 12_000);
        assert!((WINDOW_FLOOR_BYTES..10 * WINDOW_FLOOR_BYTES).contains(&floored.window()));
    }
}
