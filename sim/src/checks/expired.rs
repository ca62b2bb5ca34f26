//! Memory is free again once everything has expired: no key, no cell, nothing that waits.

use crate::history::History;

pub fn broken(history: &History) -> Vec<String> {
    // The mark of a reset is kept for an hour at least, and so is a change back to a former shape.
    let marked = |key: usize| history.resets(key).next().is_some() || history.changes_bucket(key);
    if (0..history.schedule.keys.len()).any(marked) {
        return Vec::new();
    }
    let full = history
        .expired
        .iter()
        .filter(|(_, sizes)| (sizes.keys, sizes.own_keys, sizes.cells, sizes.pending_bytes) != (0, 0, 0, 0));
    full.map(|(node, sizes)| format!("{} still held {sizes:?}", history.node_name(*node))).collect()
}

#[cfg(test)]
mod tests {
    use tidegate::node::Sizes;

    use super::*;
    use crate::checks::hand::quiet;

    #[test]
    fn a_key_that_stays() {
        let mut history = quiet();
        history.expired = vec![(0, Sizes::default())];
        assert_eq!(broken(&history), Vec::<String>::new());
        history.expired[0].1.keys = 1;
        assert_eq!(broken(&history).len(), 1);
    }
}
