//! The split driver with real programs: hosts, a unit and a LAN in network namespaces of their own (P8, P9).
//! Each test has its own namespaces, processes and status directory, and they go when it ends, however it ends.
//! Those that measure run alone, since there may be few processors; the others, which mostly wait, run beside each other.

#[path = "../../../lan/tests/common/space.rs"]
mod space;

mod blob;
mod faults;
mod killed;
mod lossy;
mod program;
mod queues;
mod relay;
mod rights;
mod said;
mod traffic;
mod world;
