//! Packet sockets that share an interface through `PACKET_FANOUT`: each frame arrives at one of them, and all frames of a flow at the
//! same one. The group's identifier is unique in the network namespace, and frames that this machine sends are filtered out.

use core::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::check_result;
use super::packet::set;

// Constants of `linux/if_packet.h`.
const FANOUT: libc::c_int = 18;
const HASH: u32 = 0;
const UNIQUE_ID: u32 = 0x2000;
/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`, of kernels from about 6.1; older ones ignore it.
const IGNORE_OUTGOING: u32 = 0x4000;

/// Identifies a group within the network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group(u16);

/// Creates a group with this bound socket as its first member.
pub(crate) fn create(fd: &OwnedFd) -> Result<Group, Errno> {
    ignore_outgoing(fd)?;
    set(fd, FANOUT, &((HASH | IGNORE_OUTGOING | UNIQUE_ID) << 16))?;
    let mut is = 0_u32;
    let mut len = mem::size_of_val(&is) as libc::socklen_t;
    let (to, len) = ((&raw mut is).cast(), &raw mut len);
    // SAFETY: `to` points to the local `is` and `len` to its length; the kernel writes at most that many bytes, during the call only.
    check_result(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, FANOUT, to, len) })?;
    Ok(Group(is as u16))
}

/// Adds another socket, bound to the same interface, to the group.
pub(crate) fn join(fd: &OwnedFd, Group(id): Group) -> Result<(), Errno> {
    ignore_outgoing(fd)?;
    set(
        fd,
        FANOUT,
        &((HASH | IGNORE_OUTGOING) << 16 | u32::from(id)),
    )
}

/// A group ignores its sockets' `PACKET_IGNORE_OUTGOING`, and older kernels have no fanout flag for it; a filter works everywhere.
fn ignore_outgoing(fd: &OwnedFd) -> Result<(), Errno> {
    /// `PACKET_OUTGOING`.
    const OUTGOING: u32 = 4;
    /// `SKF_AD_OFF + SKF_AD_PKTTYPE`.
    const KIND: u32 = 0xffff_f004;
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    // Load the packet type; drop the packet if it is outgoing, otherwise accept all of it.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, KIND),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, OUTGOING),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    let len = mem::size_of_val(&program) as libc::socklen_t;
    let (socket, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    let program = (&raw const program).cast();
    // SAFETY: `program` points to a `sock_fprog` of `len` bytes, whose `filter` points to `steps`; the kernel reads both during the call
    // only, and both are locals that live until its end.
    check_result(unsafe { libc::setsockopt(fd.as_raw_fd(), socket, option, program, len) })
        .map(drop)
}
