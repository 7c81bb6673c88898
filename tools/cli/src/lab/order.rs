//! What the processes of a lab say to each other: the command that starts it, its holder and its supervisor. Only processes that it started
//! receive these.

use serde::{Deserialize, Serialize};

/// From the command to the holder, and from the holder to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The name of the lab if the file has none.
    pub default_name: String,
    /// The text of its file.
    pub file: String,
    /// Where the control socket is to be.
    pub socket: String,
    /// The lab ends with the command that started it.
    pub tied: bool,
}

/// Steps of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The holder is in a new user namespace and waits for its maps.
    NeedsMaps,
    /// The command has written them.
    Mapped,
    /// From holder to supervisor: a host, whose namespaces of these kinds and interfaces come with it.
    Host {
        /// The number of the node.
        node: usize,
        /// The kinds of the namespaces; the descriptors behind them are interfaces.
        spaces: Vec<String>,
    },
    /// From holder to supervisor: all hosts were sent.
    AllHosts,
    /// Everything runs.
    Ready {
        /// What is not as it should be, and does not prevent the lab from running.
        notes: Vec<String>,
    },
    /// The start failed.
    Failed(String),
}
