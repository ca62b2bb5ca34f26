//! What requests came to, beside what one limiter that hears of everything at once would have made of them.

use serde::Serialize;

use crate::history::{History, Outcome};
use crate::report::{answered, one_limiter};

/// A request of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// When it was sent, milliseconds of the run.
    pub at_ms: u64,
    /// Whom it was sent to.
    pub node: usize,
    /// Tokens admitted.
    pub admitted: u64,
    /// Tokens that one limiter would have admitted.
    pub allowed: u64,
}

/// The requests for a key, in the order of their answers.
pub fn asked(history: &History, key: usize) -> Vec<Asked> {
    let requests = answered(history, key);
    let allowed = one_limiter(history.rule(key), &requests);
    let one = |(request, allowed): (&&crate::history::Request, u64)| Asked {
        at_ms: request.sent_ns / 1_000_000,
        node: request.life.node,
        admitted: if request.outcome == Outcome::Admitted { request.cost } else { 0 },
        allowed,
    };
    requests.iter().zip(allowed).map(one).collect()
}

/// Tokens admitted and allowed from one time to before another.
pub fn sums(asked: &[Asked], from_ms: u64, until_ms: u64) -> (u64, u64) {
    let within = asked.iter().filter(|asked| (from_ms..until_ms).contains(&asked.at_ms));
    within.fold((0, 0), |sum, asked| (sum.0 + asked.admitted, sum.1 + asked.allowed))
}

/// Admitted, as a multiple of allowed; None where nothing was allowed.
pub fn times((admitted, allowed): (u64, u64)) -> Option<f64> {
    (allowed > 0).then(|| admitted as f64 / allowed as f64)
}

/// Admitted beyond allowed, per cent of allowed.
pub fn over_pct(sums: (u64, u64)) -> f64 {
    times(sums).map_or(0.0, |times| 100.0 * (times - 1.0))
}

/// What a node admitted, over an equal share of what all did.
pub fn share(asked: &[Asked], node: usize, nodes: usize) -> f64 {
    let own: u64 = asked.iter().filter(|asked| asked.node == node).map(|asked| asked.admitted).sum();
    let all: u64 = asked.iter().map(|asked| asked.admitted).sum();
    if all > 0 { own as f64 * nodes as f64 / all as f64 } else { 1.0 }
}

/// A figure over several runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these; None where there are none.
    pub fn of(all: impl IntoIterator<Item = f64>) -> Option<Self> {
        let all: Vec<f64> = all.into_iter().collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let (least, most) = (all.iter().copied().reduce(f64::min)?, all.iter().copied().reduce(f64::max)?);
        Some(Self { mean, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_at(at_ms: u64, node: usize, admitted: u64, allowed: u64) -> Asked {
        Asked { at_ms, node, admitted, allowed }
    }

    #[test]
    fn figures_by_hand() {
        let asked = [asked_at(10, 0, 3, 3), asked_at(20, 1, 2, 0), asked_at(30, 0, 1, 1), asked_at(40, 2, 0, 1)];
        assert_eq!(sums(&asked, 10, 40), (6, 4));
        assert_eq!(sums(&asked, 11, 41), (3, 2));
        assert_eq!(times((6, 4)), Some(1.5));
        assert_eq!(times((6, 0)), None);
        assert!((over_pct((6, 4)) - 50.0).abs() < 1e-9 && (over_pct((3, 4)) + 25.0).abs() < 1e-9);
        // 4 of 6, where 2 were fair.
        assert!((share(&asked, 0, 3) - 2.0).abs() < 1e-9 && (share(&asked, 1, 3) - 1.0).abs() < 1e-9);
        assert!(share(&asked, 2, 3).abs() < 1e-9);
        assert_eq!(Spread::of([1.0, 4.0, 1.0]), Some(Spread { mean: 2.0, least: 1.0, most: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
