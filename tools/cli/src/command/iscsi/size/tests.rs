//! Parsing and formatting of sizes.

use super::{bytes, format_bytes};

#[test]
fn sizes_are_parsed() {
    assert_eq!(bytes("0"), Ok(0));
    assert_eq!(bytes("513"), Ok(513));
    assert_eq!(bytes("64k"), Ok(64 << 10));
    assert_eq!(bytes("10M"), Ok(10 << 20));
    assert_eq!(bytes("2G"), Ok(2 << 30));
    assert_eq!(bytes("16777215t"), Ok(16_777_215 << 40));
    for wrong in ["", "k", "-1", "1.5m", "1kk", "16777216t", "4 k", "ä"] {
        assert!(bytes(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn sizes_are_formatted() {
    assert_eq!(format_bytes(0), "0 B");
    assert_eq!(format_bytes(1023), "1023 B");
    assert_eq!(format_bytes(1024), "1 KiB");
    assert_eq!(format_bytes(256 << 20), "256 MiB");
    assert_eq!(format_bytes((3 << 30) / 2), "1.5 GiB");
    assert_eq!(format_bytes(u64::MAX), "16777215.9 TiB");
}
