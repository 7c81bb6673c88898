//! The permit of a startup ([`crate::accept::acceptor`]): a connection that holds one can be displaced by a newer one until it is a stream.
//! The permit is updated only while the lock of the phase is held, so that its record of the connection is correct.

use std::sync::Arc;

use super::starting::FollowUp;
use super::{Connection, Phase};
use crate::error::Error;

impl Connection {
    /// From now on the connection may be displaced; called after it was registered with the shard.
    pub(super) fn register_permit(self: &Arc<Self>) {
        // The shard may have advanced it already.
        match &*self.phase.lock() {
            Phase::Starting(starting) => {
                if let Some((permit, presented)) = starting.permit() {
                    permit.set_connection(self);
                    if presented {
                        permit.set_awaiting_decision();
                    }
                }
            }
            Phase::Lingering { permit, .. } => {
                if let Some(permit) = permit {
                    permit.set_connection(self);
                }
            }
            Phase::Running { .. } | Phase::Closed => {}
        }
    }

    /// Ends early because another startup takes its permit: the peer sees a reset.
    pub(crate) fn displace(self: Arc<Self>) {
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) => starting.displace(),
            Phase::Lingering { .. } => Some(FollowUp::End(Error::Closed, None)),
            Phase::Running { .. } | Phase::Closed => None,
        };
        if let Some(after) = after {
            self.apply(after);
        }
    }
}
