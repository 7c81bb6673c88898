//! The verbs as C programs call them, in one process with the default settings: objects, requests, completions, events and destruction.
//! Tests that change settings, or count what a process has, start themselves in a process of their own (`own_process!`).

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/resident.rs"]
mod resident;

mod building;
mod busy;
mod datagrams;
mod device_memory;
mod domains;
mod failures;
mod functions;
mod gids;
mod idle_sockets;
mod layout;
mod leaks;
mod limits;
mod link;
mod null_region;
mod on_demand;
mod peer_destruction;
mod posting;
mod programs;
mod refusals;
mod strings;
mod timestamps;
mod unmapped;
mod vectors;
mod waiting;
mod work;
mod xrc;
