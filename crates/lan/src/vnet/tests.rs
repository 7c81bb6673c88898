//! The header byte by byte, and the round trip of every header.

use super::*;

const TCP: Vnet = Vnet {
    partial: Some(Partial {
        start: 34,
        offset: 16,
    }),
    known_good: false,
    gso: Some(Gso {
        kind: Kind::Tcp4,
        size: 1448,
        headers: 66,
        ecn: true,
    }),
};

#[test]
fn the_bytes_are_those_of_virtio() {
    let bytes = [1, 0x81, 66, 0, 0xa8, 0x05, 34, 0, 16, 0];
    assert_eq!(TCP.emit(), bytes);
    assert_eq!(Vnet::parse(&bytes), Ok(TCP));
    assert_eq!(Vnet::PLAIN.emit(), [0; VNET]);
    assert_eq!(Vnet::parse(&[0; VNET]), Ok(Vnet::PLAIN));
}

#[test]
fn what_cannot_be_is_refused() {
    // Fragments of a datagram, tunnels, and unassigned types.
    for kind in [2, 3, 6, 0x20, 0x40, 0x83] {
        let mut bytes = TCP.emit();
        bytes[1] = kind;
        assert_eq!(Vnet::parse(&bytes), Err(Unfit::Kind { kind }));
    }
    let mut bytes = TCP.emit();
    bytes[4..6].fill(0);
    assert_eq!(Vnet::parse(&bytes), Err(Unfit::NoSize));
    let mut bytes = TCP.emit();
    bytes[0] = 0;
    assert_eq!(Vnet::parse(&bytes), Err(Unfit::WholeChecksum));
}

#[test]
fn a_claim_is_taken_back_and_nothing_else() {
    let claims = Vnet::parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    assert!(claims.known_good && claims.unclaimed() == Vnet::PLAIN);
    assert_eq!(TCP.unclaimed(), TCP);
}

#[test]
fn a_tag_moves_every_place() {
    let shifted = TCP.shifted(4);
    assert_eq!(shifted.partial.map(|p| (p.start, p.offset)), Some((38, 16)));
    assert_eq!(shifted.gso.map(|g| g.headers), Some(70));
    assert_eq!(Vnet::PLAIN.shifted(4), Vnet::PLAIN);
}

proptest::proptest! {
    /// An accepted header is the same after emitting and parsing; nothing panics.
    #[test]
    fn there_and_back(bytes: [u8; VNET]) {
        if let Ok(mut vnet) = Vnet::parse(&bytes) {
            vnet.known_good &= vnet.partial.is_none();
            proptest::prop_assert_eq!(Vnet::parse(&vnet.emit()), Ok(vnet));
            proptest::prop_assert_eq!(Vnet::parse_native(&vnet.emit_native()), Ok(vnet));
        }
    }
}
