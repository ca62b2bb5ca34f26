//! Bugs that can be planted, so that the simulation shows that it would catch them: a check that cannot fail is no check.
//!
//! Each stands as a line or a few where the mistake would be made. Without the feature `planted` none can be planted:
//! [`has`] is constantly false, and the lines fold away.

/// Declares the bugs, each with its name and with what is wrong.
macro_rules! bugs {
    ($($(#[$wrong:meta])* $bug:ident = $name:literal,)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum PlantedBug {
            $($(#[$wrong])* $bug,)*
        }

        impl PlantedBug {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$bug,)*];

            /// The name by which it is asked for.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }
        }
    };
}

bugs! {
    /// Merging adds the spent tokens of two values of a cell, where the larger holds both.
    MergeAdds = "merge-adds",
    /// Merging takes the value that came last, an older one too.
    MergeOverwrites = "merge-overwrites",
    /// A window is reset in place: what a peer counted in an earlier one flows into the one in which it arrives.
    ResetInPlace = "reset-in-place",
    /// A chunk is acknowledged although one before it is missing.
    AckOverGap = "ack-over-gap",
    /// A start goes on under the id of the life before, whose last spends it may have lost.
    GenerationReused = "generation-reused",
    /// A bucket has no room for overdraft: what nodes took unknown to each other is forgiven.
    CapIsCapacity = "cap-is-capacity",
    /// `fin` of a cell starts from all that this node knows of, not from the cell's own stream.
    FinOfGlobalView = "fin-of-global-view",
    /// Messages bear the slot clock, which follows peers, where they should bear the wall clock.
    SlotClockStamps = "slot-clock-stamps",
    /// What a peer acknowledged once it is believed to hold for ever, though it says less after it lost its disk.
    AcksKept = "acks-kept",
    /// A state's claim is read a second after its cells were: what arrived in between is claimed and not sent.
    ClaimAtEnd = "claim-at-end",
    /// The journal stores a `have` that covers records which are written with the next batch only.
    HaveAhead = "have-ahead",
    /// A flush sends some keys only, and tells peers that it was complete.
    EarlyComplete = "early-complete",
    /// Every chunk of a flush says that the flush is complete, not its last alone.
    CompleteByFirst = "complete-by-first",
    /// A reset counts for the key, not for its slot: later spends of whoever has not heard of it are ignored.
    ResetEpoch = "reset-epoch",
    /// A chunk is acknowledged although cells of it were refused.
    DroppedAcked = "dropped-acked",
    /// What a beat says was sent is acknowledged, arrived or not.
    BeatBelieved = "beat-believed",
    /// The base that stands for a bucket's dropped slots does not reach the journal before they leave it.
    BaseTooLate = "base-too-late",
    /// A cell of a slot that was dropped is taken in as if it were live.
    SlotResurrected = "slot-resurrected",
    /// A reset is answered, and does nothing.
    ResetIgnored = "reset-ignored",
    /// A bucket forgives debits beyond its room for overdraft like anything else.
    DebitsForgiven = "debits-forgiven",
    /// A slow node does not follow the clocks of its peers.
    AdjIgnored = "adj-ignored",
    /// A slot clock may run backwards.
    ClockBackwards = "clock-backwards",
    /// Cells of peers are taken beyond `max_cells`.
    CellsUnbounded = "cells-unbounded",
    /// What has expired is never swept.
    NeverSwept = "never-swept",
    /// A node whose clock went far back goes on to claim what it had dropped as expired by the former time.
    ClaimsOfTheFuture = "claims-of-the-future",
    /// A bucket's base goes as soon as nothing seems to be owed, though what is under way may chain on it.
    BaseTooSoon = "base-too-soon",
    /// The journal is read as of now: of slots that expired while the process was down little is left.
    RecoveredAsOfNow = "recovered-as-of-now",
}

impl PlantedBug {
    /// The bug of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedBug>> = const { std::cell::Cell::new(None) };
}

/// From now on everything that runs in this thread has this bug, or none. To be called before a node is made: some bugs
/// show in what is computed at the start.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<PlantedBug>) {
    PLANTED.set(bug);
}

/// Whether this thread has the bug.
#[cfg(feature = "planted")]
pub fn has(bug: PlantedBug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this thread has the bug: never, without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn has(_: PlantedBug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_read_back_and_nothing_is_planted() {
        let names: BTreeSet<_> = PlantedBug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(names.len(), PlantedBug::ALL.len());
        for bug in PlantedBug::ALL {
            assert_eq!(PlantedBug::from_name(bug.name()), Some(*bug));
            assert!(bug.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", bug.name());
            assert!(!has(*bug));
        }
        assert_eq!(PlantedBug::from_name("none"), None);
    }

    #[cfg(feature = "planted")]
    #[test]
    fn one_at_a_time_and_in_this_thread_alone() {
        plant(Some(PlantedBug::MergeAdds));
        assert!(has(PlantedBug::MergeAdds) && !has(PlantedBug::MergeOverwrites));
        assert!(!std::thread::spawn(|| has(PlantedBug::MergeAdds)).join().unwrap());
        plant(None);
        assert!(!has(PlantedBug::MergeAdds));
    }
}
