//! The TCP segment or RoCEv2 datagram in an IP packet of either version. The payload is without link-layer padding, and a truncated one is marked. IP fragments
//! are detected, but not reassembled.

use std::net::{IpAddr, SocketAddr};

use etherparse::{LaxIpSlice, TcpSlice, UdpSlice, ip_number};

/// A TCP segment as it was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The sequence number of its first byte.
    pub seq: u32,
    /// The acknowledgement number, if the ACK flag is set.
    pub ack: Option<u32>,
    /// The SYN flag.
    pub syn: bool,
    /// The FIN flag: the sender's last byte is before it.
    pub fin: bool,
    /// The RST flag.
    pub rst: bool,
    /// The captured payload.
    pub payload: &'a [u8],
    /// The packet had more payload than was captured.
    pub truncated: bool,
}

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// A RoCEv2 datagram as it was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoceDatagram<'a> {
    /// The sender.
    pub from: IpAddr,
    /// The receiver.
    pub to: IpAddr,
    /// IP and UDP headers.
    pub headers: &'a [u8],
    /// BTH to ICRC.
    pub payload: &'a [u8],
}

/// The contents of an IP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpContents<'a> {
    /// A TCP segment.
    Tcp(Segment<'a>),
    /// A RoCEv2 datagram.
    Roce(RoceDatagram<'a>),
    /// A fragment of TCP.
    Fragment,
    /// Anything else.
    Other,
}

/// Parses an IP packet.
pub fn parse(packet: &[u8]) -> IpContents<'_> {
    // Lax: captures on a sending host have packets whose length the adapter fills in later.
    let Ok((ip, _)) = LaxIpSlice::from_slice(packet) else {
        return IpContents::Other;
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
    if payload.ip_number == ip_number::UDP && !payload.fragmented && !cut {
        let Ok(udp) = UdpSlice::from_slice(payload.payload) else {
            return IpContents::Other;
        };
        // Both slices are of `packet`.
        let start = payload.payload.as_ptr().addr() - packet.as_ptr().addr();
        let headers = packet.get(..start + udp.header_len());
        return match headers {
            Some(headers) if udp.destination_port() == ROCE_PORT => {
                IpContents::Roce(RoceDatagram {
                    from: source,
                    to: destination,
                    headers,
                    payload: udp.payload(),
                })
            }
            _ => IpContents::Other,
        };
    }
    if payload.ip_number != ip_number::TCP {
        return IpContents::Other;
    }
    if payload.fragmented {
        return IpContents::Fragment;
    }
    let Ok(tcp) = TcpSlice::from_slice(payload.payload) else {
        return IpContents::Other;
    };
    IpContents::Tcp(Segment {
        from: SocketAddr::new(source, tcp.source_port()),
        to: SocketAddr::new(destination, tcp.destination_port()),
        seq: tcp.sequence_number(),
        ack: tcp.ack().then(|| tcp.acknowledgment_number()),
        syn: tcp.syn(),
        fin: tcp.fin(),
        rst: tcp.rst(),
        payload: payload.payload.get(tcp.header_len()..).unwrap_or_default(),
        truncated: cut,
    })
}

#[cfg(test)]
mod tests;
