//! The header byte by byte, and the round trip of every header.

use super::*;

const TCP: Vnet = Vnet {
    partial: Some(PartialChecksum {
        start: 34,
        offset: 16,
    }),
    data_valid: false,
    gso: Some(Gso {
        kind: GsoKind::Tcp4,
        size: 1448,
        headers: 66,
        ecn: true,
    }),
};

#[test]
fn header_bytes_match_virtio_layout() {
    let bytes = [1, 0x81, 66, 0, 0xa8, 0x05, 34, 0, 16, 0];
    assert_eq!(TCP.emit(), bytes);
    assert_eq!(Vnet::parse(&bytes), Ok(TCP));
    assert_eq!(Vnet::PLAIN.emit(), [0; VNET_HDR_LEN]);
    assert_eq!(Vnet::parse(&[0; VNET_HDR_LEN]), Ok(Vnet::PLAIN));
}

#[test]
fn invalid_vnet_headers_are_refused() {
    // Fragments of a datagram, tunnels, and unassigned types.
    for kind in [2, 3, 6, 0x20, 0x40, 0x83] {
        let mut bytes = TCP.emit();
        bytes[1] = kind;
        assert_eq!(Vnet::parse(&bytes), Err(FrameError::GsoKind { kind }));
    }
    let mut bytes = TCP.emit();
    bytes[4..6].fill(0);
    assert_eq!(Vnet::parse(&bytes), Err(FrameError::ZeroGsoSize));
    let mut bytes = TCP.emit();
    bytes[0] = 0;
    assert_eq!(Vnet::parse(&bytes), Err(FrameError::NoPartialChecksum));
}

#[test]
fn unclaimed_clears_known_good_only() {
    let claims = Vnet::parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    assert!(claims.data_valid && claims.without_data_valid() == Vnet::PLAIN);
    assert_eq!(TCP.without_data_valid(), TCP);
}

#[test]
fn vlan_tag_shifts_every_offset() {
    let shifted = TCP.shifted(4);
    assert_eq!(shifted.partial.map(|p| (p.start, p.offset)), Some((38, 16)));
    assert_eq!(shifted.gso.map(|g| g.headers), Some(70));
    assert_eq!(Vnet::PLAIN.shifted(4), Vnet::PLAIN);
}

proptest::proptest! {
    /// An accepted header is the same after emitting and parsing; nothing panics.
    #[test]
    fn accepted_header_round_trips(bytes: [u8; VNET_HDR_LEN]) {
        if let Ok(mut vnet) = Vnet::parse(&bytes) {
            vnet.data_valid &= vnet.partial.is_none();
            proptest::prop_assert_eq!(Vnet::parse(&vnet.emit()), Ok(vnet));
            proptest::prop_assert_eq!(Vnet::parse_native(&vnet.emit_native()), Ok(vnet));
        }
    }
}
