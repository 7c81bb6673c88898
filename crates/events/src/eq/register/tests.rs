//! Tests of the register: positions of its fields, both ways, and invalid writes.

use super::*;

#[test]
fn register_fields_match_documented_positions() {
    let write = |queue, armed, read| Doorbell { queue, armed, read }.pack();
    assert_eq!(write(0x1234, false, Indicator::Keep), 0x0000_1234_0000_0000);
    assert_eq!(write(0, true, Indicator::Keep), 0x8000_0000_0000_0000);
    assert_eq!(write(1, true, Indicator::At(7)), 0xc000_0001_0000_0007);
    assert_eq!(write(1, true, Indicator::By(7)), 0xe000_0001_0000_0007);
}

#[test]
fn valid_writes_round_trip_and_others_fail() {
    for queue in [0, 1, u16::MAX] {
        for armed in [false, true] {
            for value in [0, 1, u32::MAX] {
                for read in [Indicator::Keep, Indicator::At(value), Indicator::By(value)] {
                    let doorbell = Doorbell { queue, armed, read };
                    assert_eq!(Doorbell::unpack(doorbell.pack()), Ok(doorbell));
                }
            }
        }
    }
    let mut known = 0;
    for bit in 0..64 {
        match Doorbell::unpack(1 << bit) {
            Ok(doorbell) => {
                known += 1;
                assert_eq!(doorbell.pack(), 1 << bit);
            }
            Err(malformed) => assert_eq!(malformed, Malformed(1 << bit)),
        }
    }
    assert_eq!(known, 18, "queue number, armed, valid");
}
