//! What is outstanding between the two sides: requests, reads and atomics in both directions.
//! It is plain data that the receive and the transmit side of a stream share.

use serde::{Deserialize, Serialize};
use verbena_wire::Rsn;

use crate::reads::{ReadsIn, ReadsOut};
use crate::requester::{Requester, RnrRetry};
use crate::responder::Responder;

/// The outstanding work of one stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Accounting {
    /// This side's requests, numbered.
    pub requester: Requester,
    /// The peer's requests, counted.
    pub responder: Responder,
    /// This side's reads and atomics that wait for responses.
    pub reads_out: ReadsOut,
    /// The peer's reads and atomics that are not answered yet.
    pub reads_in: ReadsIn,
}

impl Accounting {
    /// Nothing outstanding, with the agreed depths; `tracked` if the peer acknowledges requests.
    pub fn new(tracked: bool, ird: u16, ord: u16, retry: RnrRetry) -> Accounting {
        Accounting {
            requester: Requester::new(tracked, retry),
            responder: Responder::new(),
            reads_out: ReadsOut::new(ord),
            reads_in: ReadsIn::new(ird),
        }
    }

    /// The peer's request `rsn` ends the stream: neither it nor a later one was executed or will be answered.
    pub(crate) fn fail_from(&mut self, rsn: Rsn) {
        self.responder.fail_from(rsn);
        self.reads_in.rewind(rsn);
    }
}
