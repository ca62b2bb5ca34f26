//! Deterministic simulation of tidegate clusters, in two tiers: whole nodes with their API over real QUIC in virtual time
//! ([`node`]), and nodes without tasks and sockets on an event queue of our own ([`protocol`]). One seed draws a whole
//! run, and the same seed gives the same run.
//!
//! A run's way is a straight line: [`scenarios`] draw a [`schedule`] of [`load`] and [`faults`], a tier carries it out,
//! [`observe`] writes down what happens as a [`history`], [`checks`] hold that to the promises of [`bound`] and [`reach`],
//! and [`report`] puts it into figures. [`model`] is the oracle's own reading of the algorithms; [`states`] counts what was
//! reached; [`matrix`] goes through grids of clocks and cuts; [`shrink`] makes a failing schedule smaller; [`meta`] sees that the checks can fail; [`trace`] hashes
//! everything.

#[cfg(not(tokio_unstable))]
compile_error!(
    "the simulation needs --cfg tokio_unstable: without it a panic in a spawned task is swallowed, and schedules are \
     not seeded. .cargo/config.toml sets it; RUSTFLAGS in the environment replaces that: unset it"
);

pub mod bound;
pub mod checks;
pub mod clock;
pub mod faults;
pub mod history;
pub mod load;
pub mod matrix;
#[cfg(feature = "planted")]
pub mod meta;
pub mod model;
pub mod node;
pub mod observe;
pub mod protocol;
pub mod reach;
pub mod report;
pub mod run;
pub mod scenarios;
pub mod schedule;
pub mod seed;
pub mod shrink;
pub mod states;
pub mod trace;
