//! The split driver with real programs: hosts, a unit and a LAN in network namespaces of their own (P8, P9).
//! Each test has its own namespaces, processes and status directory, and they go when it ends, however it ends.
//! One test runs at a time: they measure loss, and there may be few processors.

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
