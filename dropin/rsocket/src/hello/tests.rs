//! Valid and invalid hellos.

use verbena::Device;

use super::*;

fn bytes() -> [u8; Hello::BYTES] {
    let device = Device::open().unwrap();
    let memory = device.memory(4096, Access::ALL).unwrap();
    let hello = Hello {
        ring: memory.remote(),
        messages: 7,
    };
    assert_eq!(Hello::from_bytes(&hello.to_bytes()).unwrap(), hello);
    hello.to_bytes()
}

#[test]
fn malformed_hello_is_refused_with_reason() {
    let good = bytes();
    let spoilt = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Hello::from_bytes(&bytes).unwrap_err().to_string()
    };
    assert!(spoilt(3, b'2').contains("wrong magic number"));
    assert!(spoilt(5, 0).contains("accepts no messages"));
    assert!(spoilt(7, 1).contains("reserved"));
    assert!(spoilt(16, 1).contains("too long"), "2^56 bytes and more");
    assert!(spoilt(28, 4).contains("may not be written"), "only read");
    assert!(
        spoilt(29, 9).contains("not a valid memory handle"),
        "another form"
    );
    let mut empty = good;
    empty[16..24].fill(0);
    assert!(Hello::from_bytes(&empty).is_err());
    for len in 0..good.len() {
        assert!(Hello::from_bytes(&good[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn longer_hello_is_accepted() {
    let mut long = bytes().to_vec();
    long.extend([9; 9]);
    assert!(Hello::from_bytes(&long).is_ok());
}
