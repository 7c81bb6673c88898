//! The result of two startup frames, derived from outside the connection (RFC 5044 §7.1.1, RFC 6581 §9). It is what both ends derive;
//! a limit that an observer cannot know has the largest value. Whether the responder should have accepted is not checked.

use verbena_stream::rx::FirstFpdu;
use verbena_wire::mpa::startup::{EXT_AGREE, EXT_OFFER};
use verbena_wire::mpa::{Enhanced, Frame};

/// The negotiated parameters. Arrays are by direction: initiator to responder first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Checksums, in both directions.
    pub crc: bool,
    /// Markers in this direction.
    pub markers: [bool; 2],
    /// The messages of docs/extensions.md are allowed.
    pub extensions: bool,
    /// What must come first in this direction.
    pub first: [FirstFpdu; 2],
    /// Reads and atomics that may be outstanding in this direction.
    pub depth: [u16; 2],
}

/// The result of a Request and the Reply that accepts it.
pub fn agree(request: &Frame<'_>, reply: &Frame<'_>) -> Terms {
    // A peer that echoes reserved bits returns the offer itself; Verbena answers with the other bit alone.
    let offered = request.flags().reserved & EXT_OFFER != 0;
    let answer = reply.flags().reserved & (EXT_OFFER | EXT_AGREE);
    let extensions = offered && answer == EXT_AGREE;
    let blocks = request.enhanced().zip(reply.enhanced());
    Terms {
        crc: request.flags().crc || reply.flags().crc,
        // M requests markers in what the sender of the frame receives.
        markers: [reply.flags().markers, request.flags().markers],
        extensions,
        first: first(blocks, extensions),
        depth: match blocks {
            Some((asked, given)) if !extensions => depths(&asked, &given),
            _ => [u16::MAX; 2],
        },
    }
}

fn first(blocks: Option<(Enhanced, Enhanced)>, extensions: bool) -> [FirstFpdu; 2] {
    if extensions {
        return [FirstFpdu::Caps; 2];
    }
    match blocks {
        // RFC 6581 §9.2: the Reply lists what the responder accepts.
        Some((asked, given)) if asked.peer_to_peer && given.peer_to_peer => {
            [FirstFpdu::Rtr(given.rtr), FirstFpdu::Any]
        }
        _ => [FirstFpdu::Any; 2],
    }
}

/// RFC 6581 §9.1: the responder serves its IRD; the initiator serves its own, raised to the responder's ORD.
fn depths(asked: &Enhanced, given: &Enhanced) -> [u16; 2] {
    let towards_responder = if given.ird.is_negotiated() {
        // A zero-length Read as RTR takes a slot even if the depth is 0.
        let least = u16::from(given.peer_to_peer && given.rtr.read);
        given.ird.get().max(least)
    } else {
        u16::MAX
    };
    let towards_initiator = if asked.ird.is_negotiated() && given.ord.is_negotiated() {
        asked.ird.get().max(given.ord.get())
    } else {
        u16::MAX
    };
    [towards_responder, towards_initiator]
}

#[cfg(test)]
mod tests;
