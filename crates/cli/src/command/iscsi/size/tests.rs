//! Parsing and formatting of sizes.

use super::{bytes, shown};

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
    assert_eq!(shown(0), "0 B");
    assert_eq!(shown(1023), "1023 B");
    assert_eq!(shown(1024), "1 KiB");
    assert_eq!(shown(256 << 20), "256 MiB");
    assert_eq!(shown((3 << 30) / 2), "1.5 GiB");
    assert_eq!(shown(u64::MAX), "16777215.9 TiB");
}
