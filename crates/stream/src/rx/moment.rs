//! The four moments of receiving a segment: its head, a claim on a receive, its payload, its trailer.
//! All transitions are in one function, so that the table can be read and kept as a snapshot.
//! It refuses to know bytes.

use serde::{Deserialize, Serialize};

/// Which part of a segment is being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    /// Length field, DDP header and fixed-size bodies.
    Head,
    /// The head is judged; the message waits for a receive.
    Claim,
    /// Payload on its way to its place.
    Payload,
    /// Pad and checksum.
    Trailer,
}

/// What moves a segment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The head is good and payload, if any, has a place.
    HeadDone,
    /// The head is good and its message wants a receive.
    WantsReceive,
    /// The claim was answered.
    Claimed,
    /// The last payload byte was moved.
    PayloadDone,
    /// The frame is complete.
    FrameDone,
}

impl Moment {
    /// Every moment, for tables.
    pub const ALL: [Moment; 4] = [
        Moment::Head,
        Moment::Claim,
        Moment::Payload,
        Moment::Trailer,
    ];

    /// The next moment; `None` when the event cannot happen now.
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
