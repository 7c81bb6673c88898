//! Memory that the peer writes by offset: `riomap`, `riounmap`, `riowrite`. Memory is registered as long as it is mapped.
//! The owner of the memory is not notified of a write.

use core::ffi::{c_int, c_void};

use libc::off_t;
use verbena::Access;
use verbena::mr::Mr;
use verbena_rsocket::Flags;

use super::{bytes, table};
use crate::errno::{Errno, minus_one};

/// Maps memory for the peer to write, or, with `PROT_NONE`, memory that only this side sends from.
///
/// # Safety
/// There are `len` bytes at `buf` that stay mapped until they are unmapped here or the socket is closed.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_riomap(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    // SAFETY: the caller guarantees that `len` bytes at `buf` stay mapped until they are unmapped or the socket is closed.
    let mapped = unsafe { map(socket, buf, len, prot, offset) };
    mapped.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// # Safety
/// As [`verbena_riomap`].
unsafe fn map(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    offset: off_t,
) -> Result<off_t, Errno> {
    let own = table::stream(socket)?;
    if buf.is_null() || len == 0 || prot & !libc::PROT_WRITE != 0 {
        return Err(Errno::INVAL);
    }
    let key = buf as usize;
    let offset = if offset == -1 { key as off_t } else { offset };
    let place = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
    if prot == libc::PROT_NONE {
        // Nothing to register: what is sent is copied anyway.
        own.stream.pd()?;
        own.local_maps.lock().push((key, len));
        return Ok(offset);
    }
    let access = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    // SAFETY: the caller guarantees that `len` bytes at `buf` stay mapped until they are unmapped or the socket is closed.
    let mr = unsafe { Mr::register(&own.stream.pd()?, buf.cast(), len, access) }?;
    own.stream.map(key, mr, place)?;
    Ok(offset)
}

/// Unmaps memory.
///
/// # Safety
/// No requirements.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_riounmap(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
) -> c_int {
    minus_one(table::stream(socket).and_then(|own| {
        let mut local = own.local_maps.lock();
        if let Some(at) = local.iter().position(|one| *one == (buf as usize, len)) {
            local.swap_remove(at);
            return Ok(());
        }
        drop(local);
        Ok(own.stream.unmap(buf as usize, len)?)
    }))
}

/// Writes into memory that the peer has mapped.
///
/// # Safety
/// `buf` points to `len` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn verbena_riowrite(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    offset: off_t,
    how: c_int,
) -> usize {
    let wrote = table::stream(socket).and_then(|own| {
        let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
        let wait = how & libc::MSG_DONTWAIT == 0;
        let flags = if wait {
            Flags::default()
        } else {
            Flags::DONT_WAIT
        };
        // SAFETY: the caller guarantees that `len` bytes at `buf` are valid for reads.
        Ok(own
            .stream
            .write_mapped(unsafe { bytes(buf, len) }?, offset, flags)?)
    });
    wrote.unwrap_or_else(|errno| {
        errno.set();
        usize::MAX
    })
}
