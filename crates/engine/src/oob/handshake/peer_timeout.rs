//! The time limit for requests that wait for an absent peer.
//! They fail when the peer has been absent for `patience` since the first of them was posted, regardless of calls made meanwhile.
//! No time runs while no request waits.

use verbena_nic::Qp;
use verbena_stream::Time;

use super::{OobHandshake, Stage, State};
use crate::sys;

impl OobHandshake {
    /// Requests were posted while no peer is connected: the time runs from the first of them.
    pub(crate) fn start_peer_timeout(&self) {
        let mut state = self.state.lock();
        match state.stage {
            Stage::Connected | Stage::Roce => {}
            Stage::Waiting | Stage::Calling => {
                self.arm_peer_timeout(&mut state);
                drop(state);
                self.send_posted_by_roce();
            }
            Stage::Closed => {
                let qp = state.expected.as_ref().map(|e| e.options.qp.clone());
                drop(state);
                if let Some(qp) = qp {
                    self.core.run_on_qp(&qp, Qp::handle_peer_dead);
                }
            }
        }
    }

    pub(super) fn arm_peer_timeout(&self, state: &mut State) {
        let Some(expected) = &state.expected else {
            return;
        };
        let patience = expected.options.slot.peer_timeout();
        let since = *state.waiting_since.get_or_insert_with(sys::now);
        if let Some(patience) = patience {
            // Setting the same time again sets no second timer.
            self.shard.set_timer(since + patience, self.token);
        }
    }

    /// Fails the requests if the peer has been absent for `patience`.
    pub(super) fn check_peer_timeout(&self, now: Time) {
        let state = self.state.lock();
        let Some((expected, since)) = state.expected.as_ref().zip(state.waiting_since) else {
            return;
        };
        let absent = matches!(state.stage, Stage::Waiting | Stage::Calling);
        let patience = expected.options.slot.peer_timeout();
        let Some(patience) = patience.filter(|_| absent) else {
            return;
        };
        let qp = expected.options.qp.clone();
        drop(state);
        if now < since + patience {
            // `patience` was raised since the timer was set.
            return self.shard.set_timer(since + patience, self.token);
        }
        self.core.run_on_qp(&qp, Qp::handle_peer_dead);
    }
}
