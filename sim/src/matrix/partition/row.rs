//! What the runs of a cell came to, as a line of the table.

use std::fmt;

use serde::Serialize;

use crate::matrix::Spread;

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Who is cut off from whom.
    pub shape: String,
    /// For how many seconds.
    pub lasting_s: u64,
    /// Seconds.
    pub window_s: u64,
    /// How the limit counts.
    pub algorithm: String,
    /// How many runs there are.
    pub runs: usize,
    /// How many sides count alone: as many times what one limiter would have admitted is expected.
    pub sides: u64,
    /// Tokens admitted during the cut, as a multiple of what one limiter would have admitted.
    pub during_times: Option<Spread>,
    /// The same, in per cent of what is promised at most.
    pub of_promise_pct: Option<Spread>,
    /// Tokens admitted from the heal to the recovery, as a multiple of what one limiter would have admitted: of all runs
    /// together, since a run may have little of it.
    pub recovering_times: Option<f64>,
    /// And from then on.
    pub after_times: Option<Spread>,
    /// Seconds from the heal until every node knew what had been spent by then.
    pub heal_s: Option<Spread>,
    /// Seconds from the heal until, knowing it, one admitted again.
    pub recover_s: Option<Spread>,
    /// Seconds from the one to the other at most.
    pub recover_promised_s: f64,
    /// Of all runs.
    pub false_denials: u64,
    /// Runs in which something did not hold.
    pub broken: usize,
}

/// What stands over the lines.
pub fn heading() -> String {
    format!(
        "{:>6} {:>5} {:>6} {:<14} {:>4} {:>5} {:>6} {:>6} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6} {:>6} {:>6}",
        "shape",
        "cut",
        "window",
        "algorithm",
        "runs",
        "sides",
        "during",
        "most",
        "of max%",
        "recover",
        "after",
        "most",
        "heal",
        "most",
        "again",
        "most",
        "within",
        "falsed",
        "broken"
    )
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(during), Some(of_promise), Some(after), Some(heal), Some(recover)) =
            (self.during_times, self.of_promise_pct, self.after_times, self.heal_s, self.recover_s)
        else {
            let (shape, algorithm) = (&self.shape, &self.algorithm);
            return write!(
                f,
                "{shape:>6} {:>4}s {:>5}s {algorithm:<14} no run recovered",
                self.lasting_s, self.window_s
            );
        };
        let recovering = self.recovering_times.map_or("-".to_owned(), |times| format!("{times:.2}x"));
        write!(
            f,
            "{:>6} {:>4}s {:>5}s {:<14} {:>4} {:>5} {:>5.2}x {:>5.2}x {:>7.0} {recovering:>7} {:>5.2}x {:>5.2}x {:>5.1}s \
             {:>5.1}s {:>6.1}s {:>5.1}s {:>5.0}s {:>6} {:>6}",
            self.shape,
            self.lasting_s,
            self.window_s,
            self.algorithm,
            self.runs,
            self.sides,
            during.mean,
            during.most,
            of_promise.most,
            after.mean,
            after.most,
            heal.mean,
            heal.most,
            recover.mean,
            recover.most,
            self.recover_promised_s,
            self.false_denials,
            self.broken
        )
    }
}
