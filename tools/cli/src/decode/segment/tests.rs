//! Hand-made IP packets of both versions: padded, truncated, fragmented, not TCP.

use super::*;

const TCP: [u8; 20] = [
    0x1f, 0x90, 0x00, 0x50, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x19, 0, 0, 0, 0, 0, 0,
];

fn v4(total_len: u16, fragment: u16, protocol: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend(total_len.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(TCP);
    bytes.extend(b"hello");
    bytes
}

fn tcp(found: IpContents<'_>) -> Segment<'_> {
    match found {
        IpContents::Tcp(segment) => segment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ipv4_segment_is_parsed_without_padding() {
    let mut bytes = v4(45, 0, 6);
    bytes.extend([0; 6]);
    let segment = tcp(parse(&bytes));
    assert_eq!(segment.from, "10.0.0.1:8080".parse().unwrap());
    assert_eq!(segment.to, "10.0.0.2:80".parse().unwrap());
    assert_eq!((segment.seq, segment.ack), (7, Some(9)));
    assert_eq!(segment.payload, b"hello");
    assert!(segment.fin && !segment.syn && !segment.rst && !segment.truncated);
}

#[test]
fn ipv6_segment_is_parsed() {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 25, 6, 64];
    bytes.extend([0; 15]);
    bytes.push(1);
    bytes.extend([0; 15]);
    bytes.push(2);
    bytes.extend(TCP);
    bytes.extend(b"hello");
    let segment = tcp(parse(&bytes));
    assert_eq!(segment.from, "[::1]:8080".parse().unwrap());
    assert_eq!(segment.payload, b"hello");
}

#[test]
fn packet_cut_by_capture_is_marked() {
    assert!(tcp(parse(&v4(1045, 0, 6))).truncated);
}

#[test]
fn zero_ipv4_length_uses_captured_length() {
    let bytes = v4(0, 0, 6);
    let segment = tcp(parse(&bytes));
    assert_eq!(segment.payload, b"hello");
}

#[test]
fn fragments_and_other_protocols_are_distinguished() {
    assert_eq!(parse(&v4(45, 0x2000, 6)), IpContents::Fragment);
    assert_eq!(parse(&v4(45, 0, 17)), IpContents::Other);
    assert_eq!(parse(&[]), IpContents::Other);
    assert_eq!(parse(&[0xff; 40]), IpContents::Other);
}

#[test]
fn truncated_packets_never_panic() {
    let bytes = v4(45, 0, 6);
    for cut in 0..bytes.len() {
        parse(&bytes[..cut]);
    }
}
