//! UDP: datagram queue pairs (UD), and the packets of RoCEv2. `udp_port` is a UDP socket and `burst` what leaves it together, `roce_ports` are
//! the sockets at port 4791, and `packet_handover` passes what arrives there for another process on; `ud_demux` and `roce_demux` find the queue pair of a packet. `ud_pair` is what a program holds, `sidr_listener` and
//! `sidr_query` resolve a service to a queue pair.

pub(crate) mod burst;
pub(crate) mod packet_handover;
pub(crate) mod roce_demux;
pub(crate) mod roce_ports;
pub(crate) mod sidr_listener;
pub(crate) mod sidr_query;
pub(crate) mod ud_demux;
pub(crate) mod ud_pair;
pub(crate) mod udp_port;
