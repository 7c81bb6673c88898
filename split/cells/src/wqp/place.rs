//! Placing the bytes of a cell: in registered memory that a handle names, or in the receive that the packet has taken. Rights are
//! looked up for every cell (M6, M7), a refused lookup leaves memory untouched, and a grant is held for one copy only.

use smallvec::SmallVec;
use verbena_mem::{Access, Arrival, MemAccess, Placement, Refusal, Verdict};
use verbena_nic::receive::Receive;
use verbena_split_wire::cell::AddressBlock;

use super::WqpInit;
use crate::counters::Refused;

/// The reason of a rejected cell (P3), from the refusal of memory that a peer named.
pub(super) fn refusal_cause(refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::Stag { .. }
        | Refusal::Touched { .. }
        | Refusal::Kind { .. }
        | Refusal::Domain { .. }
        | Refusal::Scope { .. }
        | Refusal::Unmapped => Refused::Handle,
        Refusal::Bounds { .. } | Refusal::Wrap { .. } => Refused::Bounds,
        Refusal::Right { .. } => Refused::Right,
        // V5: the registration is pending; the sender tries again.
        Refusal::Pending { .. } => Refused::NoBuffer,
    }
}

fn reach(init: &WqpInit, block: &AddressBlock, offset: u32, len: u32) -> MemAccess {
    MemAccess {
        stag: block.handle,
        // Wraps only if the whole packet does, which `check_write` has refused.
        at: block.at.get().wrapping_add(u64::from(offset)),
        len: u64::from(len),
        pd: init.pd,
        qp: init.number.get(),
        needs: Access::REMOTE_WRITE,
    }
}

/// Checks that all of a write may be placed, before its first byte is.
pub(super) fn check_write(init: &WqpInit, block: &AddressBlock) -> Result<(), Refused> {
    let all = reach(init, block, 0, block.len);
    let granted = init.tpt.place_remote(&all);
    granted.map(drop).map_err(|refusal| refusal_cause(&refusal))
}

/// Places one cell of a write.
pub(super) fn write(
    init: &WqpInit,
    block: &AddressBlock,
    offset: u32,
    bytes: &[u8],
    last: bool,
) -> Result<(), Refused> {
    let piece = reach(init, block, offset, bytes.len() as u32);
    let arrival = Arrival::in_order(last);
    match init.tpt.touch(&piece, &arrival) {
        Ok(Verdict::Place(place) | Verdict::Ahead(place)) => {
            let placed = place.write(0, bytes);
            placed.map(drop).map_err(|lost| refusal_cause(&lost.into()))
        }
        Ok(Verdict::Spends(place, spend)) => {
            let placed = place.write(0, bytes);
            // M9: invalidation waits for all grants, so this one is dropped first.
            drop(place);
            drop(spend);
            placed.map(drop).map_err(|lost| refusal_cause(&lost.into()))
        }
        Ok(Verdict::Dropped) => Err(Refused::Handle),
        Err(refusal) => Err(refusal_cause(&refusal)),
    }
}

/// Places bytes `offset..` of a packet in a receive; access to all of them is checked before the first is written.
pub(super) fn scatter(
    init: &WqpInit,
    receive: &Receive,
    offset: u32,
    bytes: &[u8],
) -> Result<(), Refusal> {
    let (mut skip, mut left) = (offset, bytes.len() as u32);
    let mut places: SmallVec<[Placement<'_>; 2]> = SmallVec::new();
    for sge in &receive.scatter {
        let from = skip.min(sge.len);
        let len = left.min(sge.len - from);
        (skip, left) = (skip - from, left - len);
        if len > 0 {
            places.push(init.tpt.place_local(&MemAccess {
                stag: sge.stag,
                at: sge.addr.wrapping_add(u64::from(from)),
                len: u64::from(len),
                pd: init.pd,
                qp: init.number.get(),
                needs: Access::LOCAL_WRITE,
            })?);
        }
    }
    let mut rest = bytes;
    for place in &places {
        let placed = place.write(0, rest)?;
        rest = rest.get(placed..).unwrap_or_default();
    }
    Ok(())
}
