//! The protocol tier: whole nodes but for their tasks, sockets and threads, on an event queue of our own. Thousands of
//! seeds a minute.
//!
//! What runs is [`tidegate::node::Body`]: limiter, protocol, slot clock, journal, as in production. What is made up is
//! who calls it when ([`world`]), the connections between nodes ([`wires`]), and the machines ([`machine`]).

mod clients;
mod links;
mod machine;
mod processes;
mod queue;
mod wires;
mod world;

pub use world::run;
