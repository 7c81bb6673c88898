//! What one side brings to a startup: its wishes and its limits.
//! It promises sane defaults: the Request that every known peer accepts (revision 2, CRC, peer-to-peer, write and read RTR).
//! It refuses to know what the other side brings; [`super::Agreement`] is the meeting of both.

use core::time::Duration;

use verbena_wire::mpa::enhanced::{Depth, Enhanced, RtrKinds};
use verbena_wire::mpa::startup::{EXT_OFFER, Flags, Revision};

/// One side's wishes and limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Initiator: the revision of the Request. A responder answers in the Request's revision.
    pub revision: Revision,
    /// We want checksums; if either side does, both directions carry them.
    pub crc: bool,
    /// We need markers in what the peer sends.
    pub markers: bool,
    /// Inbound reads and atomics we can serve at once.
    pub ird: u16,
    /// Outbound reads and atomics we would like to have at once; [`Terms::NOT_NEGOTIATED`] leaves it open.
    pub ord: u16,
    /// Initiator: ask for the peer-to-peer model, in which a ready-to-receive message comes first (RFC 6581 §9.2).
    pub peer_to_peer: bool,
    /// Ready-to-receive messages we can send (initiator) or take (responder).
    pub rtr: RtrKinds,
    /// Offer, or agree to, Verbena's extensions (docs/extensions.md).
    pub extensions: bool,
    /// How long the whole exchange may take.
    pub timeout: Duration,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            revision: Revision::Two,
            crc: true,
            markers: false,
            ird: 128,
            ord: 128,
            peer_to_peer: true,
            // A zero-length Send would consume a receive at most peers, so it is offered only on request.
            rtr: RtrKinds {
                send: false,
                write: true,
                read: true,
            },
            extensions: true,
            timeout: Duration::from_secs(5),
        }
    }
}

impl Terms {
    /// A depth that the startup does not settle (RFC 6581 §9.1): the other side answers in kind.
    pub const NOT_NEGOTIATED: u16 = Depth::NOT_NEGOTIATED.get();

    /// The same wishes at revision 1, for a peer that dropped a revision-2 Request.
    pub fn fallback(&self) -> Terms {
        Terms {
            revision: Revision::One,
            ..self.clone()
        }
    }

    /// The flags of our Request.
    pub(super) fn request_flags(&self) -> Flags {
        Flags {
            markers: self.markers,
            crc: self.crc,
            reject: false,
            reserved: if self.extensions { EXT_OFFER } else { 0 },
        }
    }

    /// The enhanced block of our Request; none at revision 1.
    pub(super) fn request_block(&self) -> Option<Enhanced> {
        let none = RtrKinds {
            send: false,
            write: false,
            read: false,
        };
        (self.revision == Revision::Two).then_some(Enhanced {
            ird: promise(self.ird),
            ord: depth(self.ord),
            peer_to_peer: self.peer_to_peer,
            rtr: if self.peer_to_peer { self.rtr } else { none },
        })
    }
}

/// The depth we serve, as it fits the 14-bit field: always a promise, never left open.
pub(super) fn promise(n: u16) -> Depth {
    depth(n.min(Terms::NOT_NEGOTIATED - 1))
}

/// A depth we ask for, as it fits the 14-bit field. Its largest value means "not negotiated": asked for by that very number, it is
/// sent; a larger wish becomes the largest depth there is.
pub(super) fn depth(n: u16) -> Depth {
    let none = Depth::NOT_NEGOTIATED;
    if n == none.get() {
        return none;
    }
    Depth::new(n.min(none.get() - 1)).unwrap_or(none)
}
