//! When a spend must be known elsewhere at the latest, in a run with all its troubles: the formulas of
//! [`crate::bound`], applied to a schedule.

use tidegate::limits::{Limit, Retention, Shape};

use crate::bound::{self, DURABLE_MS, reach_ms, rejoin_ms};
use crate::schedule::{DiskState, DiskTrouble, Schedule, What};

const MS: u64 = 1_000_000;
/// Clocks further apart than this are not promised anything, milliseconds: max_skew but for what drifts.
const APART_MS: i64 = 1_900;
/// Clocks further apart than this are beyond max_skew, whatever links and drift make of it, milliseconds.
const SURELY_APART_MS: i64 = 2_200;
/// How long after its system clock jumped a node may go by the former time, milliseconds: looks are a second apart, and
/// stamps of peers are believed for two.
const CLOCK_SETTLES_MS: u64 = 5_000;
/// A process that does not start is tried again after this, milliseconds.
pub const RESTART_MS: u64 = 500;
/// Longer than any run.
const NEVER_MS: u64 = u64::MAX / MS / 4;

/// Half-open, milliseconds of the run.
pub type Span = (u64, u64);

/// Two nodes, the smaller index first.
type Pair = (usize, usize);

/// When nothing passes between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Trouble {
    span: Span,
    /// It ends connections: new ones must be made.
    ends_connections: bool,
}

/// What is promised in a run.
#[derive(Clone, Debug)]
pub struct Reach {
    nodes: usize,
    /// By `from * nodes + to`: when nothing is promised, in order, what it takes to get over it included.
    troubles: Vec<Vec<Span>>,
    /// By `from * nodes + to`.
    reach_ms: Vec<u64>,
    /// By node: when it was down.
    down: Vec<Vec<Span>>,
    /// By node: from when to when what it wrote to its disk may be gone by a crash.
    unsound: Vec<Vec<Span>>,
    /// Nodes refuse cells for want of room: nothing is promised.
    crowded: bool,
    /// Pairs whose clocks stay too far apart, the smaller index first.
    apart_at_end: Vec<(usize, usize)>,
}

impl Reach {
    /// Of this schedule.
    pub fn new(schedule: &Schedule) -> Self {
        let nodes = schedule.nodes.len();
        let down = by_node(nodes, |node| down(schedule, node));
        let paused = by_node(nodes, |node| spans_of_pauses(schedule, node));
        let mut storms = spans(schedule, &|what| match what {
            What::Weather(weather) => Some(bound::is_trouble(weather)),
            _ => None,
        });
        let gaps = spans(schedule, &|what| match what {
            What::Weather(weather) => Some(weather.gap_ppm > 0),
            _ => None,
        });
        storms.extend(gaps.into_iter().map(|(begin_ms, end_ms)| (begin_ms, end_ms + bound::STALL_MS)));
        let corrupt = spans(schedule, &|what| match what {
            What::Weather(weather) => Some(weather.corrupt_ppm > 0),
            _ => None,
        });
        let (far, apart_at_end) = clock_spans(schedule);
        let mut troubles = Vec::new();
        for from in 0..nodes {
            for to in 0..nodes {
                let mut held_up: Vec<Span> = Vec::new();
                let mut ended: Vec<Span> =
                    [from, to].iter().flat_map(|node| down[*node].iter().chain(&paused[*node])).copied().collect();
                if from != to {
                    held_up
                        .extend(storms.iter().copied().chain(cuts(schedule, from, to)).chain(cuts(schedule, to, from)));
                    ended.extend(&corrupt);
                    ended.extend(far.iter().filter(|(pair, _)| *pair == (from.min(to), from.max(to))).map(|far| far.1));
                }
                let all = held_up.into_iter().map(|span| Trouble { span, ends_connections: false });
                let all = all.chain(ended.into_iter().map(|span| Trouble { span, ends_connections: true })).collect();
                troubles.push(merged(all));
            }
        }
        let reach = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let reach_ms = reach.map(|(from, to)| if from == to { 0 } else { reach_ms(schedule, from, to) }).collect();
        let unsound = by_node(nodes, |node| unsound(schedule, node));
        let crowded = schedule.setup.max_cells < 100_000;
        Self { nodes, troubles, reach_ms, down, unsound, crowded, apart_at_end }
    }

    /// When what `from` spent and answered at `answered_ns` must be known at `to`, at the latest; nanoseconds of the run.
    /// None: never promised.
    pub fn due_ns(&self, from: usize, to: usize, answered_ns: u64) -> Option<u64> {
        if self.crowded {
            return None;
        }
        let pair = from * self.nodes + to;
        let (answered_ms, reach_ms) = (answered_ns.div_ceil(MS), self.reach_ms[pair]);
        let mut due_ms = answered_ms.saturating_add(reach_ms);
        for (begin_ms, end_ms) in &self.troubles[pair] {
            if *begin_ms < due_ms && *end_ms > answered_ms {
                due_ms = due_ms.max(end_ms + reach_ms);
            }
        }
        (due_ms < NEVER_MS).then_some(due_ms * MS)
    }

    /// When a life of `node` that began at `start_ns` must know again what was known before; nanoseconds of the run.
    pub fn caught_up_ns(&self, node: usize, start_ns: u64) -> u64 {
        let start_ms = start_ns.div_ceil(MS);
        if start_ms == 0 {
            return 0;
        }
        let pairs = (0..self.nodes).filter(|other| *other != node).map(|other| other * self.nodes + node);
        let after = |pair: usize| {
            let mut at_ms = start_ms + bound::REJOIN_MS + self.reach_ms[pair];
            for (begin_ms, end_ms) in &self.troubles[pair] {
                if *begin_ms < at_ms && *end_ms > start_ms {
                    at_ms = at_ms.max(end_ms + self.reach_ms[pair]);
                }
            }
            at_ms.saturating_mul(MS)
        };
        pairs.map(after).max().unwrap_or(start_ns)
    }

    /// Whether a spend may be lost for good: its node died before it had told anyone or made it durable.
    pub fn may_be_lost(&self, from: usize, answered_ns: u64) -> bool {
        let answered_ms = answered_ns / MS;
        self.down[from].iter().filter(|down| down.0 >= answered_ms).any(|(crash_ms, _)| {
            let torn = answered_ms + DURABLE_MS > *crash_ms || self.loses(from, answered_ms, *crash_ms);
            torn && !(0..self.nodes).any(|other| other != from && self.keeps(other, from, answered_ns, *crash_ms))
        })
    }

    /// Whether `other` knew by then what `from` spent, and knows it still.
    fn keeps(&self, other: usize, from: usize, answered_ns: u64, by_ms: u64) -> bool {
        let Some(due_ns) = self.due_ns(from, other, answered_ns) else { return false };
        let due_ms = due_ns / MS;
        let sound = self.down[other]
            .iter()
            .filter(|down| down.0 >= due_ms)
            .all(|(crash_ms, _)| due_ms + DURABLE_MS <= *crash_ms && !self.loses(other, due_ms, *crash_ms));
        due_ms <= by_ms && sound
    }

    /// Whether what a node wrote at `at_ms` may be gone after it died at `crash_ms`.
    fn loses(&self, node: usize, at_ms: u64, crash_ms: u64) -> bool {
        self.unsound[node].iter().any(|(begin_ms, end_ms)| *begin_ms <= crash_ms && *end_ms >= at_ms)
    }

    /// Whether two nodes must agree at `at_ns`.
    pub fn agree_by(&self, a: usize, b: usize, at_ns: u64) -> bool {
        let calm = |pair: usize| self.troubles[pair].iter().all(|trouble| trouble.1 <= at_ns / MS);
        !self.crowded && calm(a * self.nodes + b) && calm(b * self.nodes + a)
    }

    /// Whether something is wrong between two nodes at that time, what it takes to get over it not included.
    pub fn in_trouble(&self, from: usize, to: usize, at_ns: u64) -> bool {
        self.troubles[from * self.nodes + to].iter().any(|(begin, end)| (*begin..*end).contains(&(at_ns / MS)))
    }

    /// Whether two nodes' clocks are too far apart at the end, whatever they take for the time.
    pub fn surely_apart(&self, a: usize, b: usize) -> bool {
        self.apart_at_end.contains(&(a.min(b), a.max(b)))
    }

    /// When the last trouble that ends is got over, milliseconds of the run.
    pub fn over_ms(&self) -> u64 {
        let ends = self.troubles.iter().flatten().map(|trouble| trouble.1);
        ends.filter(|end_ms| *end_ms < NEVER_MS).max().unwrap_or(0)
    }

    /// Whether nodes refuse cells for want of room.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }
}

/// Whether a cell that arrives then still counts in full: of a bucket's slot that was dropped meanwhile only a part does. A
/// window that is over counts for nobody.
pub fn arrives_whole(limit: &Limit, retention: &Retention, spent_ns: u64, due_ns: u64) -> bool {
    let shape = limit.shape();
    let in_time_ns = shape.kept_ns(retention).saturating_sub(2 * retention.max_skew_ns);
    matches!(shape, Shape::Window(_)) || due_ns.saturating_sub(spent_ns) < in_time_ns
}

fn by_node<T>(nodes: usize, of: impl Fn(usize) -> T) -> Vec<T> {
    (0..nodes).map(of).collect()
}

/// When something is on: `turns` says which events switch it on and off. What is on at the calm ends then.
fn spans(schedule: &Schedule, turns: &dyn Fn(&What) -> Option<bool>) -> Vec<Span> {
    let (mut spans, mut since_ms) = (Vec::new(), None);
    let switches =
        schedule.events.iter().filter_map(|event| Some((event.at_ms.min(schedule.calm_ms), turns(&event.what)?)));
    for (at_ms, on) in switches.chain([(schedule.calm_ms, false)]) {
        match (since_ms, on) {
            (None, true) => since_ms = Some(at_ms),
            (Some(begin_ms), false) => {
                spans.push((begin_ms, at_ms));
                since_ms = None;
            }
            _ => {}
        }
    }
    spans
}

/// When a node is down. On a disk that takes no writes a process does not start, and is tried again a while later.
fn down(schedule: &Schedule, node: usize) -> Vec<Span> {
    let mut down = spans(schedule, &|what| match what {
        What::Crash { node: n } if *n == node => Some(true),
        What::Start { node: n, .. } if *n == node => Some(false),
        _ => None,
    });
    let stuck = spans(schedule, &|what| match what {
        What::Disk { node: n, fault } if *n == node => {
            Some(matches!(fault, Some(DiskTrouble::Full | DiskTrouble::Failing)))
        }
        _ => None,
    });
    for span in &mut down {
        for (begin_ms, end_ms) in &stuck {
            if (*begin_ms..*end_ms).contains(&span.1) {
                span.1 = (end_ms + RESTART_MS).min(schedule.calm_ms);
            }
        }
    }
    down
}

fn spans_of_pauses(schedule: &Schedule, node: usize) -> Vec<Span> {
    spans(schedule, &|what| match what {
        What::Pause { node: n } if *n == node => Some(true),
        What::Resume { node: n } if *n == node => Some(false),
        _ => None,
    })
}

/// When nothing passes from one node to another.
pub fn cuts(schedule: &Schedule, from: usize, to: usize) -> Vec<Span> {
    spans(schedule, &|what| match what {
        What::Cut { from: f, to: t } if (*f, *t) == (from, to) => Some(true),
        What::Heal { from: f, to: t } if (*f, *t) == (from, to) => Some(false),
        _ => None,
    })
}

/// From when to when what a node wrote may be gone by a crash: while its disk is in trouble, and all before it is
/// started on another disk or a damaged one.
fn unsound(schedule: &Schedule, node: usize) -> Vec<Span> {
    let mut spans = spans(schedule, &|what| match what {
        What::Disk { node: n, fault } if *n == node => Some(fault.is_some()),
        _ => None,
    });
    // A machine that stands still writes nothing.
    spans_of_pauses(schedule, node).into_iter().for_each(|span| spans.push(span));
    // After trouble all that lives is written anew, which takes some rounds.
    spans.iter_mut().for_each(|span| span.1 += 20 * DURABLE_MS);
    for event in &schedule.events {
        match event.what {
            What::Start { node: n, disk } if n == node && disk != DiskState::Kept => spans.push((0, event.at_ms)),
            What::Damage { node: n, .. } if n == node => spans.push((0, event.at_ms)),
            _ => {}
        }
    }
    spans
}

/// Pairs of nodes, and when their clocks may be too far apart; and those that surely are at the end.
fn clock_spans(schedule: &Schedule) -> (Vec<(Pair, Span)>, Vec<Pair>) {
    let steps: Vec<(u64, usize, i64)> = schedule
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::Step { node, by_ms } => Some((event.at_ms, node, by_ms)),
            _ => None,
        })
        .collect();
    let nodes = schedule.nodes.len();
    // The least and the most that a node may take for the time, against true time.
    let mut range: Vec<(i64, i64)> =
        schedule.nodes.iter().map(|node| node.clock_offset_us / 1_000).map(|ms| (ms, ms)).collect();
    let mut system: Vec<i64> = range.iter().map(|range| range.0).collect();
    let (mut found, mut from_ms) = (Vec::new(), 0);
    for at in 0..=steps.len() {
        let until_ms = steps.get(at).map_or(NEVER_MS, |step| step.0);
        for a in 0..nodes {
            for b in a + 1..nodes {
                let apart = (range[a].1 - range[b].0).max(range[b].1 - range[a].0);
                if apart > APART_MS {
                    let settled_ms = if until_ms == NEVER_MS { NEVER_MS } else { until_ms + CLOCK_SETTLES_MS };
                    found.push(((a, b), (from_ms, settled_ms)));
                }
            }
        }
        let Some((at_ms, node, by_ms)) = steps.get(at) else { break };
        system[*node] += by_ms;
        // A clock that went back a little is followed slowly, one that went far at once.
        let back = (-by_ms).max(0);
        range[*node] = (system[*node], if back <= 2_000 { range[*node].1.max(system[*node]) } else { system[*node] });
        from_ms = *at_ms;
    }
    let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
    let least = |(a, b): (usize, usize)| (range[a].0 - range[b].1).max(range[b].0 - range[a].1);
    (found, pairs.filter(|pair| least(*pair) > SURELY_APART_MS).collect())
}

/// In order, each with what it takes to get over it; what overlaps is one.
fn merged(mut troubles: Vec<Trouble>) -> Vec<Span> {
    troubles.sort_unstable();
    // With whether a connection has to be made while something else holds it up.
    let mut all: Vec<(Trouble, bool)> = Vec::new();
    let over_ms = |(trouble, hard): &(Trouble, bool)| {
        let (begin_ms, end_ms) = trouble.span;
        end_ms.saturating_add(if *hard { bound::REDIAL_MS } else { rejoin_ms(end_ms - begin_ms) })
    };
    for trouble in troubles {
        match all.last_mut().filter(|last| over_ms(last) >= trouble.span.0) {
            Some((last, hard)) => {
                *hard |= last.ends_connections != trouble.ends_connections;
                last.ends_connections |= trouble.ends_connections;
                last.span.1 = last.span.1.max(trouble.span.1);
            }
            None => all.push((trouble, false)),
        }
    }
    all.iter().map(|one| (one.0.span.0, over_ms(one))).collect()
}
