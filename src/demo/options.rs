//! What the demo may be asked for.

use std::str::FromStr;
use std::time::Duration;

use crate::limits::parse_duration;
use crate::time::{MS, SECOND};

/// Name and region of the nodes, in order.
pub(super) const NODES: [(&str, &str); 5] =
    [("eu-1", "eu"), ("us-1", "us"), ("ap-1", "ap"), ("sa-1", "sa"), ("af-1", "af")];
/// Requests a second that the demo offers at most, all regions together.
const MAX_RATE: u64 = 20_000;
/// The longest latency of a link, one way.
const MAX_LATENCY: Duration = Duration::from_secs(5);
/// Planned cuts at most.
const MAX_CUTS: usize = 64;

/// How the demo is to be.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Nodes, one a region: 2 to 5
    #[arg(long, default_value_t = 3)]
    pub regions: usize,
    /// What every link adds, one way
    #[arg(long, default_value = "80ms", value_parser = duration)]
    pub latency: Duration,
    /// Tokens a window, for all regions together
    #[arg(long, default_value_t = 100)]
    pub limit: u64,
    /// The limit's window, at least 1s
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub window: Duration,
    /// What each region offers, in times of the limit
    #[arg(long, default_value_t = 5)]
    pub load: u64,
    /// Ends by itself after this long; without it at q or Ctrl-C
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub run_for: Option<Duration>,
    /// Cuts a region off for a while, e.g. 2@5s..12s: the second one, from 5 s to 12 s after the load began
    #[arg(long = "cut", value_name = "REGION@FROM..TO")]
    pub cuts: Vec<Cut>,
    /// Keeps the folder with configs, certificates, data and logs
    #[arg(long)]
    pub keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            regions: 3,
            latency: Duration::from_millis(80),
            limit: 100,
            window: Duration::from_secs(10),
            load: 5,
            run_for: None,
            cuts: Vec::new(),
            keep: false,
        }
    }
}

/// An option that makes no demo.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--{option}: {problem}")]
pub struct BadOptions {
    /// Which.
    pub option: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Options {
    /// The limit's window in nanoseconds.
    pub fn window_ns(&self) -> u64 {
        u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time between two requests of one region, nanoseconds.
    pub(super) fn pace_ns(&self) -> u64 {
        (self.window_ns() / (self.load * self.limit)).max(1)
    }

    /// Whether the demo can be so.
    pub fn check(&self) -> Result<(), BadOptions> {
        let bad = |option, problem: String| Err(BadOptions { option, problem });
        if !(2..=NODES.len()).contains(&self.regions) {
            return bad("regions", format!("{} is not in 2 to {}", self.regions, NODES.len()));
        }
        if self.latency > MAX_LATENCY {
            return bad("latency", format!("at most {} s", MAX_LATENCY.as_secs()));
        }
        if self.window < Duration::from_secs(1) || self.window > Duration::from_secs(3600) {
            return bad("window", "1s to 1h; shorter ones pass before a spend is heard elsewhere".to_owned());
        }
        if self.limit == 0 {
            return bad("limit", "at least 1".to_owned());
        }
        if self.load == 0 {
            return bad("load", "at least 1".to_owned());
        }
        let offered = self.limit.saturating_mul(self.load).saturating_mul(self.regions as u64);
        if u128::from(offered) * u128::from(SECOND) > u128::from(MAX_RATE) * u128::from(self.window_ns()) {
            return bad("load", format!("limit times load is more than {MAX_RATE} requests a second in all"));
        }
        if self.cuts.len() > MAX_CUTS {
            return bad("cut", format!("at most {MAX_CUTS}"));
        }
        match self.cuts.iter().find(|cut| cut.region >= self.regions) {
            Some(cut) => bad("cut", format!("there is no region {}", cut.region + 1)),
            None => Ok(()),
        }
    }
}

/// A cut that is planned: times count from the beginning of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// From 0.
    pub region: usize,
    /// When the region is cut off.
    pub from: Duration,
    /// When it is healed.
    pub to: Duration,
}

/// A cut that is written wrongly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no cut: REGION@FROM..TO, regions from 1, FROM before TO, e.g. 2@5s..12s")]
pub struct BadCut(String);

impl FromStr for Cut {
    type Err = BadCut;

    fn from_str(text: &str) -> Result<Self, BadCut> {
        let parse = || {
            let (region, times) = text.split_once('@')?;
            let (from, to) = times.split_once("..")?;
            let region = region.parse::<usize>().ok()?.checked_sub(1)?;
            let cut = Self { region, from: duration(from).ok()?, to: duration(to).ok()? };
            (cut.from < cut.to).then_some(cut)
        };
        parse().ok_or_else(|| BadCut(text.to_owned()))
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        // Instants of the far future overflow.
        Some(ns) if ns <= 365 * 86_400 * SECOND => Ok(Duration::from_nanos(ns)),
        _ => Err(format!("{text:?} is no duration: a whole number and one of ms s m h d, e.g. \"80ms\"")),
    }
}

/// As limits write durations.
pub(super) fn as_written(duration: Duration) -> String {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    if ns % SECOND == 0 { format!("{}s", ns / SECOND) } else { format!("{}ms", ns / MS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts() {
        let cut: Cut = "2@5s..12s".parse().unwrap();
        assert_eq!(cut, Cut { region: 1, from: Duration::from_secs(5), to: Duration::from_secs(12) });
        assert_eq!("1@250ms..1m".parse::<Cut>().unwrap().to, Duration::from_secs(60));
        for bad in ["", "2", "2@5s", "0@1s..2s", "x@1s..2s", "1@2s..2s", "1@3s..2s", "1@1..2", "1@1s-2s", "-1@1s..2s"] {
            assert!(bad.parse::<Cut>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_makes_no_demo_is_named() {
        let with = |change: &dyn Fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().map_err(|bad| bad.option)
        };
        assert_eq!(with(&|_| {}), Ok(()));
        assert_eq!(with(&|o| o.regions = 1), Err("regions"));
        assert_eq!(with(&|o| o.regions = 6), Err("regions"));
        assert_eq!(with(&|o| o.latency = Duration::from_secs(6)), Err("latency"));
        assert_eq!(with(&|o| o.window = Duration::from_millis(10)), Err("window"));
        assert_eq!(with(&|o| o.limit = 0), Err("limit"));
        assert_eq!(with(&|o| o.load = 0), Err("load"));
        assert_eq!(with(&|o| o.limit = u64::MAX), Err("load"));
        assert_eq!(with(&|o| o.cuts = vec!["4@1s..2s".parse().unwrap()]), Err("cut"));
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["80ms", "10s", "1500ms", "0s"] {
            assert_eq!(as_written(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn the_default_offers_fifty_a_second_in_each_region() {
        assert_eq!(Options::default().pace_ns(), SECOND / 50);
    }
}
