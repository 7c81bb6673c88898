//! The state of a connection over RoCEv2: its two machines, which requests of the send queue they have, and packets that found no room.
//! It is plain data with lookups; what happens to it is in [`super::requests`] and [`super::responses`].

use std::collections::VecDeque;

use verbena_roce::requester::OutRequest;
use verbena_roce::responder::OutResponse;
use verbena_roce::{Requester, Responder, Settings};
use verbena_stream::Time;
use verbena_wire::roce::Service;

use super::super::snapshot::Snapshots;

/// The machines of a connection.
#[derive(Debug)]
pub(in super::super) struct RoceWire {
    pub(super) service: Service,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// Numbers in the send queue of the requests that were begun, from `reported` on.
    pub(super) numbers: VecDeque<u64>,
    /// Requests whose completion the send queue knows.
    pub(super) reported: u64,
    /// Packets that found no room.
    pub(super) held_request: Option<OutRequest>,
    pub(super) held_response: Option<OutResponse>,
    /// Bytes of responses that later requests have changed since.
    pub(super) snapshots: Snapshots,
}

impl RoceWire {
    pub(super) fn new(settings: &Settings) -> RoceWire {
        RoceWire {
            service: settings.service,
            requester: Requester::new(settings),
            responder: Responder::new(settings),
            numbers: VecDeque::new(),
            reported: 0,
            held_request: None,
            held_response: None,
            snapshots: Snapshots::default(),
        }
    }

    /// The number in the send queue of a request.
    pub(super) fn number_of(&self, request: u64) -> Option<u64> {
        let at = request.checked_sub(self.reported)?;
        self.numbers.get(usize::try_from(at).ok()?).copied()
    }

    pub(in super::super) fn requester(&self) -> &Requester {
        &self.requester
    }

    /// When the requester's next deadline is.
    pub(in super::super) fn deadline(&self) -> Option<Time> {
        self.requester.deadline()
    }

    /// Packets that the responder has executed.
    pub(in super::super) fn executed(&self) -> u64 {
        self.responder.counters().executed
    }
}
