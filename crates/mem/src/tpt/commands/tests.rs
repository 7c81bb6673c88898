//! The entry of an iSCSI command: how it is found, and every check before.

use super::*;
use crate::entry::Policy;

const PD: Pd = Pd(3);

fn table() -> Tpt {
    Tpt::new(1..100, Policy::Verbs, 7)
}

fn reading(tpt: &Tpt) -> Stag {
    let command = Command {
        wqe: 0x1_0000_0005,
        len: 4096,
        pd: PD,
        access: Access::REMOTE_WRITE,
    };
    tpt.register_command(command).unwrap()
}

fn data_in(stag: Stag, at: u64, len: u64) -> MemAccess {
    MemAccess {
        stag,
        at,
        len,
        pd: PD,
        qp: 2,
        needs: Access::REMOTE_WRITE,
    }
}

#[test]
fn command_stag_finds_its_work_request() {
    let tpt = table();
    let stag = reading(&tpt);
    for (at, len) in [(0, 4096), (4095, 1), (4096, 0), (0, 0)] {
        assert_eq!(
            tpt.check_command(&data_in(stag, at, len)),
            Ok(0x1_0000_0005)
        );
    }
    assert_eq!(tpt.find_command(stag, PD), Ok(0x1_0000_0005));
}

#[test]
fn each_command_check_refuses() {
    let tpt = table();
    let stag = reading(&tpt);
    let good = data_in(stag, 0, 512);
    // Valid, and the tag instance.
    for wrong in [
        Stag::from_parts(stag.index(), stag.key().wrapping_add(1)).unwrap(),
        Stag::from_parts(stag.index() ^ 1, stag.key()).unwrap(),
    ] {
        let refused = Err(Refusal::Stag { stag: wrong });
        assert_eq!(
            tpt.check_command(&MemAccess {
                stag: wrong,
                ..good
            }),
            refused
        );
        assert_eq!(tpt.find_command(wrong, PD), refused);
    }
    // The domain.
    let domain = Err(Refusal::Domain {
        stag,
        owner: 3,
        requester: 4,
    });
    assert_eq!(tpt.check_command(&MemAccess { pd: Pd(4), ..good }), domain);
    assert_eq!(tpt.find_command(stag, Pd(4)), domain);
    // Bounds, with a sum that wraps.
    let bounds = |at, len| tpt.check_command(&data_in(stag, at, len));
    assert!(matches!(bounds(4096, 1), Err(Refusal::Bounds { .. })));
    assert!(matches!(bounds(0, 4097), Err(Refusal::Bounds { .. })));
    assert!(matches!(bounds(u64::MAX, 2), Err(Refusal::Wrap { .. })));
    // The right.
    let needs = Access::REMOTE_READ;
    assert!(matches!(
        tpt.check_command(&MemAccess { needs, ..good }),
        Err(Refusal::Right { .. })
    ));
}

#[test]
fn command_and_region_stags_are_not_interchangeable() {
    let tpt = std::sync::Arc::new(table());
    let buffer = crate::Buffer::new(&tpt, 64, PD, Access::ALL).unwrap();
    let kind = Err(Refusal::Kind {
        stag: buffer.stag(),
    });
    assert_eq!(tpt.check_command(&data_in(buffer.stag(), 0, 8)), kind);
    assert_eq!(tpt.find_command(buffer.stag(), PD), kind);

    let stag = reading(&tpt);
    let reach = data_in(stag, 0, 8);
    assert!(tpt.place_remote(&reach).is_err(), "a peer by RDMA");
    assert!(tpt.place_local(&reach).is_err(), "our own side");
}

#[test]
fn an_ended_command_is_not_found_again() {
    let tpt = table();
    let before = tpt.len();
    let stag = reading(&tpt);
    tpt.deregister(stag).unwrap();
    assert_eq!(tpt.find_command(stag, PD), Err(Refusal::Stag { stag }));
    assert_eq!(tpt.len(), before);
}

/// RFC 7143 §11.2.1.8: all ones is the reserved tag; where a table would choose it, another instance is used.
#[test]
fn no_command_has_the_reserved_tag() {
    let tpt = Tpt::new(0xff_ffff..0x100_0000, Policy::Verbs, 7);
    for _ in 0..600 {
        let stag = reading(&tpt);
        assert_ne!(stag.get(), u32::MAX);
        tpt.deregister(stag).unwrap();
    }
}

#[test]
fn full_table_refuses_commands() {
    let tpt = Tpt::new(1..3, Policy::Verbs, 7);
    let (_a, _b) = (reading(&tpt), reading(&tpt));
    let command = Command {
        wqe: 0,
        len: 0,
        pd: PD,
        access: Access::REMOTE_READ,
    };
    assert_eq!(tpt.register_command(command), Err(Misuse::Full(2)));
}
