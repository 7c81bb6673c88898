//! What two startup frames agree on, seen from outside the connection (RFC 5044 §7.1.1, RFC 6581 §9).
//! It promises the answer both ends come to, and where a bystander cannot know a limit, the widest one.
//! It refuses to judge the frames: whether the ends should have agreed is their business.

use verbena_stream::rx::First;
use verbena_wire::mpa::startup::{EXT_AGREE, EXT_OFFER};
use verbena_wire::mpa::{Enhanced, Frame};

/// What holds on the stream. Arrays are by direction: initiator to responder first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Checksums, in both directions.
    pub crc: bool,
    /// Markers in this direction.
    pub markers: [bool; 2],
    /// The messages of docs/extensions.md are lawful.
    pub extensions: bool,
    /// What must come first in this direction.
    pub first: [First; 2],
    /// Reads and atomics that may be outstanding in this direction.
    pub depth: [u16; 2],
}

/// The meeting of a Request and the Reply that accepts it.
pub fn agree(request: &Frame<'_>, reply: &Frame<'_>) -> Terms {
    // A peer that echoes reserved bits returns the offer itself; ours answers with the other bit alone.
    let offered = request.flags().reserved & EXT_OFFER != 0;
    let answer = reply.flags().reserved & (EXT_OFFER | EXT_AGREE);
    let extensions = offered && answer == EXT_AGREE;
    let blocks = request.enhanced().zip(reply.enhanced());
    Terms {
        crc: request.flags().crc || reply.flags().crc,
        // M asks for markers in what its own sender receives.
        markers: [reply.flags().markers, request.flags().markers],
        extensions,
        first: first(blocks, extensions),
        depth: match blocks {
            Some((asked, given)) if !extensions => depths(&asked, &given),
            _ => [u16::MAX; 2],
        },
    }
}

fn first(blocks: Option<(Enhanced, Enhanced)>, extensions: bool) -> [First; 2] {
    if extensions {
        return [First::Caps; 2];
    }
    match blocks {
        // RFC 6581 §9.2: the Reply lists what the responder takes.
        Some((asked, given)) if asked.peer_to_peer && given.peer_to_peer => {
            [First::Rtr(given.rtr), First::Anything]
        }
        _ => [First::Anything; 2],
    }
}

/// RFC 6581 §9.1: the responder serves its IRD; the initiator serves its own, raised to the responder's ORD.
fn depths(asked: &Enhanced, given: &Enhanced) -> [u16; 2] {
    let towards_responder = if given.ird.is_negotiated() {
        // A zero-length Read that opens the stream takes a slot even where none was agreed.
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
