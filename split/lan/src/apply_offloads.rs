//! Adapts a frame to the offloads of its receiver. Work that the receiver does not take over is done here (checksum, segmentation);
//! everything else passes unchanged, and a complete frame is not parsed.

use crate::checksum::complete_checksum;
use crate::error::FrameError;
use crate::offloads::Offloads;
use crate::segment::segment;
use crate::vnet::Vnet;

/// Passes `frame` to `each` in a form that the receiver takes: unchanged, completed, or in pieces. The latter two are built in `room`.
pub fn apply_offloads(
    vnet: &Vnet,
    frame: &[u8],
    taken: Offloads,
    room: &mut Vec<u8>,
    mut each: impl FnMut(&Vnet, &[u8]),
) -> Result<(), FrameError> {
    if taken.accepts(vnet) {
        each(vnet, frame);
        return Ok(());
    }
    if let Some(gso) = vnet.gso {
        return segment(frame, gso, vnet.partial, room, |piece| {
            each(&Vnet::PLAIN, piece);
        });
    }
    room.clear();
    room.extend_from_slice(frame);
    if let Some(partial) = vnet.partial {
        complete_checksum(room, partial)?;
    }
    each(&Vnet::PLAIN, room);
    Ok(())
}
