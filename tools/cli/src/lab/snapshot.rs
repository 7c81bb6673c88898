//! The state of a lab or switch at one moment, as it is sent to commands: nodes, links and their counters. It is a copy:
//! nothing in it changes the lab.

use core::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_fabric::Counters;

use super::plan::Kind;

/// The counters of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the fields are those of `verbena_fabric::Counters`"
)]
pub struct Traffic {
    pub frames: u64,
    pub bytes: u64,
    pub lost: u64,
    pub repeated: u64,
    pub corrupted: u64,
    pub reordered: u64,
    pub overflowed: u64,
    pub cut: u64,
}

impl From<Counters> for Traffic {
    fn from(counters: Counters) -> Traffic {
        Traffic {
            frames: counters.frames,
            bytes: counters.bytes,
            lost: counters.lost,
            repeated: counters.repeated,
            corrupted: counters.corrupted,
            reordered: counters.reordered,
            overflowed: counters.overflowed,
            cut: counters.cut,
        }
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Counters of its own, by name, that are not zero.
    pub counters: Vec<(String, u64)>,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// Its name.
    pub name: String,
    /// The numbers of its nodes.
    pub ends: [usize; 2],
    /// It is not cut.
    pub up: bool,
    /// Switches do not use it, because they would form a loop.
    pub blocked: bool,
    /// Its faults, as words.
    pub faults: String,
    /// From the first node to the second, and back.
    pub traffic: [Traffic; 2],
}

/// A lab or switch at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// How long it has been running.
    pub age: Duration,
    /// The processes of it: supervisor and holder.
    pub processes: Vec<i32>,
    /// Its nodes.
    pub nodes: Vec<NodeView>,
    /// Its links.
    pub links: Vec<LinkView>,
}
