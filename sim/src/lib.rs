//! Deterministic simulation of tidegate clusters: the real node, with its HTTP API, its limiter and its gossip over real
//! QUIC, on a simulated network and in virtual time. One seed draws a whole run, and the same seed gives the same run.
//!
//! A run's way is a straight line: [`scenario`] draws what is to happen, [`world`] builds the hosts and lets it happen,
//! [`load`] asks through the API, [`observe`] writes down what happens as a [`history`], [`checks`] judge that and
//! [`report`] puts it into figures. [`clock`], [`net`], [`http`] are what a simulated machine has in place of a real
//! one's; [`model`] is the oracle's own reading of the algorithms; [`trace`] hashes everything.
//!
//! This is the tier of whole nodes: tens of seeds a minute. A tier of the bare state machines (limiter, protocol, slot
//! clock) on an event queue of its own, for thousands of seeds a minute, has its place beside [`world`]: it would make
//! the same [`history::History`] of the same [`scenario::Scenario`], and be judged by the same [`checks`].

#[cfg(not(tokio_unstable))]
compile_error!(
    "the simulation needs --cfg tokio_unstable: without it a panic in a spawned task is swallowed, and schedules are \
     not seeded. .cargo/config.toml sets it; RUSTFLAGS in the environment replaces that: unset it"
);

pub mod checks;
pub mod clock;
pub mod history;
pub mod http;
pub mod load;
pub mod model;
pub mod net;
pub mod observe;
pub mod report;
pub mod scenario;
pub mod seed;
pub mod trace;
pub mod world;
