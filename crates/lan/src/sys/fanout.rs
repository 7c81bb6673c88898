//! Packet sockets that share an interface: each frame comes to one of them, and all frames of a flow to the same.
//! It promises a group that nobody else joins by accident, and that nothing comes which this machine sends itself.
//! It refuses to put fragments together: frames come as they are.

use core::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::answer;
use super::packet::set;

// Those of `linux/if_packet.h`.
const FANOUT: libc::c_int = 18;
const HASH: u32 = 0;
const UNIQUE_ID: u32 = 0x2000;
/// Kernels after 6.1 know it, and to others it says nothing.
const IGNORE_OUTGOING: u32 = 0x4000;

/// Names a group within the network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group(u16);

/// Makes a socket that is bound the first of a new group.
pub(crate) fn found(fd: &OwnedFd) -> Result<Group, Errno> {
    ignore_outgoing(fd)?;
    set(fd, FANOUT, &((HASH | IGNORE_OUTGOING | UNIQUE_ID) << 16))?;
    let mut is = 0_u32;
    let mut len = mem::size_of_val(&is) as libc::socklen_t;
    let (to, len) = ((&raw mut is).cast(), &raw mut len);
    // SAFETY: writes at most so many bytes, which are ours until the call returns.
    answer(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, FANOUT, to, len) })?;
    Ok(Group(is as u16))
}

/// Makes another socket, bound to the same interface, one of the group.
pub(crate) fn join(fd: &OwnedFd, Group(id): Group) -> Result<(), Errno> {
    ignore_outgoing(fd)?;
    set(
        fd,
        FANOUT,
        &((HASH | IGNORE_OUTGOING) << 16 | u32::from(id)),
    )
}

/// A group does not ask its sockets what they ignore, and older kernels know no flag for it: a filter holds everywhere.
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
    // Load the kind; if it is outgoing take no byte, otherwise all.
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
    // SAFETY: reads so many bytes of the program and the steps that it names, all of which are ours until the call returns.
    answer(unsafe { libc::setsockopt(fd.as_raw_fd(), socket, option, program, len) }).map(drop)
}
