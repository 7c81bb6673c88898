//! The permit of a startup ([`crate::door`]): a connection that has one can be displaced by a newcomer until it is a stream.
//! A permit is shown only while the lock of the phase is held, so that what it says of the connection is true.

use std::sync::Arc;

use super::starting::After;
use super::{Connection, Phase};
use crate::error::Error;

impl Connection {
    /// From now on it may be displaced: not before the shard serves it, which would go on to do so.
    pub(super) fn show_permit(self: &Arc<Self>) {
        // Its shard may have been quicker.
        match &*self.phase.lock() {
            Phase::Starting(starting) => {
                if let Some((permit, told)) = starting.permit() {
                    permit.is_of(self);
                    if told {
                        permit.asks();
                    }
                }
            }
            Phase::Lingering { permit, .. } => {
                if let Some(permit) = permit {
                    permit.is_of(self);
                }
            }
            Phase::Running { .. } | Phase::Closed => {}
        }
    }

    /// Ends before its time, because another startup takes its permit: the peer sees a reset.
    pub(crate) fn displace(self: Arc<Self>) {
        let after = match &mut *self.phase.lock() {
            Phase::Starting(starting) => starting.displace(),
            Phase::Lingering { .. } => Some(After::End(Error::Closed, None)),
            Phase::Running { .. } | Phase::Closed => None,
        };
        if let Some(after) = after {
            self.go_on(after);
        }
    }
}
