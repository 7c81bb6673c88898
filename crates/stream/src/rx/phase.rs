//! The four phases of receiving a segment: head, claim of a receive, payload, trailer.
//! All transitions are in [`RxPhase::next`], whose table is kept as a snapshot.

use serde::{Deserialize, Serialize};

/// Which part of a segment is being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RxPhase {
    /// Length field, DDP header and fixed-size bodies.
    Head,
    /// The head is valid; the message needs a receive.
    Claim,
    /// Payload.
    Payload,
    /// Pad and checksum.
    Trailer,
}

/// Events of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxEvent {
    /// The head is valid and payload, if any, has a place.
    HeadDone,
    /// The head is valid and its message needs a receive.
    WantsReceive,
    /// The claim was answered.
    Claimed,
    /// The last payload byte was placed.
    PayloadDone,
    /// The frame is complete.
    FrameDone,
}

impl RxPhase {
    /// Every phase, for tables.
    pub const ALL: [RxPhase; 4] = [
        RxPhase::Head,
        RxPhase::Claim,
        RxPhase::Payload,
        RxPhase::Trailer,
    ];

    /// The next phase; `None` when the event cannot happen now.
    pub fn next(self, event: RxEvent) -> Option<RxPhase> {
        match (self, event) {
            (RxPhase::Head, RxEvent::HeadDone) => Some(RxPhase::Payload),
            (RxPhase::Head, RxEvent::WantsReceive) => Some(RxPhase::Claim),
            (RxPhase::Claim, RxEvent::Claimed) => Some(RxPhase::Payload),
            (RxPhase::Payload, RxEvent::PayloadDone) => Some(RxPhase::Trailer),
            (RxPhase::Trailer, RxEvent::FrameDone) => Some(RxPhase::Head),
            _ => None,
        }
    }
}

impl RxEvent {
    /// Every event, for tables.
    pub const ALL: [RxEvent; 5] = [
        RxEvent::HeadDone,
        RxEvent::WantsReceive,
        RxEvent::Claimed,
        RxEvent::PayloadDone,
        RxEvent::FrameDone,
    ];
}
