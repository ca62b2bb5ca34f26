//! Where nodes are: regions of public clouds, and the round trips between them.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::{Link, NodePlan};

/// Round trips in milliseconds, as cloud latency monitors show them. Pairs nearer than 80 ms or further than 300 ms are
/// left out.
pub const ROUND_TRIPS: [(&str, &str, u64); 17] = [
    ("us-east", "eu-central", 92),
    ("us-east", "ap-tokyo", 150),
    ("us-east", "ap-singapore", 215),
    ("us-east", "ap-mumbai", 190),
    ("us-east", "sa-east", 115),
    ("us-east", "ap-sydney", 198),
    ("eu-central", "ap-tokyo", 225),
    ("eu-central", "ap-singapore", 160),
    ("eu-central", "ap-mumbai", 125),
    ("eu-central", "sa-east", 203),
    ("eu-central", "ap-sydney", 250),
    ("ap-tokyo", "ap-mumbai", 130),
    ("ap-tokyo", "sa-east", 257),
    ("ap-tokyo", "ap-sydney", 105),
    ("ap-singapore", "ap-sydney", 92),
    ("ap-mumbai", "sa-east", 300),
    ("ap-mumbai", "ap-sydney", 150),
];
/// Between two nodes of one region, one way, milliseconds.
const WITHIN_A_REGION_MS: u64 = 1;
/// The most regions of which every pair is in the table.
const MOST_REGIONS: usize = 4;

fn one_way_ms(a: &str, b: &str) -> Option<u64> {
    if a == b {
        return Some(WITHIN_A_REGION_MS);
    }
    ROUND_TRIPS.iter().find(|r| (r.0, r.1) == (a, b) || (r.1, r.0) == (a, b)).map(|r| r.2 / 2)
}

/// `nodes` nodes in as many regions, or in fewer where the table does not know enough of them: some regions then have
/// two.
pub fn draw_regions(nodes: usize, rng: &mut StdRng) -> (Vec<NodePlan>, Vec<Link>) {
    let mut names: Vec<&'static str> = ROUND_TRIPS.iter().flat_map(|r| [r.0, r.1]).collect();
    names.sort_unstable();
    names.dedup();
    let regions = loop {
        names.shuffle(rng);
        let some = &names[..nodes.min(MOST_REGIONS)];
        if some.iter().all(|a| some.iter().all(|b| one_way_ms(a, b).is_some())) {
            break some.to_vec();
        }
    };
    let mut of: Vec<&str> = regions.clone();
    while of.len() < nodes {
        of.push(regions.choose(rng).expect("there is one at least"));
    }
    let plan = |at: usize| {
        let before = of[..at].iter().filter(|region| **region == of[at]).count();
        let name = if before == 0 { of[at].to_owned() } else { format!("{}-{}", of[at], before + 1) };
        NodePlan { name, clock_offset_us: 0, clock_drift_ppm: 0 }
    };
    let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
    let link = |(a, b): (usize, usize)| {
        let ms = one_way_ms(of[a], of[b]).unwrap_or(0);
        Link { a, b, one_way_ms: ms, back_ms: ms }
    };
    let links = pairs.map(link).collect();
    ((0..nodes).map(plan).collect(), links)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_pair_has_its_distance() {
        for seed in 0..200 {
            for nodes in 1..=6 {
                let (plans, links) = draw_regions(nodes, &mut StdRng::seed_from_u64(seed));
                let mut names: Vec<_> = plans.iter().map(|plan| &plan.name).collect();
                names.sort();
                names.dedup();
                assert_eq!((names.len(), links.len()), (nodes, nodes * (nodes - 1) / 2));
                let far = |ms: u64| (40..=150).contains(&ms);
                assert!(links.iter().all(|link| far(link.one_way_ms) || link.one_way_ms == WITHIN_A_REGION_MS));
                assert!(nodes > MOST_REGIONS || links.iter().all(|link| far(link.one_way_ms)));
            }
        }
    }
}
