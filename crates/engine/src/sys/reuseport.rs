//! How many UDP sockets share an address and port, by the kernel's table of sockets.
//! The last one that joined has the highest number in the group: the kernel counts members from 0 in the order in which they joined, until one
//! leaves.

use core::net::SocketAddr;
use std::collections::BTreeSet;

/// UDP sockets bound to exactly this address and port; 0 if the table cannot be read.
pub fn sharing_sockets(at: SocketAddr) -> usize {
    let (path, local) = match at {
        SocketAddr::V4(v4) => ("/proc/net/udp", hex_words(&v4.ip().octets())),
        SocketAddr::V6(v6) => ("/proc/net/udp6", hex_words(&v6.ip().octets())),
    };
    let local = format!("{local}:{:04X}", at.port());
    let table = std::fs::read_to_string(path).unwrap_or_default();
    // Local address and inode of each line after the titles. The table is read in parts and may change between them, so that a socket is in
    // it twice.
    let inode = |line: &'_ str| -> Option<u64> {
        let mut columns = line.split_whitespace().skip(1);
        let is_there = columns.next() == Some(local.as_str());
        columns.nth(7).filter(|_| is_there)?.parse().ok()
    };
    let inodes: BTreeSet<u64> = table.lines().skip(1).filter_map(inode).collect();
    inodes.len()
}

/// The words of an address as the kernel prints them: as numbers of the host's byte order.
fn hex_words(octets: &[u8]) -> String {
    let words = octets
        .chunks_exact(4)
        .filter_map(|word| word.try_into().ok());
    let words = words.map(|word| format!("{:08X}", u32::from_ne_bytes(word)));
    words.collect()
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::super::DatagramSocket;
    use super::super::testing::loopbacks;
    use super::*;

    #[test]
    fn sockets_of_a_group_are_counted() {
        for ip in loopbacks() {
            let first = DatagramSocket::bind_roce(SocketAddr::new(ip, 0)).unwrap();
            let at = first.local_addr().unwrap();
            assert_eq!(sharing_sockets(at), 1);
            let _second = DatagramSocket::bind_roce(at).unwrap();
            assert_eq!(sharing_sockets(at), 2);
        }
    }
}
