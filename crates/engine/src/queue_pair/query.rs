//! What a queue pair is, does and belongs to, in one answer (N1).
//! It promises what was true at one moment for the queue pair, and a moment later for its queues and its connection.
//! It refuses to change anything.

use core::net::SocketAddr;

use verbena_nic::QpInfo;

use super::QueuePair;
use crate::error::Error;
use crate::handler::HandlerId;

/// A queue pair with its surroundings.
#[derive(Debug, Clone)]
pub struct QueuePairInfo {
    /// The queue pair itself: domain, rights, queues, state, work outstanding, first cause.
    pub qp: QpInfo,
    /// The handler of the queue that its sends complete in, if that has one.
    pub send_handler: Option<HandlerId>,
    /// The handler of the queue that its receives complete in, if that has one.
    pub recv_handler: Option<HandlerId>,
    /// Our address and port, while it is connected.
    pub local: Option<SocketAddr>,
    /// The peer's address and port, while it is connected.
    pub peer: Option<SocketAddr>,
}

impl QueuePair {
    /// Everything about it.
    pub fn query(&self) -> Result<QueuePairInfo, Error> {
        self.core.check()?;
        let qp = self.core.function.query_qp(self.number())?;
        let handler = |cq| self.core.listeners.handler(cq);
        let connection = self.slot.get();
        let local = connection
            .as_ref()
            .and_then(|c| c.line().socket().local().ok());
        Ok(QueuePairInfo {
            send_handler: handler(qp.made.send_cq),
            recv_handler: handler(qp.made.recv_cq),
            local,
            peer: connection.map(|c| c.peer()),
            qp,
        })
    }
}
