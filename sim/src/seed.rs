//! One seed draws everything. Each purpose has a stream of its own, so that drawing once more for one leaves the others
//! as they were.

use std::hash::Hasher;

use rand::SeedableRng;
use rand::rngs::StdRng;
use siphasher::sip::SipHasher13;

/// The seed of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed of one purpose, e.g. `quic/eu/2`.
    pub fn of(self, purpose: &str) -> Seed {
        let mut hasher = SipHasher13::new_with_keys(self.0, 0);
        hasher.write(purpose.as_bytes());
        Seed(hasher.finish())
    }

    /// The generator of one purpose.
    pub fn rng(self, purpose: &str) -> StdRng {
        StdRng::seed_from_u64(self.of(purpose).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_seeds_differ() {
        assert_eq!(Seed(1).of("a"), Seed(1).of("a"));
        assert_ne!(Seed(1).of("a"), Seed(1).of("b"));
        assert_ne!(Seed(1).of("a"), Seed(2).of("a"));
    }
}
