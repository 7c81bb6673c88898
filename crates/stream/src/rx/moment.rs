//! The four phases of receiving a segment: head, claim of a receive, payload, trailer.
//! All transitions are in [`Moment::next`], whose table is kept as a snapshot.

use serde::{Deserialize, Serialize};

/// Which part of a segment is being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
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
pub enum Event {
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

impl Moment {
    /// Every phase, for tables.
    pub const ALL: [Moment; 4] = [
        Moment::Head,
        Moment::Claim,
        Moment::Payload,
        Moment::Trailer,
    ];

    /// The next phase; `None` when the event cannot happen now.
    pub fn next(self, event: Event) -> Option<Moment> {
        match (self, event) {
            (Moment::Head, Event::HeadDone) => Some(Moment::Payload),
            (Moment::Head, Event::WantsReceive) => Some(Moment::Claim),
            (Moment::Claim, Event::Claimed) => Some(Moment::Payload),
            (Moment::Payload, Event::PayloadDone) => Some(Moment::Trailer),
            (Moment::Trailer, Event::FrameDone) => Some(Moment::Head),
            _ => None,
        }
    }
}

impl Event {
    /// Every event, for tables.
    pub const ALL: [Event; 5] = [
        Event::HeadDone,
        Event::WantsReceive,
        Event::Claimed,
        Event::PayloadDone,
        Event::FrameDone,
    ];
}
