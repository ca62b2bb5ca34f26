//! The demo's last word: every window against the limit, and whether the regions agree. No I/O.

use std::time::Duration;

use super::observe::Seen;
use super::options::NODES;
use super::show::Verdict;
use super::table::{over, sides, time_of_day};
use super::windows::{Bound, SPREADING_MS, Window, Windows};
use super::{Options, windows};
use crate::time::MS;

/// How the nodes' counts came to agree after the load stopped.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// Whether they did.
    pub agree: bool,
    /// After how long they did, or how long was waited.
    pub after: Duration,
    /// What each node said last.
    pub seen: Vec<Seen>,
}

/// All that the summary tells of.
#[derive(Debug)]
pub(super) struct Summary<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// The books.
    pub windows: &'a Windows,
    /// None: no attempt was made.
    pub settled: Option<&'a Settled>,
    /// When the load began and ended, nanoseconds since the epoch.
    pub load_ns: (u64, u64),
    /// Packets that full relays dropped.
    pub overflowed: u64,
    /// What went wrong beside: a node that ended by itself, a node that did not stop.
    pub problems: &'a [String],
}

impl Summary<'_> {
    /// What it comes to.
    pub(super) fn verdict(&self) -> Verdict {
        let worst = self.windows.worst();
        Verdict {
            regions_agree: self.settled.is_some_and(|settled| settled.agree),
            within_bound: worst.is_some_and(|worst| worst.admitted() <= self.windows.bound().of_window(worst)),
            problems: self.problems.to_vec(),
        }
    }

    /// As text.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new(), "SUMMARY".to_owned()];
        self.add_regions(&mut lines);
        self.add_windows(&mut lines);
        self.add_settled(&mut lines);
        if self.overflowed > 0 {
            lines.push(format!("relays dropped {} packets because their queues were full", self.overflowed));
        }
        lines.extend(self.problems.iter().map(|problem| format!("PROBLEM: {problem}")));
        lines
    }

    fn add_regions(&self, lines: &mut Vec<String>) {
        lines.push("requests since the start:".to_owned());
        for (tally, (name, _)) in self.windows.totals().iter().zip(NODES) {
            let failed = if tally.failed > 0 { format!(", failed {}", tally.failed) } else { String::new() };
            lines.push(format!(
                "  {name:6} offered {:>6}, admitted {:>6}, denied {:>6}{failed}",
                tally.offered, tally.admitted, tally.denied
            ));
        }
    }

    fn add_windows(&self, lines: &mut Vec<String>) {
        let Bound { limit, unheard } = self.windows.bound();
        lines.push(format!("admitted by all regions together in each window (aligned to the epoch; limit {limit}):"));
        lines.extend(self.windows.recent().map(|window| format!("  {}", self.window(window))));
        if self.windows.recent().count() == windows::WINDOWS_KEPT {
            lines.push(format!("  (earlier ones left out, the last {} shown)", windows::WINDOWS_KEPT));
        }
        let Some(worst) = self.windows.worst() else { return };
        lines.push(format!(
            "checked: no window above {limit} + {unheard}, the second being what the other regions offer in {} ms of \
             latency and {SPREADING_MS} ms of spreading; every side of a cut has the limit for itself",
            self.options.latency.as_millis()
        ));
        let most = self.windows.bound().of_window(worst);
        let word = if worst.admitted() <= most { "within" } else { "ABOVE" };
        lines.push(format!("the worst: {}: {word} {most}", self.window(worst)));
    }

    fn window(&self, window: &Window) -> String {
        let (start_ns, end_ns) = (self.windows.start_ns(window.index), self.windows.start_ns(window.index + 1));
        let (from, to) = self.load_ns;
        let part = if start_ns < from || end_ns > to {
            let loaded_ms = to.min(end_ns).saturating_sub(from.max(start_ns)) / MS;
            format!(", under load for {}.{} s of it", loaded_ms / 1000, loaded_ms % 1000 / 100)
        } else {
            String::new()
        };
        let limit = self.windows.bound().limit;
        format!(
            "{}  {:>5} of {limit}, {}{}{part}",
            time_of_day(start_ns),
            window.admitted(),
            over(window.admitted(), limit),
            sides(window)
        )
    }

    fn add_settled(&self, lines: &mut Vec<String>) {
        let Some(settled) = self.settled else { return };
        let after = settled.after.as_secs_f64();
        lines.push(if settled.agree {
            format!("after the load stopped every node had the same counts within {after:.2} s (shares rounded down):")
        } else {
            format!("after the load stopped the nodes' counts still DIFFER after {after:.2} s:")
        });
        for (seen, (name, _)) in settled.seen.iter().zip(NODES) {
            lines.push(match seen {
                Ok(observed) => {
                    let shares: Vec<String> = NODES[..self.options.regions]
                        .iter()
                        .map(|(of, _)| format!("{of} {}", observed.share(of)))
                        .collect();
                    format!("  {name:6} counts {:>5}  ({})", observed.used, shares.join(", "))
                }
                Err(why) => format!("  {name:6} {why}"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::observe::{Observed, Share};
    use super::super::windows::Ended;
    use super::*;
    use crate::time::SECOND;

    const W: u64 = 10 * SECOND;
    /// 22:13:20.
    const T0: u64 = 170_000_000 * W;

    fn settled(agree: bool) -> Settled {
        let seen = |used| {
            let share = |node: &str| Share { node: node.into(), used: used / 2, stale_ms: Some(0) };
            Ok(Observed { used, shares: vec![share("eu-1"), share("us-1")], peers: Vec::new() })
        };
        let last = if agree { seen(98) } else { Err("no answer".to_owned()) };
        Settled { agree, after: Duration::from_millis(140), seen: vec![seen(98), last] }
    }

    fn windows(second: u64) -> (Options, Windows) {
        let options = Options { regions: 2, ..Options::default() };
        let mut windows = Windows::new(&options);
        (0..104).for_each(|_| windows.record(0, T0 + 1, Ended::Admitted));
        (0..second).for_each(|_| windows.record(1, T0 + W, Ended::Admitted));
        windows.record(1, T0 + W, Ended::Denied);
        (options, windows)
    }

    #[test]
    fn a_good_run() {
        let (options, windows) = windows(98);
        let settled = settled(true);
        let load_ns = (T0 + 3 * SECOND, T0 + 2 * W);
        let summary = Summary {
            options: &options,
            windows: &windows,
            settled: Some(&settled),
            load_ns,
            overflowed: 0,
            problems: &[],
        };
        let expected = "
SUMMARY
requests since the start:
  eu-1   offered    104, admitted    104, denied      0
  us-1   offered     99, admitted     98, denied      1
admitted by all regions together in each window (aligned to the epoch; limit 100):
  22:13:20    104 of 100, +4.0 %, under load for 7.0 s of it
  22:13:30     98 of 100, -2.0 %
checked: no window above 100 + 10, the second being what the other regions offer in 80 ms of latency and 120 ms of \
spreading; every side of a cut has the limit for itself
the worst: 22:13:20    104 of 100, +4.0 %, under load for 7.0 s of it: within 110
after the load stopped every node had the same counts within 0.14 s (shares rounded down):
  eu-1   counts    98  (eu-1 49, us-1 49)
  us-1   counts    98  (eu-1 49, us-1 49)";
        assert_eq!(summary.lines().join("\n"), expected);
        assert_eq!(summary.verdict().exit_code(), 0);
    }

    #[test]
    fn each_thing_that_is_wrong_makes_it_a_no() {
        let (options, good) = windows(98);
        let (_, above) = windows(111);
        let (agree, differ) = (settled(true), settled(false));
        let problem = ["us-1 ended by itself".to_owned()];
        let verdict = |windows, settled, problems| {
            let summary =
                Summary { options: &options, windows, settled, load_ns: (T0, T0 + W), overflowed: 1, problems };
            assert!(summary.lines().iter().any(|line| line.starts_with("relays dropped 1 packet")));
            summary.verdict().exit_code()
        };
        assert_eq!(verdict(&good, Some(&agree), &[]), 0);
        assert_eq!(verdict(&above, Some(&agree), &[]), 1);
        assert_eq!(verdict(&good, Some(&differ), &[]), 1);
        assert_eq!(verdict(&good, None, &[]), 1);
        assert_eq!(verdict(&good, Some(&agree), &problem), 1);
    }
}
