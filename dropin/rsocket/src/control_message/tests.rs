//! The round trip of every word, and malformed ones.

use verbena::{Access, Device};

use super::*;

#[test]
fn every_control_message_survives_encoding() {
    let device = Device::open().unwrap();
    let memory = device.memory(64, Access::ALL).unwrap().remote();
    for word in [
        ControlMessage::Credit {
            read: 1 << 40,
            messages: 3,
        },
        ControlMessage::End,
        ControlMessage::Map { offset: 9, memory },
        ControlMessage::Unmap { offset: u64::MAX },
    ] {
        let (bytes, len) = word.to_bytes();
        assert_eq!(ControlMessage::from_bytes(&bytes[..len]), Some(word));
        for wrong in (0..=MAX_LEN).filter(|wrong| *wrong != len) {
            assert_eq!(
                ControlMessage::from_bytes(&bytes[..wrong]),
                None,
                "{word:?} of {wrong}"
            );
        }
        for at in 1..8 {
            let mut bytes = bytes;
            bytes[at] = 1;
            assert_eq!(
                ControlMessage::from_bytes(&bytes[..len]),
                None,
                "reserved byte {at}"
            );
        }
    }
    for kind in (0..=u8::MAX).filter(|kind| !(1..=4).contains(kind)) {
        let mut bytes = [0; MAX_LEN];
        bytes[0] = kind;
        let taken = (0..=MAX_LEN).find_map(|len| ControlMessage::from_bytes(&bytes[..len]));
        assert_eq!(taken, None, "kind {kind}");
    }
}
