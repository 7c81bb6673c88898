//! Whole engines over loopback: operations, events, handlers, other processes, and scripted peers.
//! These tests run in parallel; those that count descriptors, memory or time are in `tests/serial`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../split/lan/tests/common/space.rs"]
mod space;

mod captures;
mod claims;
mod control;
mod failing;
mod handlers;
mod loopback;
mod notification;
mod peers;
mod region_export;
mod roce_auto;
mod roce_cm;
mod roce_hostile;
mod terminate;
mod threads;

/// The other process of a test, see `common/process.rs`.
#[test]
fn as_child() {
    match common::process::role() {
        None => {}
        Some((role, settings)) if role == "rival" => claims::race_as_child(&settings),
        Some((role, settings)) if role == "heir" => region_export::adopt_as_child(&settings),
        Some((role, settings)) if role == "target" => common::process::target(&settings),
        Some((role, _)) => panic!("{role}"),
    }
}
