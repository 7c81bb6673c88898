//! Adapts a frame to the offloads of its receiver. Work that the receiver does not take over is done here (checksum, segmentation);
//! everything else passes unchanged, and a complete frame is not parsed.

use crate::checksum::complete;
use crate::cut::cut;
use crate::error::Unfit;
use crate::offloads::Offloads;
use crate::vnet::Vnet;

/// Passes `frame` to `each` in a form that the receiver takes: unchanged, completed, or in pieces. The latter two are built in `room`.
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
