//! What the kernel reports of sockets (`/proc/net/tcp` and `udp`), so that tests can wait for bytes that no thread of theirs sees.
//! Only IPv4, and only the network namespace of the calling thread.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// A socket's row.
#[derive(Debug, Clone, Copy)]
pub struct SocketRow {
    pub local: SocketAddrV4,
    pub established: bool,
    /// Bytes that the peer's kernel has not acknowledged.
    pub unacknowledged: usize,
    /// Bytes that the program has not read.
    pub unread: usize,
}

impl SocketRow {
    fn parse(row: &str) -> Option<SocketRow> {
        let columns: Vec<_> = row.split_whitespace().collect();
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let (ip, port) = columns.get(1)?.split_once(':')?;
        let (unacknowledged, unread) = columns.get(4)?.split_once(':')?;
        // The address is printed as a number in host byte order.
        let ip = Ipv4Addr::from(hex(ip)?.to_ne_bytes());
        Some(SocketRow {
            local: SocketAddrV4::new(ip, hex(port)? as u16),
            established: *columns.get(3)? == "01",
            unacknowledged: hex(unacknowledged)? as usize,
            unread: hex(unread)? as usize,
        })
    }
}

/// All sockets, listeners excluded.
pub fn tcp_rows() -> Vec<SocketRow> {
    rows("tcp")
}

fn rows(protocol: &str) -> Vec<SocketRow> {
    let table = std::fs::read_to_string(format!("/proc/thread-self/net/{protocol}")).unwrap();
    let rows = table.lines().filter(|row| !row.contains(" 0A "));
    rows.filter_map(SocketRow::parse).collect()
}

/// Unread bytes in the receive buffers of UDP sockets with this port.
pub fn udp_unread(port: u16) -> usize {
    let all = rows("udp");
    let ours = all.iter().filter(|row| row.local.port() == port);
    ours.map(|row| row.unread).sum()
}

/// Connections whose local address is this one, as a listener's are.
pub fn tcp_rows_at(local: SocketAddr) -> Vec<SocketRow> {
    let mut rows = tcp_rows();
    rows.retain(|row| SocketAddr::V4(row.local) == local);
    rows
}

/// Unread bytes in the receive buffers of sockets with this local address.
pub fn unread(local: SocketAddr) -> usize {
    tcp_rows_at(local).iter().map(|row| row.unread).sum()
}
