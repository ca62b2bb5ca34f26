//! Who does not belong to the cluster.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::network::begin_ms;
use crate::schedule::{Drawing, Stranger, What};

pub fn knock(drawing: &mut Drawing, rng: &mut StdRng) {
    let all = [Stranger::ForeignCluster, Stranger::UnknownVersion, Stranger::WrongName, Stranger::Rubbish];
    for _ in 0..rng.random_range(2..6) {
        let (at_ms, node) = (begin_ms(rng) + rng.random_range(0..2_000), rng.random_range(0..drawing.nodes()));
        let who = *all.choose(rng).expect("there are some");
        drawing.at(at_ms, What::Stranger { node, who });
        drawing.lasts_until(at_ms);
    }
}
