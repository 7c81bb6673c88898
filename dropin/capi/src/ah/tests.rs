//! Sender and receiver of a datagram, read from its header. IPv4 headers are in the second half of the 40 bytes.

use super::*;

#[test]
fn ipv4_header_occupies_second_half_of_grh() {
    let mut bytes = [0_u8; 40];
    bytes[20] = 0x45;
    bytes[32..36].copy_from_slice(&[192, 0, 2, 7]);
    bytes[36..40].copy_from_slice(&[192, 0, 2, 8]);
    // SAFETY: `ibv_grh` is 40 bytes of integers, for which any bytes are valid.
    let grh: ibv_grh = unsafe { core::mem::transmute_copy(&bytes) };
    let ends = source_and_destination(&grh);
    assert_eq!(ends.0, IpAddr::from([192, 0, 2, 7]));
    assert_eq!(ends.1, IpAddr::from([192, 0, 2, 8]));
}

#[test]
fn ipv6_header_occupies_whole_grh() {
    let mut bytes = [0_u8; 40];
    bytes[0] = 0x60;
    bytes[20] = 0x45;
    bytes[23] = 1;
    bytes[39] = 9;
    // SAFETY: `ibv_grh` is 40 bytes of integers, for which any bytes are valid.
    let grh: ibv_grh = unsafe { core::mem::transmute_copy(&bytes) };
    let ends = source_and_destination(&grh);
    assert_eq!(ends.1, "0:0:0:0:0:0:0:9".parse::<IpAddr>().unwrap());
}
