//! The time limit for requests that wait for an absent peer.
//! They fail when the peer has been absent for `patience` since the first of them was posted, regardless of calls made meanwhile.
//! No time runs while no request waits.

use verbena_nic::Qp;
use verbena_stream::Time;

use super::{Life, Stage, State};
use crate::sys;

impl Life {
    /// Requests were posted while no peer is connected: the time runs from the first of them.
    pub(crate) fn miss_peer(&self) {
        let mut state = self.state.lock();
        match state.stage {
            Stage::Joined => {}
            Stage::Waiting | Stage::Calling => self.miss(&mut state),
            Stage::Over => {
                let qp = state.expected.as_ref().map(|e| e.options.qp.clone());
                drop(state);
                if let Some(qp) = qp {
                    self.core.act(&qp, Qp::handle_peer_dead);
                }
            }
        }
    }

    pub(super) fn miss(&self, state: &mut State) {
        let Some(expected) = &state.expected else {
            return;
        };
        let patience = expected.options.slot.patience();
        let since = *state.missed.get_or_insert_with(sys::now);
        if let Some(patience) = patience {
            // Setting the same time again sets no second timer.
            self.shard.at(since + patience, self.token);
        }
    }

    /// Fails the requests if the peer has been absent for `patience`.
    pub(super) fn give_up(&self, now: Time) {
        let state = self.state.lock();
        let Some((expected, since)) = state.expected.as_ref().zip(state.missed) else {
            return;
        };
        let absent = matches!(state.stage, Stage::Waiting | Stage::Calling);
        let patience = expected.options.slot.patience();
        let Some(patience) = patience.filter(|_| absent) else {
            return;
        };
        let qp = expected.options.qp.clone();
        drop(state);
        if now < since + patience {
            // `patience` was raised since the timer was set.
            return self.shard.at(since + patience, self.token);
        }
        self.core.act(&qp, Qp::handle_peer_dead);
    }
}
