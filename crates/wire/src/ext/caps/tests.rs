//! Capability lists: order, unknown and repeated tags, wrong lengths, values out of range, and a
//! cut at every byte.

use proptest::prelude::*;

use super::*;
use crate::testing::hex;

const BYTES: &str = "0102 0001 | 0202 ffff | 0304 00000007 | 0401 01 | 0501 00 | 0601 0c |
    0702 0080 | 0808 0123456789abcdef | 0910 000102030405060708090a0b0c0d0e0f |
    0a08 1122334455667788";

fn caps() -> Caps {
    Caps {
        version: 1,
        max_ulpdu: 65535,
        features: Features::READ_V2 | Features::SEND_IMM | Features::RINGS,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        min_rnr_timer: RnrTimer::new(12).expect("five bits"),
        ird: 128,
        nonce: 0x0123_4567_89ab_cdef,
        same_host: Some(core::array::from_fn(|i| i as u8)),
        path: Some(0x1122_3344_5566_7788),
    }
}

/// The values of the list, one by one.
fn values() -> Vec<Vec<u8>> {
    BYTES.split('|').map(hex).collect()
}

fn emitted(caps: &Caps) -> Vec<u8> {
    let mut out = Vec::new();
    caps.emit(&mut out);
    out
}

#[test]
fn parses_and_emits_exact_bytes() {
    assert_eq!(Caps::parse(&hex(BYTES)), Ok(caps()));
    assert_eq!(emitted(&caps()), hex(BYTES));
    assert_eq!(emitted(&caps()).len(), Caps::MAX_LEN);
    let remote = Caps {
        same_host: None,
        path: None,
        personality: Personality::Iwarp,
        qp_type: QpType::Uc,
        features: Features::NONE,
        ..caps()
    };
    assert_eq!(Caps::parse(&emitted(&remote)), Ok(remote));
}

#[test]
fn value_order_does_not_matter() {
    let backwards: Vec<u8> = values().into_iter().rev().flatten().collect();
    assert_eq!(Caps::parse(&backwards), Ok(caps()));
}

#[test]
fn unknown_tags_are_skipped_anywhere() {
    for at in 0..=10 {
        for unknown in [
            hex("0000"),
            hex("0b00"),
            hex("0b02beef"),
            hex("ff01ff ff00"),
        ] {
            let mut list = values();
            list.insert(at, unknown);
            assert_eq!(Caps::parse(&list.concat()), Ok(caps()));
        }
    }
}

#[test]
fn duplicate_value_is_refused() {
    for (i, value) in values().into_iter().enumerate() {
        let tag = i as u8 + 1;
        let mut list = hex(BYTES);
        list.extend(value);
        assert_eq!(Caps::parse(&list), Err(Malformed::CapsDuplicate { tag }));
    }
}

#[test]
fn missing_mandatory_value_is_refused() {
    for i in 0..10 {
        let tag = i as u8 + 1;
        let mut list = values();
        list.remove(i);
        let got = Caps::parse(&list.concat());
        if tag == TAG_SAME_HOST {
            let want = Caps {
                same_host: None,
                ..caps()
            };
            assert_eq!(got, Ok(want));
        } else if tag == TAG_PATH {
            let want = Caps {
                path: None,
                ..caps()
            };
            assert_eq!(got, Ok(want));
        } else {
            assert_eq!(got, Err(Malformed::CapsMissing { tag }));
        }
    }
    assert_eq!(Caps::parse(&[]), Err(Malformed::CapsMissing { tag: 1 }));
}

#[test]
fn wrong_lengths_are_refused() {
    for i in 0..9 {
        let tag = i as u8 + 1;
        let need = values()[i].len() - 2;
        for got in (0..20).filter(|got| *got != need) {
            let mut list = values();
            list[i] = vec![tag, got as u8];
            list[i].resize(2 + got, 1);
            let want = Err(Malformed::CapsLength { tag, need, got });
            assert_eq!(Caps::parse(&list.concat()), want);
        }
    }
}

#[test]
fn truncated_list_needs_all_mandatory_values() {
    let bytes = hex(BYTES);
    // Without the path, and without the token before it.
    let optional = [bytes.len() - 10, bytes.len() - 10 - 18];
    let mut ends = vec![0];
    for value in values() {
        ends.push(ends.last().expect("a start") + value.len());
    }
    for cut in 0..bytes.len() {
        let got = Caps::parse(&bytes[..cut]);
        if optional.contains(&cut) {
            assert!(got.is_ok());
        } else if ends.contains(&cut) {
            assert!(matches!(got, Err(Malformed::CapsMissing { .. })), "{cut}");
        } else {
            let tag = ends.iter().filter(|end| **end < cut).count() as u8;
            assert_eq!(got, Err(Malformed::CapsTruncated { tag }), "{cut}");
        }
    }
}

#[test]
fn impossible_values_are_refused() {
    let cases = [
        (1, "01020000"),
        (2, "02020000"),
        (2, "0202007f"),
        (4, "040102"),
        (4, "0401ff"),
        (5, "050104"),
        (6, "060120"),
    ];
    for (tag, value) in cases {
        let mut list = values();
        list[usize::from(tag) - 1] = hex(value);
        assert_eq!(
            Caps::parse(&list.concat()),
            Err(Malformed::CapsValue { tag })
        );
    }
    let mut list = values();
    list[1] = hex("02020080");
    assert_eq!(
        Caps::parse(&list.concat()).map(|caps| caps.max_ulpdu),
        Ok(128)
    );
}

#[test]
fn queue_pair_types_have_their_bytes_and_peers() {
    let types = [
        (QpType::Rc, "050100", "rc", QpType::Rc),
        (QpType::Uc, "050101", "uc", QpType::Uc),
        (QpType::XrcSend, "050102", "xrc_send", QpType::XrcRecv),
        (QpType::XrcRecv, "050103", "xrc_recv", QpType::XrcSend),
    ];
    for (qp_type, value, name, peer) in types {
        let mut list = values();
        list[4] = hex(value);
        let parsed = Caps::parse(&list.concat()).expect("a list");
        assert_eq!(parsed, Caps { qp_type, ..caps() });
        let mut out = Vec::new();
        parsed.emit(&mut out);
        assert_eq!(out, list.concat());
        assert_eq!((qp_type.to_string().as_str(), qp_type.peer()), (name, peer));
        assert_eq!(qp_type.is_reliable(), qp_type != QpType::Uc);
        assert_eq!(qp_type.is_xrc(), qp_type != peer);
    }
}

#[test]
fn overlong_list_is_refused() {
    let mut list = hex(BYTES);
    list.resize(MAX_CONTROL_PAYLOAD, 0);
    // The zeros read as unknown, empty values; one is cut when their number is odd.
    let odd = (MAX_CONTROL_PAYLOAD - Caps::MAX_LEN) % 2 == 1;
    assert_eq!(Caps::parse(&list).is_err(), odd);
    list.push(0);
    assert_eq!(
        Caps::parse(&list),
        Err(Malformed::TooLong {
            what: "capability list",
            limit: 256,
            got: 257
        })
    );
}

#[test]
fn unnamed_feature_bits_are_kept() {
    let features = Features::from_bits(0x8000_0001);
    assert!(features.contains(Features::READ_V2) && !features.contains(Features::RINGS));
    let odd = Caps { features, ..caps() };
    assert_eq!(
        Caps::parse(&emitted(&odd)).map(|caps| caps.features.bits()),
        Ok(0x8000_0001)
    );
    assert_eq!((features & Features::SEND_IMM).bits(), 0);
    assert_eq!(Features::NONE.to_string(), "none");
}

#[test]
fn prints_one_line_without_the_secret() {
    assert_eq!(
        caps().to_string(),
        "caps v1 max_ulpdu=65535 features=read_v2+send_imm+rings roce rc rnr=640µs ird=128 \
         nonce=0x0123456789abcdef same_host"
    );
}

proptest! {
    #[test]
    fn round_trip(
        version in 1u16..,
        max_ulpdu in 128u16..,
        features: u32,
        bits: [bool; 2],
        timer in 0u8..32,
        ird: u16,
        nonce: u64,
        same_host: Option<[u8; 16]>,
        path: Option<u64>,
    ) {
        let [roce, uc] = bits;
        let caps = Caps {
            version,
            max_ulpdu,
            features: Features::from_bits(features),
            personality: if roce { Personality::Roce } else { Personality::Iwarp },
            qp_type: if uc { QpType::Uc } else { QpType::Rc },
            min_rnr_timer: RnrTimer::new(timer).expect("five bits"),
            ird,
            nonce,
            same_host,
            path,
        };
        prop_assert_eq!(Caps::parse(&emitted(&caps)), Ok(caps));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Caps::parse(&bytes);
    }
}
