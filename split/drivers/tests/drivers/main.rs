//! Hosts and units of the split driver in network namespaces, with peers that break the protocol and networks that lose packets.
//! One program; a test that counts or limits what its process has starts itself in a process of its own (`own_process!`).

#[path = "../common/relay.rs"]
mod relay;
#[path = "../../../lan/tests/common/space.rs"]
mod space;

mod cells_impaired_network;
mod cells_on_interfaces;
mod disks;
mod forged_request;
mod host_memory;
mod invalid_hosts;
mod invalid_queues;
mod mute_unit;
mod no_descriptors;
mod refused_accept;
mod unproven_udp_sources;
