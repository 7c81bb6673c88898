//! The end of the peer's process, as shown by its kernel: which requests it had executed without having acknowledged them.
//! Only a FIN proves something, and only if the peer would have announced an orderly close.

use verbena_stream::requester;
use verbena_stream::stream::State as StreamState;
use verbena_wire::ext::Features;

use super::QpInit;
use super::inner::Inner;
use super::send_queue::CompletionPoint;
use crate::state::{Personality, QpType};

impl Inner {
    /// The peer has closed its direction, with so many of our bytes undelivered to its process.
    ///
    /// A process that dies between executing a request and acknowledging it never sends the acknowledgement. A Verbena
    /// peer that closes in good order announces it (`Features::CLOSING_ACK`). Without that the close is the end of the
    /// process, and a FIN instead of a reset means that the process had read every byte that its TCP acknowledged: each
    /// complete request among them was executed, unless a request before it was refused (docs/connections.md). A proxy terminates
    /// TCP itself and has bytes that the process never read, so the connection must be known to be direct.
    pub(super) fn presume_executed(&mut self, init: &QpInit, undelivered: Option<u64>) {
        let tracked = init.personality == Personality::Roce && init.qp_type == QpType::Rc;
        let Some(undelivered) = undelivered.filter(|_| tracked && !self.link.is_gone()) else {
            return;
        };
        let died = self.stream.as_ref().is_some_and(|stream| {
            let requester = &stream.accounting().requester;
            stream.state() == StreamState::Running
                && stream.has(Features::CLOSING_ACK)
                && stream.is_direct()
                && requester.state() == requester::State::Flowing
                && !requester.is_closing()
        });
        if !died {
            return;
        }
        self.mark_executed(init);
        let delivered = self.transmit.accepted().saturating_sub(undelivered);
        self.sends
            .mark_executed(CompletionPoint::Accepted(delivered));
    }
}
