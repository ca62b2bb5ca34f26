//! States that are worth reaching. A sweep that does not reach one of them has not tried what it seems to try, and
//! fails.
//!
//! A new state is a line in [`STATES`], with the tiers that can reach it, and a [`States::hit`] where it is seen.

use crate::run::Tier;

/// What is worth reaching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Where it can be reached and seen.
    pub tiers: &'static [Tier],
}

const BOTH: &[Tier] = &[Tier::Protocol, Tier::Node];
/// Frames, connections and the slot clock are looked into in the protocol tier alone.
const PROTOCOL: &[Tier] = &[Tier::Protocol];
/// Answers of the protocol tier take no time.
const NODE: &[Tier] = &[Tier::Node];

macro_rules! states {
    ($($name:ident in $tiers:ident: $about:literal,)*) => {
        /// All of them; the name is the index of its counter.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)]
        pub enum Sometimes { $($name,)* }

        /// Their names, in order.
        pub const STATES: &[State] =
            &[$(State { name: stringify!($name), about: $about, tiers: $tiers },)*];
    };
}

states! {
    Denied in BOTH: "a request was denied",
    DeniedNever in BOTH: "a request asked for more than there ever is",
    AdmittedOnBothSides in BOTH: "both sides of a cut admitted requests of one key",
    DeniedInCut in BOTH: "a request was denied during a cut",
    LimitChangedInCut in BOTH: "a limit changed during a cut",
    ResetInCut in BOTH: "a key was reset during a cut",
    DebitBeyondLimit in BOTH: "a debit took more than was left",
    TableFull in BOTH: "a request was denied for want of room in the table of keys",
    CellsRefused in BOTH: "cells were refused at max_cells",
    ExpiredOnArrival in BOTH: "a cell had expired when it arrived",
    EarlyFlush in PROTOCOL: "a hot key was flushed at once",
    StateSent in PROTOCOL: "state was sent instead of chunks",
    StateInterrupted in PROTOCOL: "a connection ended while state was under way",
    SentAgain in PROTOCOL: "chunks were sent again after acknowledgements stood still",
    FrameLost in PROTOCOL: "a frame vanished",
    FrameRefused in PROTOCOL: "a frame was refused, and the connection closed",
    ConnectionTimedOut in PROTOCOL: "a connection ended because nothing was heard on it",
    MetTwice in PROTOCOL: "two nodes dialed each other and one connection was closed",
    StrangerRefused in PROTOCOL: "a stranger was refused",
    ClockSteppedForward in PROTOCOL: "a node stepped to a system clock that was ahead",
    ClockSteppedBack in PROTOCOL: "a node stepped back to its system clock",
    NewLife in PROTOCOL: "a node began a new life while running",
    BeyondSkew in BOTH: "a peer's clock was reported as too far away",
    TooFarAhead in BOTH: "a chunk was refused because it was too far in the future",
    RecoveredRecords in BOTH: "a node started with records of its journal",
    RecoveredDamaged in BOTH: "a node started with a damaged journal",
    StartedEmpty in BOTH: "a node started again on an empty disk",
    JournalDegraded in BOTH: "a journal said that its disk fails",
    JournalRewritten in BOTH: "a journal wrote all that lives anew",
    AllExpired in PROTOCOL: "a run went on until everything had expired",
    UnderWay in NODE: "a request was under way when its node died",
}

/// How many seeds reach every state that a tier can reach.
pub const fn enough(tier: Tier) -> u64 {
    match tier {
        Tier::Protocol => 1_000,
        Tier::Node => 100,
    }
}

/// How often each state was met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct States(Vec<u64>);

impl Default for States {
    fn default() -> Self {
        Self(vec![0; STATES.len()])
    }
}

impl States {
    /// The state was met.
    pub fn hit(&mut self, state: Sometimes) {
        self.0[state as usize] += 1;
    }

    /// The state was met, if `met`.
    pub fn hit_if(&mut self, met: bool, state: Sometimes) {
        self.0[state as usize] += u64::from(met);
    }

    /// The state was met so often.
    pub fn add_to(&mut self, state: Sometimes, times: u64) {
        self.0[state as usize] += times;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, one)| *sum += one);
    }

    /// What a sweep of `runs` runs in a tier ought to have reached and did not. None: it was too short to tell.
    pub fn unreached(&self, tier: Tier, runs: u64) -> Option<Vec<State>> {
        let missing = self.iter().filter(|(state, count)| *count == 0 && state.tiers.contains(&tier));
        (runs >= enough(tier)).then(|| missing.map(|missing| missing.0).collect())
    }

    /// Which, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (State, u64)> + use<'_> {
        STATES.iter().copied().zip(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_at_zero_is_missed_where_it_can_be_reached() {
        let mut states = States(vec![1; STATES.len()]);
        states.0[Sometimes::FrameLost as usize] = 0;
        let names = |tier, runs| states.unreached(tier, runs).map(|all| all.iter().map(|one| one.name).collect());
        assert_eq!(names(Tier::Protocol, 999), None::<Vec<_>>);
        assert_eq!(names(Tier::Protocol, 1_000), Some(vec!["FrameLost"]));
        assert_eq!(names(Tier::Node, 1_000), Some(Vec::new()));
        states.hit(Sometimes::FrameLost);
        assert_eq!(states.unreached(Tier::Protocol, 1_000), Some(Vec::new()));
    }
}
