//! One side's preferences and limits for a startup.
//! The defaults make a Request that every known peer accepts: revision 2, CRC, peer-to-peer, ready-to-receive by Write or Read.
//! [`super::Agreement`] is what both sides' terms come to.

use core::time::Duration;

use verbena_wire::mpa::enhanced::{Depth, Enhanced, RtrKinds};
use verbena_wire::mpa::startup::{EXT_OFFER, Flags, Revision};

/// One side's preferences and limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Initiator: the revision of the Request. A responder answers in the Request's revision.
    pub revision: Revision,
    /// Ask for checksums; if either side does, both directions have them.
    pub crc: bool,
    /// Ask the peer to send markers.
    pub markers: bool,
    /// Inbound reads and atomics that can be served at once.
    pub ird: u16,
    /// Outbound reads and atomics to ask for; [`Terms::NOT_NEGOTIATED`] leaves it open.
    pub ord: u16,
    /// Initiator: ask for the peer-to-peer model, in which a ready-to-receive message comes first (RFC 6581 §9.2).
    pub peer_to_peer: bool,
    /// Ready-to-receive messages that this side can send (initiator) or accept (responder).
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
            // A zero-length Send would consume a receive at most peers, so it is offered only if the caller asks for it.
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
    /// A depth that the startup leaves open (RFC 6581 §9.1): the other side answers with the same value.
    pub const NOT_NEGOTIATED: u16 = Depth::NOT_NEGOTIATED.get();

    /// The same terms at revision 1, for a peer that dropped a revision-2 Request.
    pub fn fallback(&self) -> Terms {
        Terms {
            revision: Revision::One,
            ..self.clone()
        }
    }

    /// The flags of the Request.
    pub(super) fn request_flags(&self) -> Flags {
        Flags {
            markers: self.markers,
            crc: self.crc,
            reject: false,
            reserved: if self.extensions { EXT_OFFER } else { 0 },
        }
    }

    /// The enhanced block of the Request; none at revision 1.
    pub(super) fn request_block(&self) -> Option<Enhanced> {
        let none = RtrKinds {
            send: false,
            write: false,
            read: false,
        };
        (self.revision == Revision::Two).then_some(Enhanced {
            ird: served_depth(self.ird),
            ord: depth(self.ord),
            peer_to_peer: self.peer_to_peer,
            rtr: if self.peer_to_peer { self.rtr } else { none },
        })
    }
}

/// The number of reads that are served, limited to the 14-bit field; never "not negotiated".
pub(super) fn served_depth(n: u16) -> Depth {
    depth(n.min(Terms::NOT_NEGOTIATED - 1))
}

/// A depth to ask for, limited to the 14-bit field. The field's largest value means "not negotiated": it is sent for exactly that
/// number, and a larger number becomes the largest depth.
pub(super) fn depth(n: u16) -> Depth {
    let none = Depth::NOT_NEGOTIATED;
    if n == none.get() {
        return none;
    }
    Depth::new(n.min(none.get() - 1)).unwrap_or(none)
}
