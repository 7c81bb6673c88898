//! The split driver with real programs: hosts, a unit and a LAN in network namespaces (P8, P9). Each test has its own namespaces,
//! processes and status directory, which are removed in any case. Tests that measure run alone, since there may be few processors; the
//! others, which mostly wait, run in parallel.

#[path = "../../../../split/lan/tests/common/space.rs"]
mod space;

mod blob;
mod channels;
mod command_output;
mod disks;
mod faults;
mod killed;
mod lossy;
mod program;
mod queues;
mod relay;
mod rights;
mod traffic;
mod world;
