//! The books of both ends, kept by someone who is neither: what one end delivers, the other one had sent.
//! It promises that a response, an acknowledgement or a RESUME is judged against what was really asked.
//! It refuses to read bytes; it is told of deliveries.

use verbena_stream::Delivery;
use verbena_stream::reads::Asked;
use verbena_wire::rdmap::Opcode;

use super::super::record::Dir;
use super::{State, Stream};

impl Stream {
    /// A message began: if it is a request, its sender has numbered it.
    pub(super) fn count_request(&mut self, dir: Dir, opcode: Opcode) {
        if let Some(books) = &mut self.books
            && opcode.is_request()
        {
            // Whoever sends this direction receives the other one.
            books[dir.reverse().index()].requester.sent();
        }
    }

    /// A message of this direction was delivered: what does that mean for its sender?
    pub(super) fn settle(&mut self, dir: Dir, delivery: &Delivery) {
        let reverse = dir.reverse().index();
        let Some(books) = &mut self.books else {
            return;
        };
        let sender = &mut books[reverse];
        match delivery {
            Delivery::ReadRequest { rsn, request, .. } => {
                let asked = Asked::Read {
                    stag: request.sink_stag,
                    to: request.sink_to,
                    size: request.size,
                };
                sender.reads_out.push(*rsn, asked);
            }
            Delivery::ReadV2Request { rsn, request, .. } => {
                let size = request.size;
                sender.reads_out.push(*rsn, Asked::ReadV2 { size });
            }
            Delivery::AtomicRequest { rsn, request, .. } => {
                let id = request.id;
                sender.reads_out.push(*rsn, Asked::Atomic { id });
            }
            Delivery::ReadDone(_) | Delivery::AtomicDone(..) => {
                sender.reads_in.answered();
            }
            Delivery::Rnr(n) => {
                // The refusal concerns the other direction, whose requests end up nowhere from n on.
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
