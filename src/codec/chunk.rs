//! The bytes of a chunk: `version, replica, seq, stamp, complete_to, expires, groups, crc32`.
//!
//! A group is its shape, a form, the lowest slot that it names, and its items, whose slots are written relative to that
//! one. In the plain form reset numbers, debits and refunds are left out, being 0. A bucket's `first` is relative to the start
//! of its slot (0 without a spend), and `fin` is what it exceeds `L * first + W * spent` by. All differences wrap, so that any values
//! whatever come back as they were.

use super::bytes::{In, Out};
use super::{CHUNK_VERSION, Chunk, CodecError, MAX_CHUNK_BYTES};
use crate::algorithms::bucket::Bucket;
use crate::algorithms::calendar::{Calendar, MAX_ZONE_BYTES, Period, Zone};
use crate::algorithms::window::Window;
use crate::crdt::{Base, Cell, Mark};
use crate::engine::{Group, KeyBase, KeyCell, KeyMark};
use crate::id::KeyHash;
use crate::limits::{MAX_LIMIT, Shape};

const CRC_BYTES: usize = 4;

const FIXED: u8 = 0;
const SLIDING: u8 = 1;
const BUCKET: u8 = 2;
const SLOTS: u8 = 3;
const LOG: u8 = 4;
const CALENDAR: u8 = 5;

const PLAIN: u8 = 0;
const FULL: u8 = 1;

/// The fewest bytes of an item or group: what bounds an announced count by the bytes that are there.
const LEAST_CELL: usize = 18;
const LEAST_MARK: usize = 19;
const LEAST_BASE: usize = 21;
const LEAST_GROUP: usize = 7;

impl Chunk {
    /// The chunk's bytes. The cells of a window keep only what a window's cell has: `n`, `spent` and `refunded`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.raw(&[CHUNK_VERSION]);
        out.replica(&self.replica);
        for number in [self.seq, self.stamp_ns, self.complete_to_ns, self.expires_ns] {
            out.int(number);
        }
        out.count(self.groups.len());
        for group in &self.groups {
            put_group(&mut out, group);
        }
        let crc = crc32fast::hash(&out.0);
        out.raw(&crc.to_le_bytes());
        out.0
    }

    /// Reads a chunk. Everything that [`Chunk::encode`] would not have written is refused.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        if bytes.len() > MAX_CHUNK_BYTES {
            let (len, most) = (bytes.len() as u64, MAX_CHUNK_BYTES as u64);
            return Err(CodecError::TooLong { what: "a chunk", len, most });
        }
        let version = *bytes.first().ok_or(CodecError::Truncated("a chunk"))?;
        if version != CHUNK_VERSION {
            let (ours, theirs) = (CHUNK_VERSION.into(), version.into());
            return Err(CodecError::Version { what: "chunk", ours, theirs });
        }
        let (body, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(CodecError::Truncated("a chunk"))?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err(CodecError::Checksum);
        }
        let mut from = In(&body[1..]);
        let chunk = Self {
            replica: from.replica()?,
            seq: from.seq()?,
            stamp_ns: from.int("a stamp")?,
            complete_to_ns: from.int("a complete_to")?,
            expires_ns: from.int("an expiry")?,
            groups: from.list(MAX_CHUNK_BYTES / LEAST_GROUP, LEAST_GROUP, "groups", take_group)?,
        };
        from.end()?;
        if chunk.encode() == bytes { Ok(chunk) } else { Err(CodecError::NotCanonical) }
    }
}

fn put_group(out: &mut Out, group: &Group) {
    let plain = group.cells.iter().all(|c| c.cell.n == 0 && c.cell.debited == 0 && c.cell.refunded == 0);
    let slots = group.cells.iter().map(|c| c.slot).chain(group.bases.iter().map(|b| b.slot));
    let at = Placed {
        shape: group.shape,
        form: if plain { PLAIN } else { FULL },
        lowest: slots.chain(group.marks.iter().map(|m| m.mark.slot)).min().unwrap_or(0),
    };
    put_shape(out, &group.shape);
    out.raw(&[at.form]);
    out.int(at.lowest);
    out.count(group.cells.len());
    out.count(group.marks.len());
    out.count(group.bases.len());
    group.cells.iter().for_each(|cell| at.put_cell(out, cell));
    group.marks.iter().for_each(|mark| at.put_mark(out, mark));
    group.bases.iter().for_each(|base| at.put_base(out, base));
}

fn take_group(from: &mut In<'_>) -> Result<Group, CodecError> {
    let shape = take_shape(from)?;
    let [form] = from.array("a form")?;
    if form > FULL {
        return Err(CodecError::Invalid { what: "a form", problem: format!("no form has the number {form}") });
    }
    let at = Placed { shape, form, lowest: from.int("a slot")? };
    let cells = from.count(MAX_CHUNK_BYTES / LEAST_CELL, LEAST_CELL, "cells")?;
    let marks = from.count(MAX_CHUNK_BYTES / LEAST_MARK, LEAST_MARK, "marks")?;
    let bases = from.count(MAX_CHUNK_BYTES / LEAST_BASE, LEAST_BASE, "bases")?;
    if cells * LEAST_CELL + marks * LEAST_MARK + bases * LEAST_BASE > from.0.len() {
        return Err(CodecError::Truncated("a group"));
    }
    let mut group = Group::new(shape);
    group.cells.reserve_exact(cells);
    group.marks.reserve_exact(marks);
    group.bases.reserve_exact(bases);
    for _ in 0..cells {
        group.cells.push(at.take_cell(from)?);
    }
    for _ in 0..marks {
        group.marks.push(at.take_mark(from)?);
    }
    for _ in 0..bases {
        group.bases.push(at.take_base(from)?);
    }
    Ok(group)
}

fn put_shape(out: &mut Out, shape: &Shape) {
    match shape {
        Shape::Window(Window::Fixed { window_ns }) => put_numbers(out, FIXED, &[*window_ns]),
        Shape::Window(Window::Sliding { window_ns }) => put_numbers(out, SLIDING, &[*window_ns]),
        Shape::Window(Window::Slots { window_ns, slots }) => {
            put_numbers(out, SLOTS, &[*window_ns, u64::from(*slots)]);
        }
        Shape::Window(Window::Log { window_ns }) => put_numbers(out, LOG, &[*window_ns]),
        Shape::Window(Window::Calendar(Calendar { period, zone })) => {
            out.raw(&[CALENDAR, *period as u8]);
            out.text(zone.as_str());
        }
        Shape::Bucket(Bucket { limit, window_ns, capacity, slot_ns, queue_ns }) => {
            put_numbers(out, BUCKET, &[*limit, *window_ns, *capacity, *slot_ns, *queue_ns]);
        }
    }
}

fn put_numbers(out: &mut Out, kind: u8, numbers: &[u64]) {
    out.raw(&[kind]);
    numbers.iter().for_each(|number| out.int(*number));
}

fn take_shape(from: &mut In<'_>) -> Result<Shape, CodecError> {
    let [kind] = from.array("a shape")?;
    Ok(Shape::Window(match kind {
        FIXED => Window::Fixed { window_ns: take_window(from)? },
        SLIDING => Window::Sliding { window_ns: take_window(from)? },
        SLOTS => {
            let window_ns = take_window(from)?;
            let slots = within(from.int("a number of slots")?, 1, u32::MAX.into(), "a number of slots")? as u32;
            Window::Slots { window_ns, slots }
        }
        LOG => Window::Log { window_ns: take_window(from)? },
        CALENDAR => Window::Calendar(take_calendar(from)?),
        BUCKET => {
            return Ok(Shape::Bucket(Bucket {
                limit: within(from.int("a limit")?, 0, MAX_LIMIT, "a limit")?,
                window_ns: take_window(from)?,
                capacity: within(from.int("a capacity")?, 0, MAX_LIMIT, "a capacity")?,
                slot_ns: within(from.int("a slot length")?, 1, MAX_LIMIT, "a slot length")?,
                queue_ns: within(from.int("a queue")?, 0, MAX_LIMIT, "a queue")?,
            }));
        }
        other => {
            return Err(CodecError::Invalid { what: "a shape", problem: format!("no shape has the number {other}") });
        }
    }))
}

fn take_window(from: &mut In<'_>) -> Result<u64, CodecError> {
    within(from.int("a window")?, 1, MAX_LIMIT, "a window")
}

/// The zone need not be known here: its cells are held and passed on all the same.
fn take_calendar(from: &mut In<'_>) -> Result<Calendar, CodecError> {
    let [number] = from.array("a period")?;
    let invalid = |what, problem| CodecError::Invalid { what, problem };
    let period = Period::ALL.into_iter().find(|period| *period as u8 == number);
    let period = period.ok_or_else(|| invalid("a period", format!("no period has the number {number}")))?;
    let name = from.text(MAX_ZONE_BYTES, "a time zone")?;
    let zone = Zone::held(name).ok_or_else(|| invalid("a time zone", format!("{name:?} is no name of one")))?;
    Ok(Calendar { period, zone })
}

fn within(number: u64, least: u64, most: u64, what: &'static str) -> Result<u64, CodecError> {
    let problem = || format!("{number} is not within {least}..={most}");
    if (least..=most).contains(&number) { Ok(number) } else { Err(CodecError::Invalid { what, problem: problem() }) }
}

/// What the items of a group are written relative to.
struct Placed {
    shape: Shape,
    form: u8,
    lowest: u64,
}

impl Placed {
    fn put_cell(&self, out: &mut Out, one: &KeyCell) {
        out.raw(&one.key.0);
        out.int(one.slot.wrapping_sub(self.lowest));
        out.int(one.cell.spent);
        if self.form == FULL {
            out.int(one.cell.n);
            out.int(one.cell.refunded);
        }
        if let Shape::Bucket(bucket) = &self.shape {
            out.int(one.cell.first_ns.wrapping_sub(first_at(bucket, one.slot, one.cell.spent)));
            out.int(one.cell.fin.wrapping_sub(least_fin(bucket, &one.cell)));
            if self.form == FULL {
                out.int(one.cell.debited);
            }
        }
    }

    fn take_cell(&self, from: &mut In<'_>) -> Result<KeyCell, CodecError> {
        let key = KeyHash(from.array("a key")?);
        let slot = from.int::<u64>("a slot")?.wrapping_add(self.lowest);
        let spent = from.int("a spend")?;
        let mut cell = Cell { spent, ..Cell::empty(0) };
        if self.form == FULL {
            (cell.n, cell.refunded) = (from.int("a reset number")?, from.int("a refund")?);
        }
        if let Shape::Bucket(bucket) = &self.shape {
            cell.first_ns = from.int::<u64>("a first spend")?.wrapping_add(first_at(bucket, slot, spent));
            cell.fin = from.int::<u128>("a fin")?.wrapping_add(least_fin(bucket, &cell));
            if self.form == FULL {
                cell.debited = from.int("a debit")?;
            }
        }
        Ok(KeyCell { key, slot, cell })
    }

    fn put_mark(&self, out: &mut Out, one: &KeyMark) {
        out.raw(&one.key.0);
        out.int(one.mark.slot.wrapping_sub(self.lowest));
        out.int(one.mark.n);
        out.int(one.until_ns);
    }

    fn take_mark(&self, from: &mut In<'_>) -> Result<KeyMark, CodecError> {
        let key = KeyHash(from.array("a key")?);
        let slot = from.int::<u64>("a slot")?.wrapping_add(self.lowest);
        let mark = Mark { slot, n: from.int("a reset number")? };
        Ok(KeyMark { key, mark, until_ns: from.int("a mark's end")? })
    }

    /// T is near the start of its slot in scaled time, on either side of it.
    fn put_base(&self, out: &mut Out, one: &KeyBase) {
        out.raw(&one.key.0);
        out.int(one.slot.wrapping_sub(self.lowest));
        out.int(one.base.mark.slot);
        out.int(one.base.mark.n);
        out.int(one.base.t.wrapping_sub(self.scaled_start(one.slot)) as i128);
        out.int(one.base.d);
    }

    fn take_base(&self, from: &mut In<'_>) -> Result<KeyBase, CodecError> {
        let key = KeyHash(from.array("a key")?);
        let slot = from.int::<u64>("a slot")?.wrapping_add(self.lowest);
        let mark = Mark { slot: from.int("a mark's slot")?, n: from.int("a reset number")? };
        let t = (from.int::<i128>("a base")? as u128).wrapping_add(self.scaled_start(slot));
        Ok(KeyBase { key, slot, base: Base { mark, t, d: from.int("a debit")? } })
    }

    fn scaled_start(&self, slot: u64) -> u128 {
        match &self.shape {
            Shape::Window(_) => 0,
            Shape::Bucket(bucket) => bucket.scaled(slot_start(bucket, slot)),
        }
    }
}

fn slot_start(bucket: &Bucket, slot: u64) -> u64 {
    slot.wrapping_mul(bucket.slot_ns)
}

/// What `first` is not before in a cell of this spend: a cell of refunds alone has none.
fn first_at(bucket: &Bucket, slot: u64, spent: u64) -> u64 {
    if spent == 0 { u64::MAX } else { slot_start(bucket, slot) }
}

/// What `fin` is at the least for a cell that was really spent.
fn least_fin(bucket: &Bucket, cell: &Cell) -> u128 {
    if cell.spent == 0 {
        return 0;
    }
    bucket.scaled(cell.first_ns).wrapping_add(bucket.cost(cell.spent))
}
