//! The real binary: processes, sockets, files, data folders.

mod cli;
mod cluster;
mod config;
mod demo;
mod ground;
mod intruders;
mod limits;
mod nodes;
#[path = "../stranger/mod.rs"]
mod stranger;
