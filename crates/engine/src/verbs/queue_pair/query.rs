//! The attributes, state and connection of a queue pair in one answer (N1).
//! The queue pair's part is a consistent snapshot; handlers and addresses are read a moment later.

use core::net::SocketAddr;

use verbena_nic::QpInfo;

use super::{QpAttr, QueuePair};
use crate::error::Error;
use crate::notify::handler::HandlerId;

/// A queue pair with its handlers and addresses.
#[derive(Debug, Clone)]
pub struct QueuePairInfo {
    /// The queue pair itself: domain, access, queues, state, outstanding work, first error.
    pub qp: QpInfo,
    /// The handler of the queue that its sends complete in, if that has one.
    pub send_handler: Option<HandlerId>,
    /// The handler of the queue that its receives complete in, if that has one.
    pub recv_handler: Option<HandlerId>,
    /// Its attributes towards the peer: timeouts, retries, read depths.
    pub attr: QpAttr,
    /// Our address and port, while it is connected.
    pub local_addr: Option<SocketAddr>,
    /// The peer's address and port, while it is connected.
    pub peer_addr: Option<SocketAddr>,
}

impl QueuePair {
    /// Queries the queue pair.
    pub fn query(&self) -> Result<QueuePairInfo, Error> {
        self.core.check()?;
        let qp = self.core.function.query_qp(self.number())?;
        let handler = |cq| self.core.notification.cq_notifications.handler(cq);
        let connection = self.slot.get();
        let local = connection
            .as_ref()
            .and_then(|c| c.transport().socket().local_addr().ok());
        Ok(QueuePairInfo {
            send_handler: handler(qp.init_attr.send_cq),
            recv_handler: handler(qp.init_attr.recv_cq),
            attr: *self.attr.lock(),
            local_addr: local,
            peer_addr: connection.map(|c| c.peer()),
            qp,
        })
    }
}
