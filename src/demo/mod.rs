//! `tidegate demo`: a whole cluster on this machine. Real nodes as child processes, links with latency between them
//! that can be cut, load on all of them, and a table of how they converge. The command line calls [`run`].

mod cluster;
mod files;
mod load;
mod observe;
mod options;
mod partition;
mod relay;
mod screen;
mod show;
mod signals;
mod summary;
mod table;
mod windows;

pub use cluster::StartError;
pub use options::{BadCut, BadOptions, Cut, Options};
pub use show::{DemoError, Verdict, run};
