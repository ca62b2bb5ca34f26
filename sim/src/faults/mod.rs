//! What may go wrong, a file for each family. A fault has a name, by which it can be switched on and off, and draws the
//! events that it consists of into a schedule.
//!
//! A new one is a function in a file here and a line in [`FAULTS`]; what it needs of the two tiers is a new
//! [`crate::schedule::What`].

mod clocks;
mod disks;
mod limits;
mod network;
mod processes;
mod strangers;
mod weather;

use rand::rngs::StdRng;

use crate::schedule::Drawing;

/// A way in which something goes wrong.
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Whether the node tier can carry it; the protocol tier carries all.
    pub node_tier: bool,
    /// Adds its events.
    pub draw: fn(&mut Drawing, &mut StdRng),
}

const fn fault(name: &'static str, about: &'static str, draw: fn(&mut Drawing, &mut StdRng)) -> Fault {
    Fault { name, about, node_tier: true, draw }
}

const fn protocol_only(name: &'static str, about: &'static str, draw: fn(&mut Drawing, &mut StdRng)) -> Fault {
    Fault { name, about, node_tier: false, draw }
}

/// All there are.
pub const FAULTS: &[Fault] = &[
    fault("isolate", "one node is cut off from all others for 2 to 4 s", network::isolate),
    fault("isolate-long", "the same for 6 to 10 s: connections end, windows expire", network::isolate_long),
    fault("split", "the nodes fall into two or three sides", network::split),
    fault("one-way", "nothing passes from one node to another, but back", network::one_way),
    fault("chain", "two nodes do not reach each other, a third reaches both", network::chain),
    fault("flap", "a link goes and comes, five to ten times", network::flap),
    fault("asymmetric", "links are longer one way than back, by up to 40 ms", network::asymmetric),
    fault("loss", "packets are lost, up to 2 %", weather::loss),
    fault("loss-burst", "for a while a third of the packets is lost", weather::loss_burst),
    fault(
        "duplicate",
        "packets come twice, up to 10 % (streams of the protocol tier do not show it)",
        weather::duplicate,
    ),
    fault("reorder", "packets come late, up to 10 % by up to 60 ms", weather::reorder),
    fault("jitter", "every packet comes up to 10 ms late", weather::jitter),
    fault("corrupt", "bytes change on the way, up to 1 % of packets", weather::corrupt),
    protocol_only("gaps", "frames vanish, come twice and out of order", weather::gaps),
    fault("offset", "clocks up to 1 s apart", clocks::offset),
    fault("drift", "clocks drift by up to 200 ppm", clocks::drift),
    fault("step", "a clock jumps by up to 1.5 s, forward or back", clocks::step),
    fault("edge-step", "a clock jumps across the edge of a window and back", clocks::edge_step),
    fault(
        "wrong-boot",
        "a node starts with a clock that is wrong by up to an hour, corrected later",
        clocks::wrong_boot,
    ),
    protocol_only("pause", "a machine stands still for up to 8 s", clocks::pause),
    fault("crash", "a process dies and is started again", processes::crash),
    fault("late-crash", "a process dies when the first slots have been dropped", processes::late_crash),
    fault("long-down", "a process is down while slots expire", processes::long_down),
    fault("crash-loop", "a process dies several times, soon after each start", processes::crash_loop),
    fault("crash-in-cut", "a process dies while it is cut off", processes::crash_in_cut),
    fault("rolling-restart", "every process dies, one after the other", processes::rolling_restart),
    fault("empty-disk", "a process dies and starts on an empty disk", processes::empty_disk),
    fault("old-disk", "a process dies and starts on a copy of its disk from a while ago", processes::old_disk),
    fault("join-in-chain", "a process starts on an empty disk while it reaches only some", processes::join_in_chain),
    fault("disk-full", "nothing can be written for a while, and the process dies after", disks::full),
    fault("disk-failing", "writes fail for a while, and the process dies during it", disks::failing),
    fault("disk-torn", "writes are not durable, and the process dies", disks::torn),
    protocol_only("disk-slow", "the journal hangs for a while", disks::slow),
    fault("disk-damaged", "a process dies and some of its records rot", disks::damaged),
    fault("limit-change", "a limit changes, at one node after the other", limits::change),
    fault("limit-in-cut", "a limit changes on both sides of a partition, differently at first", limits::change_in_cut),
    fault("reset", "keys are reset while others count", limits::reset),
    fault("reset-in-cut", "keys are reset on one side of a partition", limits::reset_in_cut),
    protocol_only("strangers", "nodes of other clusters and versions, and rubbish", strangers::knock),
];

/// The fault of a name.
pub fn find(name: &str) -> Option<&'static Fault> {
    FAULTS.iter().find(|fault| fault.name == name)
}
