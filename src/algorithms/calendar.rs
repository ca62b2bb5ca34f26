//! Days, weeks, months and years of a time zone: windows that begin when a calendar page is turned.
//!
//! A period is numbered by the Unix second at which it begins, so that a node which does not know the zone (one built
//! with an older database) still knows when its cells are over. The zones are those of the database that is built in:
//! the same on every machine, whatever its system has.

use std::fmt;
use std::sync::LazyLock;

use jiff::civil::{Date, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};

use crate::time::SECOND;

/// The longest name of a zone, bytes.
pub const MAX_ZONE_BYTES: usize = 39;

const HOUR_NS: u64 = 3600 * SECOND;
const DAY_NS: u64 = 24 * HOUR_NS;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A page of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From Monday's midnight on (ISO 8601).
    Week,
    /// From the first's midnight on.
    Month,
    /// From the first of January's midnight on.
    Year,
}

impl Period {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// As configurations have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The length of the longest without a change of the clocks, nanoseconds: what is told as the window's length.
    pub fn nominal_ns(self) -> u64 {
        match self {
            Self::Day => DAY_NS,
            Self::Week => 7 * DAY_NS,
            Self::Month => 31 * DAY_NS,
            Self::Year => 366 * DAY_NS,
        }
    }

    /// No period is longer, nanoseconds: a zone that turns its clocks back, or changes sides of the date line, has one
    /// that takes up to a day more.
    pub fn longest_ns(self) -> u64 {
        self.nominal_ns() + DAY_NS
    }

    /// The first day of the page that holds `date`.
    fn first(self, date: Date) -> Date {
        match self {
            Self::Day => date,
            Self::Week => {
                let back = i32::from(date.weekday().since(Weekday::Monday));
                date.saturating_sub(back.days())
            }
            Self::Month => date.first_of_month(),
            Self::Year => date.first_of_year(),
        }
    }

    /// The first day of the page after the one that begins on `first`.
    fn next(self, first: Date) -> Date {
        let span = match self {
            Self::Day => 1.day(),
            Self::Week => 1.week(),
            Self::Month => 1.month(),
            Self::Year => 1.year(),
        };
        first.saturating_add(span)
    }
}

/// The name of a time zone of the IANA database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone {
    len: u8,
    name: [u8; MAX_ZONE_BYTES],
}

impl Zone {
    /// The zone of this name, as the database writes it. None when it has none.
    pub fn new(name: &str) -> Option<Self> {
        let zone = ZONES.get(name).ok()?;
        Self::held(zone.iana_name()?)
    }

    /// A name as it came, whether there is such a zone or not: for what others hold. None when it is no such name.
    pub fn held(name: &str) -> Option<Self> {
        let fits = (1..=MAX_ZONE_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| {
            let mut held = Self { len: name.len() as u8, name: [0; MAX_ZONE_BYTES] };
            held.name[..name.len()].copy_from_slice(name.as_bytes());
            held
        })
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.name[..usize::from(self.len)]).unwrap_or("UTC")
    }

    fn rules(&self) -> TimeZone {
        ZONES.get(self.as_str()).unwrap_or(TimeZone::UTC)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Periods of a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Calendar {
    /// How long a page is.
    pub period: Period,
    /// Whose midnight turns it. Of a zone that the database does not know, UTC's does.
    pub zone: Zone,
}

impl Calendar {
    /// The Unix second at which the period of an instant begins.
    pub fn start_s(&self, t_ns: u64) -> u64 {
        let rules = self.zone.rules();
        let first = self.period.first(rules.to_datetime(timestamp(t_ns)).date());
        // Turned back over a midnight, a clock shows a date again that was over: the period that began last counts.
        let start = midnight_s(first, &rules);
        let next = midnight_s(self.period.next(first), &rules);
        if next.saturating_mul(SECOND) <= t_ns { next } else { start }
    }

    /// When the period that begins at the Unix second `start_s` ends, nanoseconds.
    pub fn end_ns(&self, start_s: u64) -> u64 {
        let rules = self.zone.rules();
        let start_ns = start_s.saturating_mul(SECOND);
        let first = self.period.first(rules.to_datetime(timestamp(start_ns)).date());
        midnight_s(self.period.next(first), &rules).saturating_mul(SECOND).max(start_ns.saturating_add(1))
    }
}

fn timestamp(t_ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(t_ns)).unwrap_or(Timestamp::MAX)
}

/// The Unix second at which a day begins: its midnight or, where clocks jump over that, the first instant after.
fn midnight_s(date: Date, rules: &TimeZone) -> u64 {
    let start = rules.to_zoned(date.at(0, 0, 0, 0)).and_then(|zoned| zoned.start_of_day());
    let second = start.map_or(i64::MAX, |zoned| zoned.timestamp().as_second());
    u64::try_from(second).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calendar(period: Period, zone: &str) -> Calendar {
        Calendar { period, zone: Zone::new(zone).unwrap() }
    }

    fn at(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_nanosecond() as u64
    }

    #[test]
    fn pages_turn_at_the_zones_midnight_summer_and_winter() {
        for (period, zone, t, start, end) in [
            (Period::Day, "UTC", "2026-03-29T12:00:00Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"),
            // Clocks go forward: 23 hours. And back: 25.
            (Period::Day, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
            (Period::Day, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
            (Period::Week, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"),
            (Period::Month, "America/New_York", "2026-03-01T04:59:59Z", "2026-02-01T05:00:00Z", "2026-03-01T05:00:00Z"),
            (Period::Month, "America/New_York", "2026-03-01T05:00:00Z", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"),
            (Period::Year, "Asia/Tokyo", "2026-12-31T15:00:00Z", "2026-12-31T15:00:00Z", "2027-12-31T15:00:00Z"),
            // Midnight does not exist here: the day begins at one.
            (Period::Day, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"),
            // A day that was left out at the date line.
            (Period::Day, "Pacific/Apia", "2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
        ] {
            let calendar = calendar(period, zone);
            let found = calendar.start_s(at(t));
            let shown = |ns: u64| timestamp(ns).to_string();
            assert_eq!(shown(found * SECOND), start, "{zone} {t}");
            assert_eq!(shown(calendar.end_ns(found)), end, "{zone} {t}");
        }
    }

    #[test]
    fn zones_are_found_by_name() {
        assert_eq!(Zone::new("europe/berlin").unwrap().as_str(), "Europe/Berlin");
        assert!(Zone::new("Europe/Atlantis").is_none() && Zone::new("").is_none());
        let longest = all_names().into_iter().map(|name| name.len()).max().unwrap();
        assert!(longest <= MAX_ZONE_BYTES, "{longest}");
    }

    fn all_names() -> Vec<String> {
        ZONES.available().map(|name| name.as_str().to_owned()).collect()
    }

    proptest! {
        /// Periods follow each other without gap or overlap, in every zone.
        #[test]
        fn every_instant_is_in_one_period(
            t_s in 0u64..9_000_000_000, zone in prop::sample::select(all_names()), period in prop::sample::select(&Period::ALL[..]),
        ) {
            let calendar = calendar(period, &zone);
            let t = t_s * SECOND;
            let start = calendar.start_s(t);
            let end = calendar.end_ns(start);
            prop_assert!(start * SECOND <= t && t < end, "{start} {end}");
            prop_assert_eq!(calendar.start_s(start * SECOND), start);
            prop_assert_eq!(calendar.start_s(end - 1), start);
            prop_assert_eq!(calendar.start_s(end) * SECOND, end);
            prop_assert!(end - start * SECOND <= period.longest_ns());
        }
    }
}
