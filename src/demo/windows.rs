//! The demo's books: what each region was offered, admitted and denied in every epoch-aligned window, and how far
//! above the limit a window may come. [`super::load`] writes them; the table and the summary read them.

use std::collections::BTreeMap;

use super::Options;
use crate::time::MS;

/// Windows kept; the worst is kept for ever.
pub(super) const WINDOWS_KEPT: usize = 16;
/// How long a spend takes to be counted elsewhere, beside the latency: the flush interval of 50 ms, and scheduling on
/// a machine that also runs all the nodes and the load.
pub(super) const SPREADING_MS: u64 = 120;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// 200.
    Admitted,
    /// 429.
    Denied,
    /// Anything else: no answer, an error.
    Failed,
}

/// Requests of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    /// Sent, and answered or given up.
    pub offered: u64,
    /// Of these, admitted.
    pub admitted: u64,
    /// Of these, denied.
    pub denied: u64,
    /// Of these, failed.
    pub failed: u64,
}

impl Tally {
    fn add(&mut self, ended: Ended) {
        self.offered += 1;
        match ended {
            Ended::Admitted => self.admitted += 1,
            Ended::Denied => self.denied += 1,
            Ended::Failed => self.failed += 1,
        }
    }
}

/// One epoch-aligned window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Window {
    /// Its number since the epoch.
    pub index: u64,
    /// By region.
    pub regions: Vec<Tally>,
    /// Which regions were cut off from the others at some time in it.
    pub apart: Vec<bool>,
}

impl Window {
    /// Admitted by all regions.
    pub(super) fn admitted(&self) -> u64 {
        self.regions.iter().map(|tally| tally.admitted).sum()
    }

    /// Into how many parts the cluster fell in it: each decides for itself.
    pub(super) fn sides(&self) -> u64 {
        let apart = self.apart.iter().filter(|apart| **apart).count();
        // All but one cut off, or all: every region is by itself.
        (apart + 1).min(self.apart.len()) as u64
    }
}

/// What is promised of a window's total.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bound {
    /// The limit.
    pub limit: u64,
    /// What the other regions can take before a region hears of it.
    pub unheard: u64,
}

impl Bound {
    /// The bound for a demo: N-1 regions offering for the latency and [`SPREADING_MS`]. 20 for the defaults.
    pub(super) fn of(options: &Options) -> Self {
        let unheard_ms = options.latency.as_millis() as u64 + SPREADING_MS;
        let others_offer = (options.regions as u64 - 1) * options.load * options.limit * unheard_ms;
        let window_ms = (options.window_ns() / MS).max(1);
        Self { limit: options.limit, unheard: others_offer.div_ceil(window_ms) }
    }

    /// The most that `window` may have admitted: each side of a cut has the limit for itself.
    pub(super) fn of_window(&self, window: &Window) -> u64 {
        window.sides() * self.limit + self.unheard
    }
}

/// All windows.
#[derive(Debug)]
pub(super) struct Windows {
    window_ns: u64,
    bound: Bound,
    /// Regions apart now.
    apart: Vec<bool>,
    totals: Vec<Tally>,
    kept: BTreeMap<u64, Window>,
    /// The one furthest above its bound, or nearest below, of those no longer kept.
    worst_dropped: Option<Window>,
}

impl Windows {
    /// Empty books.
    pub(super) fn new(options: &Options) -> Self {
        Self {
            window_ns: options.window_ns(),
            bound: Bound::of(options),
            apart: vec![false; options.regions],
            totals: vec![Tally::default(); options.regions],
            kept: BTreeMap::new(),
            worst_dropped: None,
        }
    }

    /// What is promised.
    pub(super) fn bound(&self) -> Bound {
        self.bound
    }

    /// The number of the window that contains a time.
    pub(super) fn index(&self, at_ns: u64) -> u64 {
        at_ns / self.window_ns
    }

    /// When a window starts.
    pub(super) fn start_ns(&self, index: u64) -> u64 {
        index * self.window_ns
    }

    /// Enters a request that was decided at `at_ns`.
    pub(super) fn record(&mut self, region: usize, at_ns: u64, ended: Ended) {
        self.totals[region].add(ended);
        self.window(at_ns).regions[region].add(ended);
    }

    /// Says which regions cannot hear the others at `now_ns`. To be called more often than windows change.
    pub(super) fn set_apart(&mut self, now_ns: u64, apart: &[bool]) {
        self.apart.copy_from_slice(apart);
        let window = self.window(now_ns);
        window.apart.iter_mut().zip(apart).for_each(|(seen, apart)| *seen |= *apart);
    }

    fn window(&mut self, at_ns: u64) -> &mut Window {
        let index = self.index(at_ns);
        if !self.kept.contains_key(&index) && self.kept.len() >= WINDOWS_KEPT {
            self.drop_oldest();
        }
        let empty = || Window { index, regions: vec![Tally::default(); self.totals.len()], apart: self.apart.clone() };
        self.kept.entry(index).or_insert_with(empty)
    }

    fn drop_oldest(&mut self) {
        let Some((_, oldest)) = self.kept.pop_first() else { return };
        let margin = |window: &Window| self.margin(window);
        if self.worst_dropped.as_ref().is_none_or(|worst| margin(&oldest) > margin(worst)) {
            self.worst_dropped = Some(oldest);
        }
    }

    /// How far a window is above its bound; negative: below.
    fn margin(&self, window: &Window) -> i128 {
        i128::from(window.admitted()) - i128::from(self.bound.of_window(window))
    }

    /// The window that contains `now_ns`.
    pub(super) fn current(&mut self, now_ns: u64) -> Window {
        self.window(now_ns).clone()
    }

    /// The window furthest above its bound, or nearest below, of all there were.
    pub(super) fn worst(&self) -> Option<&Window> {
        self.kept.values().chain(&self.worst_dropped).max_by_key(|window| (self.margin(window), window.index))
    }

    /// The last [`WINDOWS_KEPT`] windows, oldest first.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Window> {
        self.kept.values()
    }

    /// Since the start, by region.
    pub(super) fn totals(&self) -> &[Tally] {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    const W: u64 = 10 * SECOND;

    fn windows() -> Windows {
        Windows::new(&Options::default())
    }

    fn admit(windows: &mut Windows, region: usize, at_ns: u64, count: u64) {
        (0..count).for_each(|_| windows.record(region, at_ns, Ended::Admitted));
    }

    #[test]
    fn the_default_bound_is_a_fifth_above_the_limit() {
        assert_eq!(windows().bound(), Bound { limit: 100, unheard: 20 });
    }

    #[test]
    fn windows_are_aligned_to_the_epoch_and_a_request_is_in_one() {
        let mut windows = windows();
        admit(&mut windows, 0, 5 * W - 1, 3);
        admit(&mut windows, 1, 5 * W, 4);
        admit(&mut windows, 2, 6 * W - 1, 5);
        windows.record(2, 6 * W - 1, Ended::Denied);
        windows.record(2, 6 * W - 1, Ended::Failed);
        let admitted: Vec<_> = windows.recent().map(|w| (w.index, w.admitted())).collect();
        assert_eq!(admitted, [(4, 3), (5, 9)]);
        assert_eq!(windows.totals()[2], Tally { offered: 7, admitted: 5, denied: 1, failed: 1 });
        assert_eq!(windows.worst().unwrap().index, 5);
        assert_eq!(windows.start_ns(5), 5 * W);
    }

    #[test]
    fn the_worst_outlives_the_kept() {
        let mut windows = windows();
        admit(&mut windows, 0, W, 130);
        for index in 2..2 + 2 * WINDOWS_KEPT as u64 {
            admit(&mut windows, 0, index * W, 100);
        }
        assert_eq!(windows.recent().count(), WINDOWS_KEPT);
        assert_eq!(windows.worst().unwrap().admitted(), 130);
    }

    #[test]
    fn every_side_of_a_cut_has_the_limit_for_itself() {
        let mut windows = windows();
        admit(&mut windows, 0, W, 115);
        windows.set_apart(2 * W, &[false, true, false]);
        windows.set_apart(3 * W, &[false, false, false]);
        admit(&mut windows, 0, 2 * W, 210);
        let recent: Vec<_> = windows.recent().cloned().collect();
        assert_eq!(recent.iter().map(Window::sides).collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(windows.bound().of_window(&recent[1]), 220);
        // 115 of 120 is nearer to its bound than 210 of 220.
        assert_eq!(windows.worst().unwrap().index, 1);
        windows.set_apart(4 * W, &[true, true, true]);
        assert_eq!(windows.current(4 * W).sides(), 3);
    }
}
