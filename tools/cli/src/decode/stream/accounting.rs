//! The accountings of both ends, updated by an observer: what one end delivers, the other had sent. Responses, acknowledgements and RESUME are
//! checked against the requests that were sent.

use verbena_stream::Delivery;
use verbena_stream::reads::Requested;
use verbena_wire::rdmap::Opcode;

use super::super::record::Dir;
use super::{State, Stream};

impl Stream {
    /// A message began: if it is a request, its sender has numbered it.
    pub(super) fn count_request(&mut self, dir: Dir, opcode: Opcode) {
        if let Some(books) = &mut self.accounting
            && opcode.is_request()
        {
            // The sender of this direction receives the other one.
            books[dir.reverse().index()].requester.number_request();
        }
    }

    /// Updates the sender's accounting after a message of this direction was delivered.
    pub(super) fn account_delivery(&mut self, dir: Dir, delivery: &Delivery) {
        let reverse = dir.reverse().index();
        let Some(books) = &mut self.accounting else {
            return;
        };
        let sender = &mut books[reverse];
        match delivery {
            Delivery::ReadRequest { rsn, request, .. } => {
                let asked = Requested::Read {
                    stag: request.sink_stag,
                    to: request.sink_to,
                    size: request.size,
                };
                sender.reads_out.push(*rsn, asked);
            }
            Delivery::ReadV2Request { rsn, request, .. } => {
                let size = request.size;
                sender.reads_out.push(*rsn, Requested::ReadV2 { size });
            }
            Delivery::AtomicRequest { rsn, request, .. } => {
                let id = request.id;
                sender.reads_out.push(*rsn, Requested::Atomic { id });
            }
            Delivery::ReadDone(_) | Delivery::AtomicDone(..) => {
                sender.reads_in.pop();
            }
            Delivery::Rnr(n) => {
                // The RNR applies to the other direction, whose requests are discarded from n on.
                if let State::Running(follower) = &mut self.sides[reverse].state {
                    follower.observe_rnr(*n, sender);
                }
            }
            Delivery::Ready(_) => sender.responder.observe_ready(),
            Delivery::Resumed(_) => {
                if let State::Running(follower) = &mut self.sides[dir.index()].state {
                    follower.drop_requests();
                }
            }
            Delivery::Terminate(..) => {
                self.summary.terminated.get_or_insert(dir);
                self.stop(dir);
            }
            _ => {}
        }
    }
}
