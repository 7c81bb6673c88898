//! The verbs as C programs call them, in one process with the default settings: objects, requests, completions, events and destruction.
//! One test program, since these tests need no process of their own; those that do are beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod building;
mod busy;
mod datagrams;
mod device_memory;
mod domains;
mod failures;
mod null_region;
mod on_demand;
mod peer_destruction;
mod posting;
mod refusals;
mod timestamps;
mod unmapped;
mod waiting;
mod work;
