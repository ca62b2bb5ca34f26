//! tidegate: one quota worldwide, decided locally.
//!
//! The modules are layers; each imports only from those before it in this list:
//!
//! 1. [`id`], [`time`]: names, generations, clocks as values;
//! 2. [`crdt`]: cells, slots, replicas and their merge;
//! 3. [`algorithms`]: decisions over windows and buckets;
//! 4. [`limits`]: what a limit is, and its shape;
//! 5. [`engine`]: all keys, sharded; decides, merges, drains deltas;
//! 6. [`codec`]: bytes of chunks and frames;
//! 7. [`gossip`]: the protocol between nodes, without I/O;
//! 8. [`replay`]: a recorded trace in virtual time;
//! 9. `cert`, `transport`: who a node is, QUIC between nodes;
//! 10. `journal`: chunks in sled;
//! 11. `api`: HTTP;
//! 12. `node`: the parts put together, with their tasks;
//! 13. `client`, `config`, `telemetry`, `demo`, `cli`: what the binary is made of.
//!
//! Below them all is [`planted`]: bugs that the simulation must catch, none without the feature of that name.
//!
//! Without the feature `node` only the first eight are built: no sockets, no files, no clock of their own, no threads.

pub mod algorithms;
pub mod codec;
pub mod crdt;
pub mod engine;
pub mod gossip;
pub mod id;
pub mod limits;
pub mod planted;
pub mod replay;
pub mod time;

#[cfg(feature = "node")]
pub mod api;
#[cfg(feature = "node")]
pub mod cert;
#[cfg(feature = "node")]
pub mod cli;
#[cfg(feature = "node")]
pub mod client;
#[cfg(feature = "node")]
pub mod config;
#[cfg(feature = "node")]
pub mod demo;
#[cfg(feature = "node")]
pub mod journal;
#[cfg(feature = "node")]
pub mod node;
#[cfg(feature = "node")]
pub mod telemetry;
#[cfg(feature = "node")]
pub mod transport;
