//! What the demo shows while it runs, as text: a table for a terminal, one line a second for a pipe. No I/O.

use std::time::Duration;

use super::observe::{Observed, Seen};
use super::options::NODES;
use super::windows::{Bound, Window};
use crate::time::SECOND;

/// Characters of the bar that stand for the limit.
const BAR: u64 = 40;
/// Characters of the bar beyond the limit.
const BAR_BEYOND: u64 = 12;
/// What is missing.
const UNKNOWN: &str = "-";

/// How a line is to be seen on a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    /// As any text.
    Normal,
    /// Headings and hints.
    Faint,
    /// A region that is cut off.
    Warning,
    /// Something promised is broken.
    Alarm,
}

/// One line of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    /// What it says.
    pub text: String,
    /// How.
    pub tone: Tone,
}

impl Line {
    /// A line.
    pub(super) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }
}

/// All that is shown at one moment.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// Since the load began.
    pub elapsed: Duration,
    /// The time of day.
    pub now_ns: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// The current window.
    pub window: Window,
    /// The worst window so far.
    pub worst: Option<Window>,
    /// What is promised of it.
    pub bound: Bound,
    /// What each node says of itself.
    pub seen: Vec<Seen>,
    /// Which regions' relays drop everything.
    pub cut: Vec<bool>,
    /// What happened lately, oldest first.
    pub news: Vec<String>,
}

impl Frame {
    /// The table.
    pub(super) fn table(&self) -> Vec<Line> {
        let mut lines = vec![self.clock(), Line::new(Tone::Normal, ""), self.heading()];
        lines.extend((0..self.cut.len()).map(|region| self.row(region)));
        lines.push(Line::new(Tone::Normal, ""));
        lines.push(self.total());
        lines.push(self.worst_line());
        lines.push(Line::new(Tone::Normal, ""));
        lines.push(Line::new(
            Tone::Faint,
            format!("keys: 1-{} cut a region off, or heal it; q or Ctrl-C stops", self.cut.len()),
        ));
        lines.extend(self.news.iter().map(|news| Line::new(Tone::Normal, news.clone())));
        lines
    }

    fn clock(&self) -> Line {
        let start_ns = self.window.index * self.window_ns;
        let into = self.now_ns.saturating_sub(start_ns) as f64 / SECOND as f64;
        Line::new(
            Tone::Faint,
            format!(
                "{:>5} s   this window: {} to {} UTC, {into:.1} s of it gone",
                self.elapsed.as_secs(),
                time_of_day(start_ns),
                time_of_day(start_ns + self.window_ns)
            ),
        )
    }

    fn heading(&self) -> Line {
        let mut text = format!("{:10}{:>8}{:>9}{:>7}{:>7}", "region", "offered", "admitted", "denied", "count");
        (0..self.cut.len()).for_each(|of| text.push_str(&format!("{:>11}", format!("of {}", NODES[of].0))));
        Line::new(Tone::Faint, text + &format!("{:>7}", "lag"))
    }

    fn row(&self, region: usize) -> Line {
        let tally = self.window.regions[region];
        let name = NODES[region].0;
        let label = format!("{} {name}{}", region + 1, if self.cut[region] { " CUT" } else { "" });
        let mut text = format!("{label:10}{:>8}{:>9}{:>7}", tally.offered, tally.admitted, tally.denied);
        let tone = match (&self.seen[region], self.cut[region]) {
            (Ok(observed), cut) => {
                text.push_str(&format!("{:>7}", observed.used));
                (0..self.cut.len()).for_each(|of| text.push_str(&format!("{:>11}", knows(observed, region, of))));
                text.push_str(&format!("{:>7}", age(observed.lag_of_peers_ms())));
                if cut { Tone::Warning } else { Tone::Normal }
            }
            (Err(why), _) => {
                text.push_str(&format!("  {why}"));
                Tone::Alarm
            }
        };
        Line::new(tone, text)
    }

    fn total(&self) -> Line {
        let admitted = self.window.admitted();
        let most = self.bound.of_window(&self.window);
        Line::new(
            if admitted > most { Tone::Alarm } else { Tone::Normal },
            format!(
                "all regions, this window: {admitted:>5} of {}  {}",
                self.bound.limit,
                bar(admitted, self.bound.limit)
            ),
        )
    }

    fn worst_line(&self) -> Line {
        let Some(worst) = &self.worst else { return Line::new(Tone::Normal, "") };
        let (admitted, most) = (worst.admitted(), self.bound.of_window(worst));
        Line::new(
            if admitted > most { Tone::Alarm } else { Tone::Normal },
            format!(
                "worst window so far:      {admitted:>5} of {}  {}, at {}, may be {most}{}",
                self.bound.limit,
                over(admitted, self.bound.limit),
                time_of_day(worst.index * self.window_ns),
                sides(worst)
            ),
        )
    }

    /// One line with the same.
    pub(super) fn plain(&self) -> String {
        let worst = self.worst.as_ref().map_or(0, Window::admitted);
        let start_ns = self.window.index * self.window_ns;
        let regions: Vec<String> = (0..self.cut.len()).map(|region| self.plain_region(region)).collect();
        format!(
            "{:>3} s  window {}: {} of {} admitted, worst {worst} | {}",
            self.elapsed.as_secs(),
            time_of_day(start_ns),
            self.window.admitted(),
            self.bound.limit,
            regions.join(" | ")
        )
    }

    fn plain_region(&self, region: usize) -> String {
        let tally = self.window.regions[region];
        let cut = if self.cut[region] { " CUT" } else { "" };
        let knows = match &self.seen[region] {
            Ok(observed) => format!("count {} lag {}", observed.used, age(observed.lag_of_peers_ms())),
            Err(why) => why.clone(),
        };
        format!("{}{cut} {}+{} {knows}", NODES[region].0, tally.admitted, tally.denied)
    }
}

/// What a region's node has counted for `of`, and how old that is.
fn knows(observed: &Observed, region: usize, of: usize) -> String {
    let name = NODES[of].0;
    let used = observed.share(name);
    if of == region { used.to_string() } else { format!("{used} {:>6}", age(observed.stale_ms(name))) }
}

/// A few characters for an age.
pub(super) fn age(ms: Option<u64>) -> String {
    match ms {
        None => UNKNOWN.to_owned(),
        Some(ms) if ms < 10_000 => format!("{ms}ms"),
        Some(ms) => format!("{}s", ms / 1000),
    }
}

fn bar(admitted: u64, limit: u64) -> String {
    let cells =
        (u128::from(admitted) * u128::from(BAR) / u128::from(limit.max(1))).min(u128::from(BAR + BAR_BEYOND)) as u64;
    let within = cells.min(BAR);
    let repeat = |what: &str, count: u64| what.repeat(count as usize);
    let beyond = repeat("+", cells - within);
    format!("[{}{}]{beyond}", repeat("#", within), repeat(".", BAR - within))
}

/// How far above or below the limit, in percent of it.
pub(super) fn over(admitted: u64, limit: u64) -> String {
    let tenths = (i128::from(admitted) - i128::from(limit)) * 1000 / i128::from(limit.max(1));
    let sign = if tenths < 0 { '-' } else { '+' };
    format!("{sign}{}.{} %", tenths.abs() / 10, tenths.abs() % 10)
}

/// Says so when a window was cut into parts.
pub(super) fn sides(window: &Window) -> String {
    match window.sides() {
        1 => String::new(),
        sides => format!(" ({sides} sides, each by itself)"),
    }
}

/// HH:MM:SS, UTC.
pub(super) fn time_of_day(ns: u64) -> String {
    let second = ns / SECOND % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::super::observe::{Peer, Share};
    use super::super::windows::Tally;
    use super::*;

    fn observed(used: u64, ages: [Option<u64>; 3]) -> Observed {
        let names = ["eu-1", "us-1", "ap-1"];
        let share = |(name, stale_ms): (&str, Option<u64>)| Share { node: name.into(), used: 33, stale_ms };
        let peer = |(name, lag_ms): (&str, Option<u64>)| Peer { name: name.into(), state: "connected".into(), lag_ms };
        let ages = || names.into_iter().zip(ages);
        Observed { used, shares: ages().map(share).collect(), peers: ages().map(peer).collect() }
    }

    fn frame() -> Frame {
        let tally = |admitted| Tally { offered: 310, admitted, denied: 310 - admitted, failed: 0 };
        let window = Window {
            index: 170_000_001,
            regions: vec![tally(34), tally(33), tally(40)],
            apart: vec![false, true, false],
        };
        Frame {
            elapsed: Duration::from_millis(7_300),
            now_ns: 1_700_000_016_200_000_000,
            window_ns: 10 * SECOND,
            worst: Some(window.clone()),
            window,
            bound: Bound { limit: 100, unheard: 20 },
            seen: vec![
                Ok(observed(99, [Some(0), Some(90), Some(12_000)])),
                Ok(observed(98, [Some(88), Some(0), None])),
                Err("no answer".into()),
            ],
            cut: vec![false, true, false],
            news: vec!["us-1 is cut off".into()],
        }
    }

    #[test]
    fn the_table() {
        let text: Vec<String> = frame().table().into_iter().map(|line| line.text).collect();
        let expected = "
    7 s   this window: 22:13:30 to 22:13:40 UTC, 6.2 s of it gone

region     offered admitted denied  count    of eu-1    of us-1    of ap-1    lag
1 eu-1         310       34    276     99         33  33   90ms  33    12s    12s
2 us-1 CUT     310       33    277     98  33   88ms         33  33      -   88ms
3 ap-1         310       40    270  no answer

all regions, this window:   107 of 100  [########################################]++
worst window so far:        107 of 100  +7.0 %, at 22:13:30, may be 220 (2 sides, each by itself)

keys: 1-3 cut a region off, or heal it; q or Ctrl-C stops
us-1 is cut off";
        assert_eq!(text.join("\n"), expected.trim_start_matches('\n'));
    }

    #[test]
    fn the_plain_line() {
        assert_eq!(
            frame().plain(),
            "  7 s  window 22:13:30: 107 of 100 admitted, worst 107 | eu-1 34+276 count 99 lag 12s | \
             us-1 CUT 33+277 count 98 lag 88ms | ap-1 40+270 no answer"
        );
    }

    #[test]
    fn what_is_wrong_stands_out() {
        let mut frame = frame();
        frame.window.apart = vec![false; 3];
        frame.window.regions[0].admitted = 60;
        let table = frame.table();
        let tones: Vec<Tone> = table.iter().map(|line| line.tone).collect();
        assert_eq!(tones[3..6], [Tone::Normal, Tone::Warning, Tone::Alarm]);
        assert_eq!(tones[7..9], [Tone::Alarm, Tone::Normal]);
    }

    #[test]
    fn percentages() {
        assert_eq!(over(107, 100), "+7.0 %");
        assert_eq!(over(100, 100), "+0.0 %");
        assert_eq!(over(975, 1000), "-2.5 %");
    }
}
