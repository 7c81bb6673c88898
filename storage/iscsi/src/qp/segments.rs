//! The data segments of a command as one contiguous range from offset 0. Functions visit every byte of a range once, in order, and check
//! each piece against its region (M6) each time. Grants are not kept: one lasts for one copy or one system call.

use verbena_mem::{Access, Refusal, Sources, Targets};
use verbena_nic::{Sge, UlpInit};
use verbena_wire::crc::Crc32c;

/// The pieces of `len` bytes from `offset` on.
fn pieces(data: &[Sge], offset: u32, len: u32) -> impl Iterator<Item = Sge> + '_ {
    let (mut skip, mut left) = (u64::from(offset), len);
    data.iter().filter_map(move |sge| {
        let before = skip.min(sge.len.into());
        skip -= before;
        let here = (sge.len - before as u32).min(left);
        left -= here;
        // Segments do not wrap: checked when the command was executed.
        let sge = Sge {
            addr: sge.addr.wrapping_add(before),
            len: here,
            stag: sge.stag,
        };
        (here > 0).then_some(sge)
    })
}

/// Whether the memory of all segments can be accessed now.
pub(super) fn check(init: &UlpInit, data: &[Sge], needs: Access) -> Result<(), Refusal> {
    for sge in data.iter().filter(|sge| sge.len > 0) {
        let reach = init.access(sge, needs);
        if needs == Access::LOCAL_WRITE {
            init.tpt.place_local(&reach)?;
        } else {
            init.tpt.gather_local(&reach)?;
        }
    }
    Ok(())
}

/// True if memory to be written is pending (V5) and the queue pair was registered to be notified.
pub(super) fn wait(init: &UlpInit, data: &[Sge]) -> bool {
    // A posted STag comes from this table, so a table without pending entries needs no check of the segments.
    while init.tpt.has_pending()
        && let Err(Refusal::Pending { stag }) = check(init, data, Access::LOCAL_WRITE)
    {
        if init.tpt.wait(stag, init.number) {
            return true;
        }
        // The entry became ready in between; another may be pending.
    }
    false
}

/// Adds a range as read targets. Returns the bytes added, which may be fewer than asked for.
pub(super) fn targets<'a>(
    init: &'a UlpInit,
    data: &[Sge],
    (offset, len): (u32, u32),
    targets: &mut Targets<'a>,
) -> Result<u32, Refusal> {
    let mut named = 0;
    for piece in pieces(data, offset, len) {
        let added = targets.place(init.place(&piece)?) as u32;
        named += added;
        if added < piece.len {
            break;
        }
    }
    Ok(named)
}

/// Adds a range as write sources. Returns the bytes added, which may be fewer than asked for.
pub(super) fn sources<'a>(
    init: &'a UlpInit,
    data: &[Sge],
    (offset, len): (u32, u32),
    sources: &mut Sources<'a>,
) -> Result<u32, Refusal> {
    let mut named = 0;
    for piece in pieces(data, offset, len) {
        let added = sources.gather(init.gather(&piece)?) as u32;
        named += added;
        if added < piece.len {
            break;
        }
    }
    Ok(named)
}

/// Copies bytes to an offset.
pub(super) fn write(
    init: &UlpInit,
    data: &[Sge],
    offset: u32,
    bytes: &[u8],
) -> Result<(), Refusal> {
    let mut rest = bytes;
    for piece in pieces(data, offset, bytes.len() as u32) {
        let (now, later) = rest.split_at((piece.len as usize).min(rest.len()));
        init.place(&piece)?.write(0, now)?;
        rest = later;
    }
    Ok(())
}

/// Appends a copy of a range.
pub(super) fn append(
    init: &UlpInit,
    data: &[Sge],
    (offset, len): (u32, u32),
    to: &mut Vec<u8>,
) -> Result<(), Refusal> {
    for piece in pieces(data, offset, len) {
        let gather = init.gather(&piece)?;
        gather.append_to(0, piece.len as usize, to)?;
    }
    Ok(())
}

/// Adds a range that was just placed to a CRC, through a buffer that fits the cache.
pub(super) fn sum(
    init: &UlpInit,
    data: &[Sge],
    (offset, len): (u32, u32),
    crc: &mut Crc32c,
) -> Result<(), Refusal> {
    let mut window = [0; 4096];
    for piece in pieces(data, offset, len) {
        // A buffer that a command reads into need not have the right of local reads: the adapter has just written it.
        let needs = Access::LOCAL_WRITE;
        let gather = init.tpt.gather_local(&init.access(&piece, needs))?;
        let (mut at, end) = (0, u64::from(piece.len));
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
