//! RoCEv2 packets from the IP header on: a capture from a hardware adapter and computed ones. The
//! ICRC of each is recomputed and its base transport header read and written; for IPv6, where all
//! covered header fields are known to a socket's user, also the checksum made without the headers.

use std::net::Ipv6Addr;

use verbena_wire::roce::{Bth, Path, icrc, icrc_over_socket};
use verbena_wire::{Psn, Qpn};

use crate::support::hex;

const UDP_LEN: usize = 8;

/// Checks the ICRC at the packet's end and returns its transport header, which must emit unchanged.
fn check(packet: &str) -> Bth {
    let bytes = hex(packet);
    let ip_len = if bytes[0] >> 4 == 6 { 40 } else { 20 };
    let (headers, ib) = bytes.split_at(ip_len + UDP_LEN);
    let (ib, sum) = ib.split_at(ib.len() - 4);
    assert_eq!(icrc(headers, ib), sum, "{packet}");

    let udp_len = u16::from_be_bytes([headers[ip_len + 4], headers[ip_len + 5]]);
    assert_eq!(usize::from(udp_len), UDP_LEN + ib.len() + 4);
    let bth = Bth::parse(ib).expect("a transport header");
    assert_eq!(bth.emit(), ib[..Bth::LEN]);
    bth
}

/// The header of the computed packets: requests go to 0x11 and ask for an acknowledgement,
/// responses go to 0x12.
fn bth(opcode: u8, request: bool, pad: u8, psn: u32) -> Bth {
    Bth {
        opcode,
        solicited: false,
        migration: false,
        pad,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        dest_qpn: Qpn::wrapping(if request { 0x11 } else { 0x12 }),
        ack_request: request,
        psn: Psn::wrapping(psn),
    }
}

#[test]
fn congestion_notification_from_hardware() {
    let got = check(
        "45c2003c718c4000401191610a0011010a001201 000012b700280000
         8100ffff40000118 00000000 00*16 | 82fd002a",
    );
    let want = Bth {
        becn: true,
        ack_request: false,
        dest_qpn: Qpn::wrapping(0x118),
        ..bth(0x81, true, 0, 0)
    };
    assert_eq!(got, want);
}

#[test]
fn reliable_requests() {
    let send = check(
        "45000034000140004011b764c0a80101c0a80102 c12312b700200000
         0430ffff0000001180000100 68656c6c6f000000 | 12a3f970",
    );
    assert_eq!(send, bth(0x04, true, 3, 0x100));
    let write = check(
        "45000044000140004011b754c0a80101c0a80102 c12312b700300000
         0a00ffff0000001180000101 00007f0000001000 00001234 00000008 4142434445464748 | 846ad6a0",
    );
    assert_eq!(write, bth(0x0a, true, 0, 0x101));
    let read = check(
        "4500003c000140004011b75cc0a80101c0a80102 c12312b700280000
         0c00ffff0000001180000102 00007f0000001000 00001234 00000010 | 9189b725",
    );
    assert_eq!(read, bth(0x0c, true, 0, 0x102));
    let swap = check(
        "45000048000140004011b750c0a80101c0a80102 c12312b700340000
         1300ffff0000001180000103 00007f0000001000 00001234
         0000000000000009 0000000000000007 | a32d8912",
    );
    assert_eq!(swap, bth(0x13, true, 0, 0x103));
}

#[test]
fn reliable_responses() {
    let ack = check(
        "45000030000140004011b768c0a80102c0a80101 c12312b7001c0000
         1100ffff0000001200000100 1f000001 | e5f55f41",
    );
    assert_eq!(ack, bth(0x11, false, 0, 0x100));
    let read = check(
        "45000040000140004011b758c0a80102c0a80101 c12312b7002c0000
         1000ffff0000001200000102 1f000003 000102030405060708090a0b0c0d0e0f | bf42bac4",
    );
    assert_eq!(read, bth(0x10, false, 0, 0x102));
    let atomic = check(
        "45000038000140004011b760c0a80102c0a80101 c12312b700240000
         1200ffff0000001200000103 1f000004 0000000000000007 | a879c0b0",
    );
    assert_eq!(atomic, bth(0x12, false, 0, 0x103));
}

#[test]
fn negative_acknowledgements() {
    for tail in ["60000004 | 6017e9f7", "2c000004 | e5f02b26"] {
        let got = check(&format!(
            "45000030000140004011b768c0a80102c0a80101 c12312b7001c0000
             1100ffff0000001200000104 {tail}"
        ));
        assert_eq!(got, bth(0x11, false, 0, 0x104));
    }
}

#[test]
fn ipv6_icrc_matches_with_and_without_headers() {
    let ib = "0430ffff0000001180000105 68656c6c6f000000";
    let got = check(&format!(
        "6000000000201140 fd00 00*13 01 fd00 00*13 02 c12312b7002073ea {ib} | 7f657566"
    ));
    assert_eq!(got, bth(0x04, true, 3, 0x105));
    let path = Path {
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
        dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
        src_port: 0xc123,
        dst_port: 4791,
    };
    assert_eq!(icrc_over_socket(path, &hex(ib)).as_slice(), hex("7f657566"));
}
