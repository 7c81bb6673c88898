//! The untagged header both ways, with reserved bits, wrong versions and every short length.

use proptest::prelude::*;

use super::*;
use crate::testing::{hex, ignores_bits, refuses_every_prefix};

const BYTES: &str = "4144 00112233 00000000 00000005 00000014";

fn send_inv() -> Untagged {
    Untagged {
        last: true,
        opcode: Opcode::SendInv,
        ulp: 0x0011_2233,
        qn: Qn::SEND,
        msn: Msn::new(5),
        mo: Mo::new(20),
    }
}

#[test]
fn parses_and_emits_exact_bytes() {
    assert_eq!(Untagged::parse(&hex(BYTES)), Ok(send_inv()));
    assert_eq!(send_inv().emit().as_slice(), hex(BYTES));
    let more = Untagged {
        last: false,
        ..send_inv()
    };
    assert_eq!(more.emit()[0], 0x01);
}

#[test]
fn reserved_bits_are_ignored() {
    ignores_bits(&hex(BYTES), &[(0, 0x3c), (1, 0x30)], Untagged::parse);
}

#[test]
fn short_input_is_refused() {
    refuses_every_prefix(&hex(BYTES), Untagged::parse);
}

#[test]
fn versions_and_class_are_checked_in_order() {
    let with = |ddp, rdmap| {
        let mut bytes = hex(BYTES);
        (bytes[0], bytes[1]) = (ddp, rdmap);
        Untagged::parse(&bytes)
    };
    for got in [0, 2, 3] {
        let tagged = false;
        assert_eq!(
            with(0x40 | got, 0),
            Err(Malformed::DdpVersion { tagged, got })
        );
        assert_eq!(with(0x41, got << 6), Err(Malformed::RdmapVersion { got }));
    }
    let expected_tagged = false;
    assert_eq!(
        with(0xc1, 0x40),
        Err(Malformed::DdpClass { expected_tagged })
    );
}

#[test]
fn prints_one_line() {
    assert_eq!(
        send_inv().to_string(),
        "SendInv qn=0 msn=5 mo=20 ulp=0x00112233 last"
    );
    let plain = Untagged {
        last: false,
        ulp: 0,
        opcode: Opcode::Send,
        ..send_inv()
    };
    assert_eq!(plain.to_string(), "Send qn=0 msn=5 mo=20");
}

proptest! {
    #[test]
    fn round_trip(
        last: bool,
        code in 0..Opcode::ALL.len(),
        ulp: u32,
        words: [u32; 3],
    ) {
        let [qn, msn, mo] = words;
        let header = Untagged {
            last,
            opcode: Opcode::ALL[code],
            ulp,
            qn: Qn::new(qn),
            msn: Msn::new(msn),
            mo: Mo::new(mo),
        };
        prop_assert_eq!(Untagged::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
        let _ = Untagged::parse(&bytes);
    }
}
