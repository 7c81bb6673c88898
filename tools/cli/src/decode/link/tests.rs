//! Every link type with a packet that is one byte of IP, and every one truncated.

use super::*;

fn packet(link: u32) -> Vec<u8> {
    let mut bytes = match link {
        ETHERNET => vec![0; 12],
        LINUX_SLL => vec![0; 14],
        LINUX_SLL2 => vec![],
        NULL => vec![2, 0, 0, 0],
        LOOP => vec![0, 0, 0, 2],
        _ => vec![],
    };
    if [ETHERNET, LINUX_SLL, LINUX_SLL2].contains(&link) {
        bytes.extend(TYPE_IPV4.to_be_bytes());
    }
    if link == LINUX_SLL2 {
        bytes.extend([0; 18]);
    }
    bytes.push(0x45);
    bytes
}

#[test]
fn every_known_link_type_leads_to_ip() {
    let links = [
        NULL, ETHERNET, 12, 14, 101, LOOP, LINUX_SLL, IPV4, IPV6, LINUX_SLL2,
    ];
    for link in links {
        assert!(is_known(link));
        let bytes = packet(link);
        assert_eq!(ip_packet(link, &bytes), Some(&[0x45][..]), "link {link}");
        for cut in 0..bytes.len() - 1 {
            let short = ip_packet(link, &bytes[..cut]);
            assert!(short.is_none_or(<[u8]>::is_empty), "link {link} cut {cut}");
        }
    }
}

#[test]
fn unknown_link_types_and_protocols_are_skipped() {
    assert!(!is_known(105));
    assert_eq!(ip_packet(105, &[0; 64]), None);
    let mut arp = vec![0; 12];
    arp.extend([0x08, 0x06, 0x45]);
    assert_eq!(ip_packet(ETHERNET, &arp), None);
}

#[test]
fn any_number_of_vlan_tags_is_skipped() {
    let mut bytes = vec![0; 12];
    bytes.extend([0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 9, 0x86, 0xdd, 0x60]);
    assert_eq!(ip_packet(ETHERNET, &bytes), Some(&[0x60][..]));
    assert_eq!(ip_packet(ETHERNET, &bytes[..20]), None);
}
