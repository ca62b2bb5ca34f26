//! What Prometheus is told. Every node has a recorder of its own, since several may live in one process.
//!
//! What a check counts goes through handles that were registered before; everything else is read from the node when it
//! is asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::{Member, Service};
use crate::engine::{Answer, Op};
use crate::limits::{LimitName, LimitSet, MAX_LIMITS};

const CHECKS: &str = "tidegate_checks_total";
const DURATION: &str = "tidegate_request_duration_seconds";

/// Upper bounds of the histogram, seconds.
const DURATION_BOUNDS: [f64; 13] =
    [2e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 100e-3, 1.0];

/// Durations that may wait to be put into the histogram. The recorder keeps each until then, and nobody may ever ask.
const DURATIONS_WAITING: u64 = 4096;

const METADATA: Metadata<'static> = Metadata::new("tidegate", Level::INFO, None);

/// A node's metrics.
pub(super) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// By limit; names only ever come to it, at most [`MAX_LIMITS`].
    checks: ArcSwap<HashMap<LimitName, Tally>>,
    /// Of limits beyond those.
    other_checks: Tally,
    durations: Durations,
    timed: AtomicU64,
}

/// How often a limit said what.
#[derive(Clone)]
struct Tally {
    allowed: Counter,
    denied: Counter,
    /// Of a limit in shadow mode.
    would_deny: Counter,
}

impl Tally {
    fn new(recorder: &PrometheusRecorder, limit: &str) -> Self {
        let counter = |result| register(recorder, CHECKS, &[("limit", limit), ("result", result)]);
        Self { allowed: counter("allowed"), denied: counter("denied"), would_deny: counter("would_deny") }
    }
}

/// One histogram an operation.
struct Durations {
    check: Histogram,
    peek: Histogram,
    debit: Histogram,
    refund: Histogram,
    reset: Histogram,
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    Key::from_parts(name, labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect::<Vec<_>>())
}

fn register(recorder: &PrometheusRecorder, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
    recorder.register_counter(&key(name, labels), &METADATA)
}

impl Metrics {
    pub(super) fn new() -> Self {
        let bounds =
            PrometheusBuilder::new().set_buckets_for_metric(Matcher::Full(DURATION.to_owned()), &DURATION_BOUNDS);
        let recorder = bounds.expect("the list of bounds is not empty").build_recorder();
        describe(&recorder);
        let duration = |op| recorder.register_histogram(&key(DURATION, &[("op", op)]), &METADATA);
        let durations = Durations {
            check: duration("check"),
            peek: duration("peek"),
            debit: duration("debit"),
            refund: duration("refund"),
            reset: duration("reset"),
        };
        Self {
            handle: recorder.handle(),
            checks: ArcSwap::default(),
            other_checks: Tally::new(&recorder, "_other"),
            durations,
            timed: AtomicU64::new(0),
            recorder,
        }
    }

    /// Counts what each limit said to a check. `limits` are those in force, asked for when one is met the first time.
    pub(super) fn decided(&self, answer: &Answer, limits: impl FnOnce() -> Arc<LimitSet>) {
        let mut known = self.checks.load();
        if known.len() < MAX_LIMITS && !answer.results.iter().all(|outcome| known.contains_key(&outcome.limit.name)) {
            self.learn(&limits());
            known = self.checks.load();
        }
        for outcome in &answer.results {
            let tally = known.get(&outcome.limit.name).unwrap_or(&self.other_checks);
            let counter = match outcome.allowed() {
                true => &tally.allowed,
                false if outcome.limit.is_shadow() => &tally.would_deny,
                false => &tally.denied,
            };
            counter.increment(1);
        }
    }

    fn learn(&self, limits: &LimitSet) {
        self.checks.rcu(|known| {
            let mut known = HashMap::clone(known);
            for limit in limits.iter() {
                if known.len() < MAX_LIMITS && !known.contains_key(&limit.name) {
                    known.insert(limit.name.clone(), Tally::new(&self.recorder, limit.name.as_str()));
                }
            }
            known
        });
    }

    /// Notes how long a request was worked on, from when its body was there until its answer was.
    pub(super) fn took(&self, op: Op, ns: u64) {
        let histogram = match op {
            Op::Check => &self.durations.check,
            Op::Peek => &self.durations.peek,
            Op::Debit => &self.durations.debit,
            Op::Refund => &self.durations.refund,
            Op::Reset => &self.durations.reset,
        };
        histogram.record(ns as f64 / 1e9);
        if self.timed.fetch_add(1, Ordering::Relaxed) % DURATIONS_WAITING == DURATIONS_WAITING - 1 {
            self.handle.run_upkeep();
        }
    }

    /// Everything as text.
    pub(super) fn render(&self, service: &Service) -> String {
        self.learn(&service.engine.limits());
        self.read_engine(service);
        for member in service.node.members().iter().filter(|member| member.state != "self") {
            self.read_peer(member);
        }
        self.read_node(service);
        self.handle.render()
    }

    fn read_engine(&self, service: &Service) {
        let stats = service.engine.stats();
        self.gauge("tidegate_keys", &[], stats.keys as f64);
        self.gauge("tidegate_own_keys", &[], stats.own_keys as f64);
        self.gauge("tidegate_cells", &[], stats.cells as f64);
        self.counter("tidegate_table_full_total", &[("answer", "allowed")], stats.full_allowed);
        self.counter("tidegate_table_full_total", &[("answer", "denied")], stats.full_denied);
        self.counter("tidegate_peer_items_refused_total", &[("why", "table_full")], stats.refused_cells);
        self.counter("tidegate_peer_items_refused_total", &[("why", "expired")], stats.expired_on_arrival);
    }

    fn read_peer(&self, peer: &Member) {
        let labels = [("peer", peer.name.as_str()), ("region", peer.region.as_str())];
        let seconds = |ms: Option<f64>| ms.map_or(f64::NAN, |ms| ms / 1e3);
        self.gauge("tidegate_peer_connected", &labels, f64::from(u8::from(peer.state != "unreachable")));
        self.gauge("tidegate_peer_rtt_seconds", &labels, seconds(peer.rtt_ms.map(|ms| ms as f64)));
        self.gauge("tidegate_peer_lag_seconds", &labels, seconds(peer.lag_ms.map(|ms| ms as f64)));
        self.gauge("tidegate_peer_clock_offset_seconds", &labels, seconds(peer.clock_offset_ms.map(|ms| ms as f64)));
        self.gauge("tidegate_peer_backlog_chunks", &labels, peer.backlog as f64);
    }

    fn read_node(&self, service: &Service) {
        let figures = service.node.figures();
        self.gauge("tidegate_limits", &[], service.engine.limits().len() as f64);
        self.gauge("tidegate_limits_differ", &[], service.node.limits_differ().len() as f64);
        self.gauge("tidegate_degraded", &[], f64::from(u8::from(!service.node.degraded().is_empty())));
        self.gauge("tidegate_ready", &[], f64::from(u8::from(service.node.not_ready().is_none())));
        self.gauge("tidegate_clock_lead_seconds", &[], service.slot_clock.adj_ns() as f64 / 1e9);
        self.gauge("tidegate_journal_failing", &[], f64::from(u8::from(figures.journal_failing)));
        self.gauge("tidegate_journal_queued_bytes", &[], figures.journal_queued_bytes as f64);
        self.counter("tidegate_journal_damaged_records_total", &[], figures.journal_damaged);
        self.counter("tidegate_connections_rejected_total", &[], figures.connections_rejected);
        self.counter("tidegate_peer_chunks_ahead_total", &[], figures.peers_chunks_ahead);
        if let Some(expires) = figures.certificate_expires_unix_s {
            self.gauge("tidegate_certificate_expires_timestamp_seconds", &[], expires as f64);
        }
    }

    fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        self.recorder.register_gauge(&key(name, labels), &METADATA).set(value);
    }

    fn counter(&self, name: &'static str, labels: &[(&'static str, &str)], value: u64) {
        register(&self.recorder, name, labels).absolute(value);
    }
}

fn describe(recorder: &PrometheusRecorder) {
    let counters = [
        (CHECKS, "Decisions of checks, by limit and result"),
        ("tidegate_table_full_total", "Decisions made by a full table of keys"),
        ("tidegate_peer_items_refused_total", "Items of peers that were not taken over"),
        ("tidegate_peer_chunks_ahead_total", "Chunks of peers refused because their clock is too far ahead"),
        ("tidegate_journal_damaged_records_total", "Records of the journal skipped as damaged"),
        ("tidegate_connections_rejected_total", "Failed handshakes and refused connections of peers"),
    ];
    let gauges = [
        ("tidegate_keys", "Keys held"),
        ("tidegate_own_keys", "Keys this node itself has spent on"),
        ("tidegate_cells", "Cells held"),
        ("tidegate_limits", "Limits in force"),
        ("tidegate_limits_differ", "Limits whose definitions differ between nodes"),
        ("tidegate_degraded", "1 when something is wrong with this node"),
        ("tidegate_ready", "1 when this node is ready for traffic"),
        ("tidegate_clock_lead_seconds", "How far the slot clock is set ahead on account of peers"),
        ("tidegate_peer_connected", "1 when the peer is connected"),
        ("tidegate_peer_rtt_seconds", "Round trip to the peer"),
        ("tidegate_peer_lag_seconds", "How old the newest complete knowledge of the peer is"),
        ("tidegate_peer_clock_offset_seconds", "The peer's clock minus this node's"),
        ("tidegate_peer_backlog_chunks", "Own chunks that the peer has not acknowledged"),
        ("tidegate_journal_failing", "1 when the journal cannot be written"),
        ("tidegate_journal_queued_bytes", "Bytes of records that wait for the journal"),
        ("tidegate_certificate_expires_timestamp_seconds", "When this node's certificate ends"),
    ];
    for (name, text) in counters {
        recorder.describe_counter(name.into(), None, text.into());
    }
    for (name, text) in gauges {
        recorder.describe_gauge(name.into(), None, text.into());
    }
    recorder.describe_histogram(DURATION.into(), Some(Unit::Seconds), "Time from a body read to its answer".into());
}
