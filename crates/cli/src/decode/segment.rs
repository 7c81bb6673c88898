//! One TCP segment out of an IP packet of either version.
//! It promises the payload without link-layer padding, and says when the capture kept only part of it.
//! It refuses to reassemble IP fragments: it only tells that it met one.

use std::net::{IpAddr, SocketAddr};

use etherparse::{LaxIpSlice, TcpSlice, ip_number};

/// A TCP segment as it was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// Who it is for.
    pub to: SocketAddr,
    /// Number of its first byte.
    pub seq: u32,
    /// The next byte the sender expects, if it says so.
    pub ack: Option<u32>,
    /// Opens a connection.
    pub syn: bool,
    /// The sender's last byte is in front of this.
    pub fin: bool,
    /// The connection is gone.
    pub rst: bool,
    /// The payload as far as it was captured.
    pub payload: &'a [u8],
    /// More payload was on the wire than in the capture.
    pub cut: bool,
}

/// What an IP packet turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<'a> {
    /// A TCP segment.
    Tcp(Segment<'a>),
    /// A fragment of TCP.
    Fragment,
    /// Anything else.
    Other,
}

/// Looks into an IP packet.
pub fn find(packet: &[u8]) -> Found<'_> {
    // Lax: captures on a sending host hold packets whose length the adapter fills in later.
    let Ok((ip, _)) = LaxIpSlice::from_slice(packet) else {
        return Found::Other;
    };
    let (source, destination): (IpAddr, IpAddr) = match &ip {
        LaxIpSlice::Ipv4(v4) => {
            let header = v4.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
            )
        }
        LaxIpSlice::Ipv6(v6) => {
            let header = v6.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
            )
        }
    };
    let (payload, cut) = match ip {
        LaxIpSlice::Ipv4(v4) => (v4.payload().clone(), v4.payload().incomplete),
        LaxIpSlice::Ipv6(v6) => (v6.payload().clone(), v6.payload().incomplete),
    };
    if payload.ip_number != ip_number::TCP {
        return Found::Other;
    }
    if payload.fragmented {
        return Found::Fragment;
    }
    let Ok(tcp) = TcpSlice::from_slice(payload.payload) else {
        return Found::Other;
    };
    Found::Tcp(Segment {
        from: SocketAddr::new(source, tcp.source_port()),
        to: SocketAddr::new(destination, tcp.destination_port()),
        seq: tcp.sequence_number(),
        ack: tcp.ack().then(|| tcp.acknowledgment_number()),
        syn: tcp.syn(),
        fin: tcp.fin(),
        rst: tcp.rst(),
        payload: payload.payload.get(tcp.header_len()..).unwrap_or_default(),
        cut,
    })
}

#[cfg(test)]
mod tests;
