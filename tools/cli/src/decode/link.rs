//! Link layers: the offset of the IP packet in a captured packet. Supported are Ethernet with any stack of VLAN tags, both versions of Linux
//! cooked captures, raw IP and loopback. Link-layer addresses are ignored.

/// BSD loopback: an address family in the byte order of the host.
const NULL: u32 = 0;
const ETHERNET: u32 = 1;
/// Raw IP, under the numbers of different systems.
const RAW: [u32; 3] = [12, 14, 101];
const LOOP: u32 = 108;
const LINUX_SLL: u32 = 113;
const IPV4: u32 = 228;
const IPV6: u32 = 229;
const LINUX_SLL2: u32 = 276;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and the type that older switches use for the outer tag.
const TYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Whether packets of this link type can be parsed.
pub fn is_known(link: u32) -> bool {
    RAW.contains(&link) || [NULL, ETHERNET, LOOP, LINUX_SLL, IPV4, IPV6, LINUX_SLL2].contains(&link)
}

/// The IP packet inside a captured packet, if there is one.
pub fn ip_packet(link: u32, data: &[u8]) -> Option<&[u8]> {
    match link {
        ETHERNET => behind_type(data, 12, 14),
        LINUX_SLL => behind_type(data, 14, 16),
        LINUX_SLL2 => behind_type(data, 0, 20),
        // The byte order of the family is unknown; the IP version has the same information.
        NULL | LOOP => data.get(4..),
        IPV4 | IPV6 => Some(data),
        raw if RAW.contains(&raw) => Some(data),
        _ => None,
    }
}

/// Skips the header and VLAN tags; `type_at` is the offset of the type field.
fn behind_type(data: &[u8], type_at: usize, header_len: usize) -> Option<&[u8]> {
    let mut ether_type = u16_at(data, type_at)?;
    let mut at = header_len;
    while TYPES_VLAN.contains(&ether_type) {
        ether_type = u16_at(data, at + 2)?;
        at += 4;
    }
    match ether_type {
        TYPE_IPV4 | TYPE_IPV6 => data.get(at..),
        _ => None,
    }
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?
        .first_chunk()
        .map(|b| u16::from_be_bytes(*b))
}

#[cfg(test)]
mod tests;
