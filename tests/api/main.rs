//! The HTTP API over a real socket: a real engine behind it, a clock moved by hand, and a node that is what the test
//! says.
#![cfg(feature = "node")]

mod answers;
mod bad_input;
mod connections;
mod definition;
mod matching;
mod node;
mod openapi;
mod operations;
mod server;
