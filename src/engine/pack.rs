//! Sorts items of state into parts: by replica, by when they expire, by shape.

use std::collections::BTreeMap;

use super::names::ShapeInfo;
use super::{Drained, Group, KeyBase, KeyCell, KeyMark, MAX_PART_ITEMS, Part};
use crate::crdt::ReplicaIx;
use crate::limits::Shape;

/// Collects items; [`Packer::finish`] makes parts of them.
#[derive(Default)]
pub(super) struct Packer {
    groups: BTreeMap<(ReplicaIx, u64, Shape), Group>,
    pub items: usize,
}

impl Packer {
    pub fn cell(&mut self, replica: ReplicaIx, info: &ShapeInfo, cell: KeyCell) {
        self.group(replica, info, info.expires_ns(cell.slot)).cells.push(cell);
    }

    pub fn mark(&mut self, own: ReplicaIx, info: &ShapeInfo, mark: KeyMark) {
        self.group(own, info, mark.until_ns).marks.push(mark);
    }

    /// `needed_ns`: until when the base is needed.
    pub fn base(&mut self, own: ReplicaIx, info: &ShapeInfo, base: KeyBase, needed_ns: u64) {
        self.group(own, info, needed_ns).bases.push(base);
    }

    fn group(&mut self, replica: ReplicaIx, info: &ShapeInfo, expires_ns: u64) -> &mut Group {
        self.items += 1;
        let at = (replica, info.rounded_ns(expires_ns), info.shape);
        self.groups.entry(at).or_insert_with(|| Group::new(info.shape))
    }

    /// What was collected as a drain at `now_ns`.
    pub fn drained(self, now_ns: u64) -> Drained {
        let parts = self.finish().into_iter().map(|(_, part)| part).collect();
        // At `now` itself there may be a spend yet.
        Drained { complete_to_ns: now_ns.saturating_sub(1), parts }
    }

    /// Parts of at most [`MAX_PART_ITEMS`] items, each of one replica and one expiry.
    pub fn finish(self) -> Vec<(ReplicaIx, Part)> {
        let mut parts: Vec<(ReplicaIx, Part)> = Vec::new();
        for ((replica, expires_ns, _), group) in self.groups {
            let mut group = group;
            while !group.is_empty() {
                let fits = |(of, part): &&mut (ReplicaIx, Part)| {
                    *of == replica && part.expires_ns == expires_ns && len(part) < MAX_PART_ITEMS
                };
                let part = match parts.last_mut().filter(fits) {
                    Some((_, part)) => part,
                    None => &mut parts.push_mut((replica, Part { expires_ns, groups: Vec::new() })).1,
                };
                let room = MAX_PART_ITEMS - len(part);
                part.groups.push(split_off(&mut group, room));
            }
        }
        parts
    }
}

fn len(part: &Part) -> usize {
    part.groups.iter().map(Group::len).sum()
}

/// Takes at most `most` items out of a group.
fn split_off(group: &mut Group, most: usize) -> Group {
    fn some<T>(from: &mut Vec<T>, room: &mut usize) -> Vec<T> {
        let taken = from.split_off(from.len().saturating_sub(*room));
        *room -= taken.len();
        taken
    }
    let mut room = most;
    let shape = group.shape;
    let marks = some(&mut group.marks, &mut room);
    let bases = some(&mut group.bases, &mut room);
    let cells = some(&mut group.cells, &mut room);
    Group { shape, cells, marks, bases }
}
