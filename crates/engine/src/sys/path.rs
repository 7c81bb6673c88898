//! A digest of the two addresses of a connection, which tells whether both ends see the same connection.
//! It does not depend on which end is ours, nor on how an IPv4 address is written.

use core::net::{IpAddr, SocketAddr};

/// The digest, equal at both ends of a connection that nothing between them ends or translates (docs/extensions.md, CAPS).
pub(super) fn path_digest(local: SocketAddr, peer: SocketAddr) -> u64 {
    let mut ends = [local, peer].map(|end| {
        let ip = match end.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        (ip.octets(), end.port().to_be_bytes())
    });
    ends.sort_unstable();
    let bytes = ends.iter().flat_map(|(ip, port)| ip.iter().chain(port));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
