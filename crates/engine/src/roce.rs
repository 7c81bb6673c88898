//! RoCEv2 in the engine: connections of queue pairs over the UDP port of [`datagram`](crate::datagram), and the connection manager of QP 1
//! that connects them. The state machines are those of `verbena_roce`; packets of a queue pair are made and executed by `verbena_nic`.

pub(crate) mod cm;
pub(crate) mod connection;
mod keep_alive;
pub(crate) mod loss;

use core::net::{IpAddr, SocketAddr};

use verbena_wire::roce::PORT;

use crate::sys;

/// Whether this peer can speak RoCEv2: on this host, some socket must have the port.
pub(crate) fn may_have_port(peer: IpAddr) -> bool {
    let is_local = peer.is_loopback() || matches!(sys::interface_of(peer), Ok(Some(_)));
    !is_local || sys::sharing_sockets(SocketAddr::new(peer, PORT)) > 0
}
