//! Whole engines, one test at a time: every test here holds `serialize_tests`, and what it counts or times is its own.
//! A test that counts descriptors, memory or threads of a process that other tests have used starts itself in a process of its own
//! (`own_process!`).

#[path = "../common/mod.rs"]
mod common;

mod access;
mod cycles;
mod datagrams;
mod datagrams_hostile;
mod half_open;
mod hostile;
mod idle;
mod keys;
mod many_connections;
mod monitor;
mod multicast;
mod oob_dial;
mod out_of_band;
mod roce_port;
mod setuid_config;
mod sleep_poll;
mod tls;
mod tunables;

/// The other process of a test, see `common/process.rs`.
#[test]
fn as_child() {
    match common::process::role() {
        None => {}
        Some((role, _)) if role == "idle" => idle::accept_three_and_idle(),
        Some((role, _)) if role == "many" => many_connections::accept_many(),
        Some((role, _)) => panic!("{role}"),
    }
}
