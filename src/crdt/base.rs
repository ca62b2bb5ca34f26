//! What remains of a bucket's dropped slots.

use super::Mark;

/// At slot `k`: the walk's scaled time and debits at the **end of slot k-1**. Both merge by max; of two bases computed
/// under different marks the one under the lower mark is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Base {
    /// The key's mark when the base was computed; it stays when the mark itself has expired.
    pub mark: Mark,
    /// T of the walk, scaled (tokens times window, in nanoseconds).
    pub t: u128,
    /// D of the walk: tokens debited so far.
    pub d: u64,
}

impl Base {
    /// Takes in another base of the same slot.
    pub fn merge(&mut self, other: &Base) {
        match other.mark.cmp(&self.mark) {
            std::cmp::Ordering::Greater => *self = *other,
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                self.t = self.t.max(other.t);
                self.d = self.d.max(other.d);
            }
        }
    }
}
