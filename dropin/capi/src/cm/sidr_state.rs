//! The state of an identifier of the datagram port spaces: its UDP ports, the request or query that is outstanding, and its groups.
//! Dropping it closes the ports, and rejects a request without an answer.

use core::net::{IpAddr, SocketAddr};

use verbena::datagram::{SidrListener, SidrQuery, SidrRequest};

use super::address::{local_addr_for, program_port};
use crate::errno::Errno;

/// The state of an identifier for datagrams.
#[derive(Default)]
pub(crate) struct SidrState {
    /// The UDP ports that it is bound to and listens at.
    pub(crate) listeners: Vec<SidrListener>,
    pub(super) is_listening: bool,
    /// A received request, until it is answered.
    pub(crate) request: Option<SidrRequest>,
    pub(super) query: Option<SidrQuery>,
    /// Groups that it has joined, or will join when it has a queue pair.
    pub(crate) groups: Vec<Group>,
}

/// A group that an identifier joined.
pub(crate) struct Group {
    pub(super) ip: IpAddr,
    /// Full member: it receives, too.
    pub(super) receives: bool,
}

/// The local address of a request, as its program sees it.
pub(crate) fn request_local_addr(request: &SidrRequest) -> Result<SocketAddr, Errno> {
    let at = request.local_addr();
    let ip = if at.ip().is_unspecified() {
        // Received at a wildcard address: the address from which the peer is reached.
        local_addr_for(request.peer_addr())?
    } else {
        at.ip()
    };
    Ok(SocketAddr::new(ip, program_port(at.port())))
}
