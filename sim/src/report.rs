//! What a run came to, in figures: one line of a table, or one JSON document.

use serde::Serialize;

use crate::checks;
use crate::history::{History, Outcome, Request};
use crate::model::Spend;
use crate::scenario::Name;
use crate::world::Run;

/// A run in figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which scenario.
    pub scenario: Name,
    /// Which seed.
    pub seed: u64,
    /// Tokens asked for while the load lasted.
    pub offered: u64,
    /// Tokens admitted.
    pub admitted: u64,
    /// Tokens that one limiter which hears of everything at once would have admitted of the same requests.
    pub allowed: u64,
    /// Admitted beyond allowed, per cent of allowed; negative when less was admitted.
    pub over_pct: f64,
    /// The most that was ever used beyond a limit at one instant, per cent of that limit.
    pub worst_pct: f64,
    /// What `(1 - sum of squared shares) * load * tau` comes to for the key for which it is most, per cent of its limit;
    /// tau as it is while no packet is lost and nobody is cut off.
    pub predicted_pct: f64,
    /// Denials that an omniscient node of the same clock would not have made.
    pub false_denials: u64,
    /// How long after load and faults the last node held all that was spent, milliseconds; None: never.
    pub converge_ms: Option<u64>,
    /// How long after the last fault ended every node held all that had been spent by then, milliseconds; None: never.
    pub heal_ms: Option<u64>,
    /// UDP packets between the nodes.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The smallest share of what was admitted that a node got, over a fair share of it by its load.
    pub least_share: f64,
    /// The largest.
    pub most_share: f64,
    /// Virtual time, milliseconds.
    pub simulated_ms: u64,
    /// Over everything that happened.
    pub trace_hash: String,
    /// The properties that do not hold.
    pub broken: Vec<String>,
}

impl Report {
    /// The figures of a run.
    pub fn of(run: &Run) -> Self {
        let history = &run.history;
        let load: Vec<&Request> = history.load().collect();
        let tokens = |which: &dyn Fn(&Request) -> bool| load.iter().filter(|r| which(r)).map(|r| r.cost).sum::<u64>();
        let admitted = tokens(&|request| request.outcome == Outcome::Admitted);
        let keys = 0..history.limits.len();
        let allowed = keys.clone().map(|key| allowed(history, key)).sum::<u64>();
        let shares = shares(history);
        let largest = |figures: &mut dyn Iterator<Item = f64>| figures.fold(0.0, f64::max);
        Self {
            scenario: history.scenario.name,
            seed: history.scenario.seed,
            offered: tokens(&|_| true),
            admitted,
            allowed,
            over_pct: 100.0 * (admitted as f64 / allowed.max(1) as f64 - 1.0),
            worst_pct: largest(&mut keys.clone().map(|key| worst_pct(history, key))),
            predicted_pct: largest(&mut keys.map(|key| predicted_pct(history, key))),
            false_denials: checks::false_denials(history).len() as u64,
            converge_ms: checks::time_to_converge_ms(history),
            heal_ms: checks::time_to_heal_ms(history),
            packets: run.traffic.packets,
            bytes: run.traffic.bytes,
            least_share: shares.iter().copied().fold(f64::INFINITY, f64::min),
            most_share: largest(&mut shares.iter().copied()),
            simulated_ms: run.simulated_ms,
            trace_hash: run.trace_hash.clone(),
            broken: checks::broken(history),
        }
    }

    /// The heading of [`Report::row`].
    pub fn heading() -> String {
        format!(
            "{:>9} {:>6} {:>7} {:>8} {:>7} {:>6} {:>6} {:>8} {:>6} {:>8} {:>7} {:>7} {:>8} {:>11}  {}",
            "scenario",
            "seed",
            "offered",
            "admitted",
            "allowed",
            "over%",
            "worst%",
            "predict%",
            "falsed",
            "converge",
            "heal",
            "packets",
            "bytes",
            "share",
            "trace hash"
        )
    }

    /// One line of a table.
    pub fn row(&self) -> String {
        let time = |ms: Option<u64>| ms.map_or("never".to_owned(), |ms| format!("{ms}ms"));
        let (converge, heal) = (time(self.converge_ms), time(self.heal_ms));
        let share = format!("{:.2}-{:.2}", self.least_share, self.most_share);
        let scenario = format!("{:?}", self.scenario).to_lowercase();
        format!(
            "{scenario:>9} {:>6} {:>7} {:>8} {:>7} {:>6.1} {:>6.1} {:>8.1} {:>6} {converge:>8} {heal:>7} {:>7} {:>8} {share:>11}  {}",
            self.seed,
            self.offered,
            self.admitted,
            self.allowed,
            self.over_pct,
            self.worst_pct,
            self.predicted_pct,
            self.false_denials,
            self.packets,
            self.bytes,
            self.trace_hash
        )
    }
}

/// What a sweep of several seeds came to: means and extremes.
pub fn summary(reports: &[Report]) -> String {
    let figures = |of: fn(&Report) -> f64| {
        let all = reports.iter().map(of);
        (all.clone().sum::<f64>() / reports.len().max(1) as f64, all.fold(f64::NEG_INFINITY, f64::max))
    };
    let (over, worst) = (figures(|r| r.over_pct), figures(|r| r.worst_pct));
    let converge = figures(|r| r.converge_ms.map_or(f64::INFINITY, |ms| ms as f64));
    let least_share = reports.iter().map(|r| r.least_share).fold(f64::INFINITY, f64::min);
    format!(
        "{} seeds, {} with a broken property; mean/max: over {:.1}/{:.1} %, worst instant {:.1}/{:.1} %, converged in \
         {:.0}/{:.0} ms; {} false denials; the smallest share of a node {least_share:.2} of a fair one",
        reports.len(),
        reports.iter().filter(|r| !r.broken.is_empty()).count(),
        over.0,
        over.1,
        worst.0,
        worst.1,
        converge.0,
        converge.1,
        reports.iter().map(|r| r.false_denials).sum::<u64>(),
    )
}

/// The answered requests of a key, in the order in which they were answered.
fn answered(history: &History, key: usize) -> Vec<&Request> {
    let mut all: Vec<&Request> =
        history.load().filter(|request| request.key == key && request.outcome != Outcome::Unknown).collect();
    all.sort_by_key(|request| request.answered_ns);
    all
}

/// What one limiter that hears of everything at once admits of a key's requests, by the clocks of the nodes asked.
fn allowed(history: &History, key: usize) -> u64 {
    let rule = history.rule(key);
    let (mut now_ns, mut taken, mut sum) = (0, Vec::<Spend>::new(), 0);
    for request in answered(history, key) {
        now_ns = request.slot_to_ns.max(now_ns);
        let recent = taken.iter().rev().take_while(|spend| spend.at_ns + rule.look_back_ns() >= now_ns);
        if rule.used(now_ns, recent.copied()) + request.cost <= rule.capacity() {
            taken.push(Spend { at_ns: now_ns, tokens: request.cost });
            sum += request.cost;
        }
    }
    sum
}

fn worst_pct(history: &History, key: usize) -> f64 {
    let rule = history.rule(key);
    let all = answered(history, key);
    let admitted: Vec<&Request> = all.into_iter().filter(|request| request.outcome == Outcome::Admitted).collect();
    let over = admitted.iter().enumerate().map(|(at, request)| {
        let recent = admitted[..=at].iter().rev();
        let recent = recent.take_while(|other| other.answered_ns + 2 * rule.look_back_ns() >= request.answered_ns);
        rule.used(request.slot_to_ns, recent.map(|other| other.earliest())).saturating_sub(rule.capacity())
    });
    100.0 * over.max().unwrap_or(0) as f64 / rule.capacity() as f64
}

/// Tokens that clients of a node ask for of a key, a second.
fn offered_per_s(history: &History, key: usize, node: usize) -> f64 {
    let plan = &history.scenario.keys[key];
    plan.gap_ms[node].map_or(0.0, |gap_ms| 1_000.0 / gap_ms as f64 * f64::from(1 + plan.most_cost) / 2.0)
}

fn predicted_pct(history: &History, key: usize) -> f64 {
    let nodes = history.scenario.nodes.len();
    let offered: Vec<f64> = (0..nodes).map(|node| offered_per_s(history, key, node)).collect();
    let load: f64 = offered.iter().sum();
    let squares: f64 = offered.iter().map(|one| (one / load).powi(2)).sum();
    let pairs = (0..nodes).flat_map(|a| (0..nodes).filter(move |b| *b != a).map(move |b| (a, b)));
    let tau_ms = pairs.map(|(a, b)| history.scenario.fair_reach_ms(a, b)).max().unwrap_or(0);
    100.0 * (1.0 - squares) * load * (tau_ms as f64 / 1_000.0) / history.rule(key).capacity() as f64
}

/// For each node, what it admitted of the keys that all nodes ask for alike, over an equal share.
fn shares(history: &History) -> Vec<f64> {
    let nodes = history.scenario.nodes.len();
    let even = |key: usize| {
        let gaps = &history.scenario.keys[key].gap_ms;
        gaps.iter()
            .flatten()
            .max()
            .zip(gaps.iter().flatten().min())
            .is_some_and(|(most, least)| most * 10 <= least * 11)
            && gaps.iter().all(Option::is_some)
    };
    let mut by_node = vec![0u64; nodes];
    for request in history.load().filter(|r| r.outcome == Outcome::Admitted && even(r.key)) {
        by_node[request.life.node] += request.cost;
    }
    let fair = by_node.iter().sum::<u64>() as f64 / nodes as f64;
    by_node.iter().map(|tokens| if fair > 0.0 { *tokens as f64 / fair } else { 1.0 }).collect()
}
