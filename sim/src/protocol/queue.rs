//! What is due, in the order of time; what is due at one time in the order in which it was entered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The queue.
#[derive(Debug)]
pub struct Queue<T> {
    due: BinaryHeap<Reverse<Entry<T>>>,
    entered: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at_ns: u64,
    number: u64,
    what: T,
}

impl<T> Queue<T> {
    /// Nothing is due.
    pub fn new() -> Self {
        Self { due: BinaryHeap::new(), entered: 0 }
    }

    /// Something is due.
    pub fn push(&mut self, at_ns: u64, what: T) {
        self.entered += 1;
        self.due.push(Reverse(Entry { at_ns, number: self.entered, what }));
    }

    /// What is due next, and when.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.due.pop().map(|Reverse(entry)| (entry.at_ns, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ns, self.number) == (other.at_ns, other.number)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_and_then_as_entered() {
        let mut queue = Queue::new();
        [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')].into_iter().for_each(|(at, what)| queue.push(at, what));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, vec![(3, 'b'), (3, 'd'), (5, 'a'), (5, 'c')]);
    }
}
