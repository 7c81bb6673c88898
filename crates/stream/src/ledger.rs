//! What is outstanding between us and the peer: requests and reads, ours and theirs.
//! It is plain data that the receive and the transmit side share, each touching its own half.
//! It refuses to know bytes: both sides translate messages into entries of this book.

use serde::{Deserialize, Serialize};
use verbena_wire::Rsn;

use crate::reads::{ReadsIn, ReadsOut};
use crate::requester::{Requester, RnrRetry};
use crate::responder::Responder;

/// The book of one stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ledger {
    /// Our requests, numbered.
    pub requester: Requester,
    /// The peer's requests, counted.
    pub responder: Responder,
    /// Our reads and atomics that wait for responses.
    pub reads_out: ReadsOut,
    /// The peer's reads and atomics that we owe responses.
    pub reads_in: ReadsIn,
}

impl Ledger {
    /// An empty book with the agreed depths; `tracked` if the peer acknowledges requests.
    pub fn new(tracked: bool, ird: u16, ord: u16, retry: RnrRetry) -> Ledger {
        Ledger {
            requester: Requester::new(tracked, retry),
            responder: Responder::new(),
            reads_out: ReadsOut::new(ord),
            reads_in: ReadsIn::new(ird),
        }
    }

    /// The peer's request `rsn` ends the stream: neither it nor a later one was executed or will be answered.
    pub(crate) fn strike(&mut self, rsn: Rsn) {
        self.responder.strike(rsn);
        self.reads_in.rewind(rsn);
    }
}
