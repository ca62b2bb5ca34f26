//! The node tier: whole nodes with their HTTP API, their tasks and real QUIC, on turmoil's network and clock. Tens of
//! seeds a minute.
//!
//! What is made up is the machine: its clocks ([`clock`]), its disk ([`machine`]), its network ([`net`], [`http`]), and what TLS draws ([`tls`]). Of a
//! schedule it carries out all but what only an event queue of our own can: gaps in streams, machines that stand still,
//! disks that hang, strangers. These it passes over.

mod clients;
mod clock;
mod host;
mod http;
mod machine;
mod net;
mod tls;
mod world;

pub use world::run;
