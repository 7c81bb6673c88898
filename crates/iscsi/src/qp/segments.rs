//! The data segments of a command as one run of bytes, from offset zero: which piece of which region lies where.
//! They promise to name every byte of a range once, in order, each piece checked against its region (M6) when it is named.
//! They refuse to keep what they are granted: a grant lasts one copy or one system call.

use verbena_mem::{Access, Gather, Placement, Reach, Refusal, Sources, Targets};
use verbena_nic::{Sge, UpperInit};
use verbena_wire::crc::Crc32c;

/// A piece of a region.
struct Piece {
    sge: Sge,
}

/// The pieces of `len` bytes from `offset` on.
fn pieces(data: &[Sge], offset: u32, len: u32) -> impl Iterator<Item = Piece> + '_ {
    let (mut skip, mut left) = (u64::from(offset), len);
    data.iter().filter_map(move |sge| {
        let before = skip.min(sge.len.into());
        skip -= before;
        let here = (sge.len - before as u32).min(left);
        left -= here;
        // Posted pieces do not wrap: that was checked when the command was executed.
        let sge = Sge {
            at: sge.at.wrapping_add(before),
            len: here,
            stag: sge.stag,
        };
        (here > 0).then_some(Piece { sge })
    })
}

impl Piece {
    fn reach(&self, init: &UpperInit, needs: Access) -> Reach {
        Reach {
            stag: self.sge.stag,
            at: self.sge.at,
            len: self.sge.len.into(),
            pd: init.pd,
            qp: init.number,
            needs,
        }
    }

    fn place<'a>(&self, init: &'a UpperInit) -> Result<Placement<'a>, Refusal> {
        init.tpt.place_local(&self.reach(init, Access::LOCAL_WRITE))
    }

    fn gather<'a>(&self, init: &'a UpperInit) -> Result<Gather<'a>, Refusal> {
        init.tpt.gather_local(&self.reach(init, Access::LOCAL_READ))
    }
}

/// Every byte may be used so now.
pub(super) fn check(init: &UpperInit, data: &[Sge], needs: Access) -> Result<(), Refusal> {
    for sge in data.iter().filter(|sge| sge.len > 0) {
        let reach = Piece { sge: *sge }.reach(init, needs);
        if needs == Access::LOCAL_WRITE {
            init.tpt.place_local(&reach)?;
        } else {
            init.tpt.gather_local(&reach)?;
        }
    }
    Ok(())
}

/// Memory to be written is promised and not there yet (V5): true if we wait for it and will be told.
pub(super) fn wait(init: &UpperInit, data: &[Sge]) -> bool {
    // Whoever posted an STag had it from the table, so that a table without any pending entry needs no closer look.
    while init.tpt.has_pending()
        && let Err(Refusal::Pending { stag }) = check(init, data, Access::LOCAL_WRITE)
    {
        if init.tpt.wait(stag, init.number) {
            return true;
        }
        // It was settled at this very moment; another may be pending.
    }
    false
}

/// Names the places of a range; bytes named, which may be fewer than asked for.
pub(super) fn targets<'a>(
    init: &'a UpperInit,
    data: &[Sge],
    (offset, len): (u32, u32),
    targets: &mut Targets<'a>,
) -> Result<u32, Refusal> {
    let mut named = 0;
    for piece in pieces(data, offset, len) {
        let added = targets.place(piece.place(init)?) as u32;
        named += added;
        if added < piece.sge.len {
            break;
        }
    }
    Ok(named)
}

/// Names the sources of a range; bytes named, which may be fewer than asked for.
pub(super) fn sources<'a>(
    init: &'a UpperInit,
    data: &[Sge],
    (offset, len): (u32, u32),
    sources: &mut Sources<'a>,
) -> Result<u32, Refusal> {
    let mut named = 0;
    for piece in pieces(data, offset, len) {
        let added = sources.gather(piece.gather(init)?) as u32;
        named += added;
        if added < piece.sge.len {
            break;
        }
    }
    Ok(named)
}

/// Copies bytes to an offset.
pub(super) fn write(
    init: &UpperInit,
    data: &[Sge],
    offset: u32,
    bytes: &[u8],
) -> Result<(), Refusal> {
    let mut rest = bytes;
    for piece in pieces(data, offset, bytes.len() as u32) {
        let (now, later) = rest.split_at((piece.sge.len as usize).min(rest.len()));
        piece.place(init)?.write(0, now)?;
        rest = later;
    }
    Ok(())
}

/// Appends a copy of a range.
pub(super) fn append(
    init: &UpperInit,
    data: &[Sge],
    (offset, len): (u32, u32),
    to: &mut Vec<u8>,
) -> Result<(), Refusal> {
    for piece in pieces(data, offset, len) {
        let gather = piece.gather(init)?;
        gather.append_to(0, piece.sge.len as usize, to)?;
    }
    Ok(())
}

/// Takes a range that was just placed into a checksum, by way of a window that fits the cache.
pub(super) fn sum(
    init: &UpperInit,
    data: &[Sge],
    (offset, len): (u32, u32),
    crc: &mut Crc32c,
) -> Result<(), Refusal> {
    let mut window = [0; 4096];
    for piece in pieces(data, offset, len) {
        // What a command reads into need not be readable for anything else: the adapter has just written it.
        let needs = Access::LOCAL_WRITE;
        let gather = init.tpt.gather_local(&piece.reach(init, needs))?;
        let (mut at, end) = (0, u64::from(piece.sge.len));
        while at < end {
            let most = (end - at).min(window.len() as u64) as usize;
            let n = gather.read(at, &mut window[..most])?;
            if n == 0 {
                break;
            }
            crc.update(&window[..n]);
            at += n as u64;
        }
    }
    Ok(())
}
