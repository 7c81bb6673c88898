//! Datagram queue pairs (UD): `udp_port` is a UDP socket, `ud_demux` finds the queue pair of a datagram, `ud_pair` is what a
//! program holds. `sidr_listener` and `sidr_query` resolve a service to a queue pair.

pub(crate) mod sidr_listener;
pub(crate) mod sidr_query;
pub(crate) mod ud_demux;
pub(crate) mod ud_pair;
pub(crate) mod udp_port;
