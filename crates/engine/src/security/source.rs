//! Sources of connections and packets, where limits are shared between them. Addresses that one host has to itself are one source.

use core::net::IpAddr;

/// The source that an address counts for where limits are per source: an address of IPv4, of this machine or of its link counts for
/// itself, any other address of IPv6 for its network of 64 bits, which is what a host has to itself (RFC 6177). All hosts of a
/// link have the same 64 bits in their link-local addresses.
#[must_use]
pub fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() && !ip.is_unicast_link_local() => {
            IpAddr::V6((ip.to_bits() & !u128::from(u64::MAX)).into())
        }
        whole => whole,
    }
}
