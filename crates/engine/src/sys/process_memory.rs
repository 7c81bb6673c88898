//! Memory of another process of the same user, read by process_vm_readv(2) without its help.
//! The kernel checks every address on both sides, so that neither a wrong address of the peer nor memory that was unmapped here does any
//! harm. What is read may change meanwhile.

use rustix::io::Errno;
use verbena_mem::Targets;

use super::{Error, Result};

/// Fills the targets with at most `len` bytes at `address` of the process `pid`; returns how many, which may be fewer. EPERM: the system
/// does not allow it (another user, not dumpable, Yama, seccomp). EFAULT: the first byte is not mapped, there or here. ESRCH: it has ended.
pub fn read_process(pid: u32, address: u64, len: u64, targets: &mut Targets<'_>) -> Result<usize> {
    let spans = targets.spans();
    let remote = libc::iovec {
        iov_base: core::ptr::without_provenance_mut(address as usize),
        iov_len: usize::try_from(len).unwrap_or(usize::MAX),
    };
    // A pid is positive; the kernel finds no process with another number.
    let pid = libc::pid_t::try_from(pid).unwrap_or(0);
    loop {
        // SAFETY: the spans are laid out like `struct iovec` (`sys/carry.rs` asserts it) and are granted or borrowed for writing until
        // `targets` is dropped. `remote` lives until the call returns; its address is used in the other process only.
        let read = unsafe {
            let local = spans.as_ptr().cast::<libc::iovec>();
            libc::process_vm_readv(pid, local, spans.len() as u64, &raw const remote, 1, 0)
        };
        match usize::try_from(read) {
            Ok(read) => return Ok(read),
            Err(_) => {
                let code = std::io::Error::last_os_error().raw_os_error();
                let errno = code.map_or(Errno::IO, Errno::from_raw_os_error);
                if errno != Errno::INTR {
                    return Err(Error::new("process_vm_readv", errno));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pid: u32, address: u64, len: u64, room: &mut [u8]) -> Result<usize> {
        let (one, two) = room.split_at_mut(room.len() / 2);
        let mut targets = Targets::new();
        assert!(targets.stage(one) && targets.stage(two));
        read_process(pid, address, len, &mut targets)
    }

    #[test]
    fn own_memory_is_read_by_address() {
        let bytes: Vec<u8> = (0..100).collect();
        let address = bytes.as_ptr().addr() as u64;
        for len in [1, 8, 60, 100] {
            let mut room = [0; 80];
            let copied = len.min(80);
            let answer = read(std::process::id(), address, len as u64, &mut room);
            assert_eq!(answer, Ok(copied));
            assert_eq!(room[..copied], bytes[..copied]);
            assert!(room[copied..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn wrong_address_or_process_is_an_error() {
        let code = |answer: Result<usize>| answer.unwrap_err().code();
        let mut room = [0; 8];
        for address in [0, 8, u64::MAX - 100] {
            let answer = read(std::process::id(), address, 8, &mut room);
            assert_eq!(code(answer), libc::EFAULT, "{address:#x}");
        }
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert_eq!(code(read(pid, 4096, 8, &mut room)), libc::ESRCH, "{pid}");
        }
    }
}
