//! Who is cut off, by plan or by key, and which regions are still apart because a heal has not been noticed yet.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::observe::Seen;
use super::options::{Cut, NODES};
use super::relay::Cuts;

/// Knowledge of a region older than this means that it is apart.
const APART_LAG_MS: u64 = 1_000;
/// For how long after a heal a region may still count as apart; beyond it the cluster has no excuse.
pub(super) const HEAL_GRACE: Duration = Duration::from_secs(15);

/// Something that happened to a region's links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// Cut off.
    Cut(usize),
    /// Its relays forward again.
    Healed(usize),
    /// All regions hear each other again, so long after the heal.
    Rejoined(usize, Duration),
}

impl Event {
    /// For a reader.
    pub(super) fn text(&self) -> String {
        let name = |region: usize| NODES[region].0;
        match self {
            Self::Cut(region) => {
                format!("{} is cut off: it and the others decide by what each side knows", name(*region))
            }
            Self::Healed(region) => format!("{} is healed", name(*region)),
            Self::Rejoined(region, after) => {
                format!(
                    "{} and the others hear each other again, {:.1} s after the heal",
                    name(*region),
                    after.as_secs_f64()
                )
            }
        }
    }
}

/// How a region stands to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Up,
    Cut,
    HealedAt(Instant),
}

/// The state of all cuts.
#[derive(Debug)]
pub(super) struct Partition {
    cuts: Cuts,
    links: Vec<Link>,
    /// What is still to be done: when (after the load began), to which region, cut or heal. Soonest first.
    plan: VecDeque<(Duration, usize, bool)>,
}

impl Partition {
    /// Nobody is cut off yet.
    pub(super) fn new(regions: usize, cuts: Cuts, planned: &[Cut]) -> Self {
        let mut plan: Vec<_> =
            planned.iter().flat_map(|cut| [(cut.from, cut.region, true), (cut.to, cut.region, false)]).collect();
        plan.sort();
        Self { cuts, links: vec![Link::Up; regions], plan: plan.into() }
    }

    /// Cuts off a region that is not, heals one that is.
    pub(super) fn toggle(&mut self, region: usize, now: Instant) -> Option<Event> {
        let cut = *self.links.get(region)? != Link::Cut;
        Some(self.set(region, cut, now))
    }

    /// Does what the plan has for the time until `elapsed` after the load began.
    pub(super) fn follow_plan(&mut self, elapsed: Duration, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((_, region, cut)) = self.plan.pop_front_if(|(at, _, _)| *at <= elapsed) {
            events.push(self.set(region, cut, now));
        }
        events
    }

    fn set(&mut self, region: usize, cut: bool, now: Instant) -> Event {
        self.cuts.set(region, cut);
        self.links[region] = if cut { Link::Cut } else { Link::HealedAt(now) };
        if cut { Event::Cut(region) } else { Event::Healed(region) }
    }

    /// Heals all that is cut, and forgets the rest of the plan.
    pub(super) fn heal_all(&mut self, now: Instant) -> Vec<Event> {
        self.plan.clear();
        let cut: Vec<_> = (0..self.links.len()).filter(|region| self.links[*region] == Link::Cut).collect();
        cut.into_iter().map(|region| self.set(region, false, now)).collect()
    }

    /// Learns from what the nodes say, asked at `asked`, which healed regions are back.
    pub(super) fn learn(&mut self, seen: &[Seen], asked: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        for region in 0..self.links.len() {
            let Link::HealedAt(healed) = self.links[region] else { continue };
            let back = asked > healed && hears_and_is_heard(region, seen, &self.links);
            if back {
                events.push(Event::Rejoined(region, asked.duration_since(healed)));
            }
            if back || asked.duration_since(healed) > HEAL_GRACE {
                self.links[region] = Link::Up;
            }
        }
        events
    }

    /// By region: whether it is cut off from the others, or was and is not back.
    pub(super) fn apart(&self) -> Vec<bool> {
        self.links.iter().map(|link| *link != Link::Up).collect()
    }

    /// By region: whether its relays drop everything.
    pub(super) fn is_cut(&self, region: usize) -> bool {
        self.links[region] == Link::Cut
    }
}

/// Whether a region and all others that are not cut off have fresh knowledge of each other.
fn hears_and_is_heard(region: usize, seen: &[Seen], links: &[Link]) -> bool {
    let fresh = |from: usize, of: usize| {
        let lag = seen.get(from).and_then(|s| s.as_ref().ok()).and_then(|o| o.lag_ms(NODES[of].0));
        lag.is_some_and(|lag| lag <= APART_LAG_MS)
    };
    let others = (0..links.len()).filter(|other| *other != region && links[*other] != Link::Cut);
    others.into_iter().all(|other| fresh(region, other) && fresh(other, region))
}

#[cfg(test)]
mod tests {
    use super::super::observe::{Observed, Peer};
    use super::*;

    fn seen(lag_ms: u64) -> Vec<Seen> {
        let peer = |name: &str| Peer { name: name.into(), state: "connected".into(), lag_ms: Some(lag_ms) };
        let all = || Observed { used: 0, shares: Vec::new(), peers: ["eu-1", "us-1"].map(peer).into() };
        vec![Ok(all()), Ok(all())]
    }

    #[test]
    fn a_plan_is_followed_in_time() {
        let cuts = Cuts::none(2);
        let mut partition = Partition::new(2, cuts.clone(), &["2@5s..12s".parse().unwrap()]);
        let now = Instant::now();
        assert_eq!(partition.follow_plan(Duration::from_secs(4), now), []);
        assert_eq!(partition.follow_plan(Duration::from_secs(5), now), [Event::Cut(1)]);
        assert!(cuts.is_cut(1) && !cuts.is_cut(0));
        assert_eq!(partition.follow_plan(Duration::from_secs(60), now), [Event::Healed(1)]);
        assert!(!cuts.is_cut(1));
    }

    #[test]
    fn a_healed_region_is_apart_until_it_is_heard() {
        let mut partition = Partition::new(2, Cuts::none(2), &[]);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(partition.toggle(0, start), Some(Event::Cut(0)));
        assert_eq!(partition.toggle(7, start), None);
        assert_eq!(partition.learn(&seen(10), start + second), []);
        assert_eq!(partition.toggle(0, start + second), Some(Event::Healed(0)));
        assert_eq!(partition.learn(&seen(5_000), start + 2 * second), []);
        assert_eq!(partition.apart(), [true, false]);
        assert_eq!(partition.learn(&seen(10), start + 3 * second), [Event::Rejoined(0, 2 * second)]);
        assert_eq!(partition.apart(), [false, false]);
    }

    #[test]
    fn there_is_an_end_to_the_excuse_of_a_heal() {
        let mut partition = Partition::new(2, Cuts::none(2), &[]);
        let start = Instant::now();
        partition.toggle(1, start);
        assert_eq!(partition.heal_all(start), [Event::Healed(1)]);
        assert_eq!(partition.learn(&seen(60_000), start + 2 * HEAL_GRACE), []);
        assert_eq!(partition.apart(), [false, false]);
    }
}
