//! The folder of this library, read from `/proc/self/maps` by system calls: there is no C library here that knows it.
//! The file is read once for each path that is answered for the first time.

use core::arch::asm;

const MAPS: &core::ffi::CStr = c"/proc/self/maps";
const CHUNK: usize = 1024;

#[cfg(target_arch = "x86_64")]
mod syscall_number {
    pub(super) const OPENAT: usize = 257;
    pub(super) const READ: usize = 0;
    pub(super) const CLOSE: usize = 3;
}

#[cfg(target_arch = "aarch64")]
mod syscall_number {
    pub(super) const OPENAT: usize = 56;
    pub(super) const READ: usize = 63;
    pub(super) const CLOSE: usize = 57;
}

/// A system call.
///
/// # Safety
/// As for the system call.
unsafe fn syscall(number: usize, arguments: [usize; 4]) -> isize {
    let [a, b, c, d] = arguments;
    let result: isize;
    // SAFETY: registers as in the kernel's convention; the caller guarantees that the arguments are valid for the call.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: number and arguments are in the registers of the kernel's convention; the caller guarantees that the arguments are valid for the call.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c, in("x3") d,
            options(nostack));
    }
    result
}

/// Position in a line of the file.
enum LinePart {
    Start,
    End,
    /// Permissions, offset, device, inode.
    Middle,
    Path,
    /// The rest of a line of another mapping.
    Rest,
}

/// Writes the folder with a slash at its end; returns its length. The bytes behind the folder are undefined.
///
/// # Safety
/// `to` has room for `room` bytes.
pub(crate) unsafe fn library_folder(to: *mut u8, room: usize) -> Option<usize> {
    const AT_FDCWD: usize = usize::MAX - 99; // AT_FDCWD, which is -100
    let address = core::ptr::from_ref(MAPS).cast::<u8>() as usize;
    // SAFETY: a C string and flags for `openat`: read only, close on exec.
    let fd = unsafe {
        syscall(
            syscall_number::OPENAT,
            [AT_FDCWD, MAPS.as_ptr() as usize, 0o2_000_000, 0],
        )
    };
    if fd < 0 {
        return None;
    }
    let mut part = LinePart::Start;
    let (mut start, mut end, mut len, mut folder) = (0_usize, 0_usize, 0_usize, 0_usize);
    let mut chunk = core::mem::MaybeUninit::<[u8; CHUNK]>::uninit();
    let chunk = chunk.as_mut_ptr().cast::<u8>();
    'file: loop {
        // SAFETY: `fd` is open, and `chunk` has room for `CHUNK` bytes.
        let got = unsafe {
            syscall(
                syscall_number::READ,
                [fd as usize, chunk as usize, CHUNK, 0],
            )
        };
        if got <= 0 {
            folder = 0;
            break;
        }
        let mut at = 0;
        while at < got as usize {
            // SAFETY: `at` is below the number of bytes that were read.
            let byte = unsafe { *chunk.wrapping_add(at) };
            at += 1;
            match part {
                _ if byte == b'\n' => {
                    if matches!(part, LinePart::Path) {
                        break 'file;
                    }
                    (start, end, part) = (0, 0, LinePart::Start);
                }
                LinePart::Start if byte == b'-' => part = LinePart::End,
                LinePart::Start => start = (start << 4) | digit(byte),
                LinePart::End if byte == b' ' => {
                    let ours = start <= address && address < end;
                    part = if ours {
                        LinePart::Middle
                    } else {
                        LinePart::Rest
                    };
                }
                LinePart::End => end = (end << 4) | digit(byte),
                LinePart::Middle if byte != b'/' => {}
                LinePart::Middle | LinePart::Path => {
                    part = LinePart::Path;
                    if len >= room {
                        folder = 0;
                        break 'file;
                    }
                    // SAFETY: `len` is below `room`, and the caller guarantees room for `room` bytes.
                    unsafe { *to.wrapping_add(len) = byte };
                    len += 1;
                    if byte == b'/' {
                        folder = len;
                    }
                }
                LinePart::Rest => {}
            }
        }
    }
    // SAFETY: `fd` was opened above, and is not used after this.
    unsafe { syscall(syscall_number::CLOSE, [fd as usize, 0, 0, 0]) };
    if folder == 0 && room > 0 {
        // SAFETY: the caller guarantees room for `room` bytes, which is not 0. This makes an empty C string.
        unsafe { *to = 0 };
    }
    (folder > 0).then_some(folder)
}

fn digit(byte: u8) -> usize {
    match byte {
        b'a'..=b'f' => (byte - b'a' + 10) as usize,
        _ => (byte.wrapping_sub(b'0') & 15) as usize,
    }
}
