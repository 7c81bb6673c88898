//! A frame on its way to somebody who takes over some work, or none.
//! It promises to do by hand only what the receiver does not take over, and to pass everything else on untouched.
//! It refuses nothing that a complete frame says: nobody asked for its headers.

use crate::checksum::complete;
use crate::cut::cut;
use crate::error::Unfit;
use crate::offloads::Offloads;
use crate::vnet::Vnet;

/// Hands `frame` to `each` as the receiver can take it: as it is, completed, or in pieces. `room` is for those.
pub fn fit(
    vnet: &Vnet,
    frame: &[u8],
    taken: Offloads,
    room: &mut Vec<u8>,
    mut each: impl FnMut(&Vnet, &[u8]),
) -> Result<(), Unfit> {
    if taken.take(vnet) {
        each(vnet, frame);
        return Ok(());
    }
    if let Some(gso) = vnet.gso {
        return cut(frame, gso, vnet.partial, room, |piece| {
            each(&Vnet::PLAIN, piece);
        });
    }
    room.clear();
    room.extend_from_slice(frame);
    if let Some(partial) = vnet.partial {
        complete(room, partial)?;
    }
    each(&Vnet::PLAIN, room);
    Ok(())
}
