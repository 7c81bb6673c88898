//! The addresses of the packets that a connection receives, by which its events are steered (E8).
//! They are determined when events are first steered by them: until then a connection costs no system call and no memory for it.

use std::net::SocketAddr;

use verbena_events::event::Outbox;
use verbena_events::toeplitz::Tuple;
use verbena_sync::locks::OnceLock;

/// The addresses of one connection, once they are known; none if its two ends are of different families.
#[derive(Debug)]
pub(crate) struct PacketAddresses(OnceLock<Option<Box<Tuple>>>);

impl PacketAddresses {
    pub(crate) fn new() -> PacketAddresses {
        PacketAddresses(OnceLock::new())
    }

    /// Events that are added from now on are raised with the addresses of the connection, if events are `steered` by them. `ends` are the peer's
    /// address and the local one.
    #[inline]
    pub(crate) fn begin(
        &self,
        steered: bool,
        ends: impl FnOnce() -> Option<(SocketAddr, SocketAddr)>,
        out: &mut Outbox,
    ) {
        if steered {
            out.set_packet(self.tuple(ends));
        }
    }

    #[cold]
    fn tuple(&self, ends: impl FnOnce() -> Option<(SocketAddr, SocketAddr)>) -> Option<Tuple> {
        let determine = || {
            let (peer, local) = ends()?;
            Tuple::segment(peer, local).map(Box::new)
        };
        self.0.get_or_init(determine).as_deref().copied()
    }
}
