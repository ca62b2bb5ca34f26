//! The transport over real UDP on loopback: who is let in, who is not, and how connections end.

mod good;
mod ground;
mod hostile;
mod recorder;
mod restart;
#[path = "../stranger/mod.rs"]
mod stranger;
