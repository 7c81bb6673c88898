//! The promiscuity count of an interface, by netlink (`IFLA_PROMISCUITY`). Unlike the interface's flags, it includes bridges and packet
//! sockets. A truncated answer is an error.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socket_with};

/// Lengths of `nlmsghdr`, `ifinfomsg` and `rtattr`.
const HEAD: usize = 16;
const INFO: usize = 16;
const ATTRIBUTE: usize = 4;

/// Length of the answer buffer; without statistics no answer is longer.
const MAX_REPLY: usize = 32 << 10;

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_PROMISCUITY: u16 = 30;
const RTEXT_FILTER_SKIP_STATS: u32 = 8;

/// A socket for the requests; it stays in the network namespace in which it was opened.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    // Its protocol is NETLINK_ROUTE, which is zero.
    socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)
}

/// How many users require promiscuous mode of the interface with this index.
pub(crate) fn count(socket: &OwnedFd, index: u32) -> Result<u32, Errno> {
    send(socket, &request(index), SendFlags::empty())?;
    let mut answer = vec![0; MAX_REPLY];
    // The kernel has queued the answer before `send` returns.
    let (got, len) = recv(socket, &mut answer, RecvFlags::DONTWAIT | RecvFlags::TRUNC)?;
    let answer = answer.get(..len.min(got)).unwrap_or_default();
    parse_reply(answer, index)
}

fn request(index: u32) -> [u8; HEAD + INFO + ATTRIBUTE + 4] {
    let mut bytes = [0; HEAD + INFO + ATTRIBUTE + 4];
    let mut put = |at: usize, field: &[u8]| {
        let to = bytes.get_mut(at..at + field.len());
        to.into_iter().for_each(|to| to.copy_from_slice(field));
    };
    put(0, &((HEAD + INFO + ATTRIBUTE + 4) as u32).to_ne_bytes());
    put(4, &RTM_GETLINK.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    put(HEAD + 4, &index.to_ne_bytes());
    put(HEAD + INFO, &(ATTRIBUTE as u16 + 4).to_ne_bytes());
    put(HEAD + INFO + 2, &IFLA_EXT_MASK.to_ne_bytes());
    put(HEAD + INFO + 4, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    bytes
}

fn parse_reply(answer: &[u8], index: u32) -> Result<u32, Errno> {
    let word = |at: usize| {
        let word = answer.get(at..).and_then(<[u8]>::first_chunk);
        word.copied().map(u32::from_ne_bytes).ok_or(Errno::BADMSG)
    };
    let half = |at: usize| {
        let half = answer.get(at..).and_then(<[u8]>::first_chunk);
        half.copied().map(u16::from_ne_bytes).ok_or(Errno::BADMSG)
    };
    if half(4)? == NLMSG_ERROR {
        let errno = word(HEAD)? as i32;
        return Err(Errno::from_raw_os_error(errno.wrapping_neg()));
    }
    let end = word(0)? as usize;
    if half(4)? != RTM_NEWLINK || word(HEAD + 4)? != index || end > answer.len() {
        return Err(Errno::BADMSG);
    }
    let mut at = HEAD + INFO;
    while at + ATTRIBUTE <= end {
        let len = usize::from(half(at)?);
        if half(at + 2)? == IFLA_PROMISCUITY {
            return word(at + ATTRIBUTE);
        }
        at += len.max(ATTRIBUTE).next_multiple_of(4);
    }
    Err(Errno::BADMSG)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with an unrelated attribute of five bytes before `IFLA_PROMISCUITY`.
    fn reply() -> Vec<u8> {
        let mut bytes = request(7)[..HEAD + INFO].to_vec();
        bytes[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
        for (kind, data) in [(3_u16, &b"x"[..]), (IFLA_PROMISCUITY, &2_u32.to_ne_bytes())] {
            bytes.extend((ATTRIBUTE as u16 + data.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(data);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes
    }

    #[test]
    fn truncated_netlink_answer_is_an_error() {
        let bytes = reply();
        assert_eq!(parse_reply(&bytes, 7), Ok(2));
        assert_eq!(parse_reply(&bytes, 8), Err(Errno::BADMSG));
        for len in 0..bytes.len() {
            assert!(parse_reply(&bytes[..len], 7).is_err(), "{len}");
        }
        // An attribute of length zero does not make the loop endless.
        let mut endless = bytes.clone();
        endless[HEAD + INFO..HEAD + INFO + 4].fill(0);
        let _ = parse_reply(&endless, 7);
    }

    #[test]
    fn loopback_promiscuity_count_is_zero() {
        let socket = open().unwrap();
        assert_eq!(count(&socket, 1), Ok(0));
        assert_eq!(count(&socket, 0x7fff_fff0), Err(Errno::NODEV));
    }
}
