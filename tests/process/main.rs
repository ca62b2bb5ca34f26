//! The real binary: processes, sockets, files, data folders.

mod cli;
mod clients;
mod cluster;
mod config;
mod demo;
mod ground;
mod intruders;
mod limit_fields;
mod limits;
mod link;
mod nodes;
mod run_time;
#[path = "../stranger/mod.rs"]
mod stranger;
mod tiers;
