//! SCSI: golden bytes of CDBs and data, codes with their texts, truncation at every byte, random bytes.

use proptest::prelude::*;
use verbena_wire::Malformed;
use verbena_wire::testing::{hex, refuses_every_prefix};

use super::*;
use crate::iscsi::Lun;

#[test]
fn command_blocks_have_the_expected_bytes() {
    let cases: [(Cdb, usize, &str, &str); 17] = [
        (Cdb::test_unit_ready(), 6, "000000000000", "TEST UNIT READY"),
        (Cdb::inquiry(None, 96), 6, "120000006000", "INQUIRY"),
        (
            Cdb::inquiry(Some(0x83), 0x1234),
            6,
            "120183123400",
            "INQUIRY",
        ),
        (
            Cdb::mode_sense6(0x3f, 64),
            6,
            "1a083f004000",
            "MODE SENSE(6)",
        ),
        (
            Cdb::read_capacity10(),
            10,
            "25000000000000000000",
            "READ CAPACITY(10)",
        ),
        (
            Cdb::read_capacity16(32),
            16,
            "9e10000000000000000000000020 0000",
            "SERVICE ACTION IN(16)",
        ),
        (
            Cdb::report_luns(0x0102_0304),
            12,
            "a00000000000010203040000",
            "REPORT LUNS",
        ),
        (
            Cdb::read10(0x0102_0304, 0x0506),
            10,
            "28000102030400050600",
            "READ(10)",
        ),
        (
            Cdb::read16(0x0102_0304_0506_0708, 0x090a_0b0c),
            16,
            "880001020304050607 08090a0b0c0000",
            "READ(16)",
        ),
        (
            Cdb::write10(8, 32, false),
            10,
            "2a000000000800002000",
            "WRITE(10)",
        ),
        (
            Cdb::write10(8, 32, true),
            10,
            "2a080000000800002000",
            "WRITE(10)",
        ),
        (
            Cdb::write16(8, 32, true),
            16,
            "8a080000000000000008000000200000",
            "WRITE(16)",
        ),
        (
            Cdb::synchronize_cache10(1, 2),
            10,
            "35000000000100000200",
            "SYNCHRONIZE CACHE(10)",
        ),
        (Cdb::unmap(24), 10, "42000000000000001800", "UNMAP"),
        (
            Cdb::write_same16(1, 2, false),
            16,
            "93000000000000000001000000020000",
            "WRITE SAME(16)",
        ),
        (
            Cdb::write_same16(1, 2, true),
            16,
            "93080000000000000001000000020000",
            "WRITE SAME(16)",
        ),
        (
            Cdb::from_bytes([0xff; 16]),
            16,
            "ffffffffffffffffffffffffffffffff",
            "operation 0xff",
        ),
    ];
    for (cdb, len, text, name) in cases {
        let bytes = hex(text);
        assert_eq!(cdb.bytes()[..len], bytes, "{cdb}");
        assert_eq!(cdb.bytes()[len..], vec![0; 16 - len], "{cdb}");
        let line = format!("{name} {}", text.replace(' ', ""));
        assert_eq!(cdb.to_string(), line);
        if cdb.opcode() != 0xff {
            assert_eq!(cdb.used_len(), Some(len));
            assert!(is_valid_for(DeviceType::Disk, cdb.opcode()), "{cdb}");
        }
    }
    assert_eq!(Cdb::from_bytes([0x7f; 16]).used_len(), None);
}

#[test]
fn long_blocks_are_used_only_when_needed() {
    let (lba, blocks) = (u64::from(u32::MAX), u32::from(u16::MAX));
    assert_eq!(Cdb::read(lba, blocks), Cdb::read10(u32::MAX, u16::MAX));
    assert_eq!(Cdb::read(lba + 1, 1), Cdb::read16(lba + 1, 1));
    assert_eq!(Cdb::read(0, blocks + 1), Cdb::read16(0, blocks + 1));
    assert_eq!(Cdb::write(7, 1, true), Cdb::write10(7, 1, true));
    assert_eq!(Cdb::write(lba + 1, 1, true), Cdb::write16(lba + 1, 1, true));
    assert_eq!(
        Cdb::write(0, blocks + 1, false),
        Cdb::write16(0, blocks + 1, false)
    );
}

/// M12: "opcode valid for the device type".
#[test]
fn opcodes_are_valid_per_device_type() {
    let [inquiry, read10, rewind, read_cd, move_medium, zone] =
        [0x12, 0x28, 0x01, 0xbe, 0xa5, 0x95];
    let rows = [
        (DeviceType::Disk, vec![inquiry, read10]),
        (DeviceType::ZonedDisk, vec![inquiry, read10, zone]),
        (DeviceType::Tape, vec![inquiry, rewind]),
        (DeviceType::Optical, vec![inquiry, read10, read_cd]),
        (DeviceType::Changer, vec![inquiry, move_medium]),
        (DeviceType::SimplifiedDisk, vec![inquiry, read10]),
        (DeviceType::Enclosure, vec![inquiry]),
        (DeviceType::Unknown(0x0a), vec![inquiry]),
    ];
    for (device, valid) in rows {
        for opcode in [inquiry, read10, rewind, read_cd, move_medium, zone] {
            let expected = valid.contains(&opcode);
            assert_eq!(
                is_valid_for(device, opcode),
                expected,
                "{device} {opcode:#x}"
            );
        }
        assert!((0xc0..=0xff).all(|vendor| !is_valid_for(device, vendor)));
    }
}

#[test]
fn status_codes_round_trip_and_print() {
    let words = [
        (0x00, "good"),
        (0x02, "check condition"),
        (0x08, "busy"),
        (0x18, "reservation conflict"),
        (0x28, "task set full"),
        (0x30, "aca active"),
        (0x40, "task aborted"),
        (0x55, "unknown(0x55)"),
    ];
    for (code, word) in words {
        assert_eq!(Status::from_code(code).to_string(), word);
        assert_eq!(Status::from_code(code).code(), code);
    }
}

fn sense(key: SenseKey, asc: u8, ascq: u8) -> Sense {
    Sense {
        deferred: false,
        key,
        asc,
        ascq,
        information: None,
    }
}

#[test]
fn fixed_format_sense_is_parsed() {
    let bytes = hex("f000 05 00008000 0a 00000000 2100 00000000");
    let got = Sense::parse(&bytes).unwrap();
    let expected = Sense {
        information: Some(0x8000),
        ..sense(SenseKey::IllegalRequest, 0x21, 0)
    };
    assert_eq!(got, expected);
    assert_eq!(got.emit()[..], bytes);
    assert_eq!(
        got.to_string(),
        "illegal request: logical block address out of range (information 32768)"
    );
    let deferred = Sense::parse(&hex("7100 03 00000000 0a 00000000 1177 00000000")).unwrap();
    assert!(deferred.deferred);
    assert_eq!(
        deferred.to_string(),
        "medium error: code 11/77, about an earlier command"
    );
    // A field is zero if the input is too short for it, or the additional length does not include it.
    let none = sense(SenseKey::NotReady, 0, 0);
    assert_eq!(Sense::parse(&hex("7000 02")), Ok(none));
    assert_eq!(
        Sense::parse(&hex("7000 02 00000000 04 00000000 3a00")),
        Ok(none)
    );
    refuses_every_prefix(&hex("7000 02"), Sense::parse);
}

#[test]
fn descriptor_format_sense_is_parsed() {
    // Another descriptor before the information.
    let text = "72 05 21 00 000000 10 0202 0000 000a 8000 0000000100008000";
    let bytes = hex(text);
    let expected = Sense {
        information: Some(0x1_0000_8000),
        ..sense(SenseKey::IllegalRequest, 0x21, 0)
    };
    assert_eq!(Sense::parse(&bytes), Ok(expected));
    // Not valid, cut off by the input, or by the additional length.
    let none = Sense {
        information: None,
        ..expected
    };
    assert_eq!(
        Sense::parse(&hex(&text.replace("8000 0000", "0000 0000"))),
        Ok(none)
    );
    assert_eq!(Sense::parse(&bytes[..bytes.len() - 1]), Ok(none));
    assert_eq!(
        Sense::parse(&hex(&text.replace("000000 10", "000000 0f"))),
        Ok(none)
    );
    assert_eq!(Sense::parse(&bytes[..4]), Ok(none));
    refuses_every_prefix(&bytes[..4], Sense::parse);
    let deferred = hex("73 06 29 00");
    assert!(Sense::parse(&deferred).unwrap().deferred);
    // The fixed format has no room for that block number.
    assert_eq!(Sense::parse(&expected.emit()), Ok(none));
}

#[test]
fn unknown_sense_formats_are_refused() {
    for got in (0..0x7f).filter(|code| !(0x70..=0x73).contains(code)) {
        let bytes = [got, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Sense::parse(&bytes), Err(Malformed::SenseFormat { got }));
    }
}

#[test]
fn standard_inquiry_parses_and_emits_exactly() {
    let text = "00 80 05 02 1f 000000 4945542020202020 5649525455414c2d4449534b20202020 30303031";
    let bytes = hex(text);
    let inquiry = Inquiry::parse(&bytes).unwrap();
    assert_eq!(inquiry.to_string(), "disk IET VIRTUAL-DISK 0001");
    assert!(inquiry.removable && inquiry.is_connected());
    assert_eq!(inquiry.emit()[..], bytes);
    refuses_every_prefix(&bytes, Inquiry::parse);
    let mut absent = bytes;
    absent[0] = 0x7f;
    absent[8] = 0x1b;
    let absent = Inquiry::parse(&absent).unwrap();
    assert_eq!((absent.qualifier, absent.device), (3, DeviceType::None));
    // Names need not be text.
    assert_eq!(
        absent.to_string(),
        "no device \\x1bET VIRTUAL-DISK 0001 not-connected"
    );
}

#[test]
fn capacity_parses_in_both_lengths() {
    let long = Capacity {
        last_lba: 0x0102_0304_0506_0708,
        block_len: 4096,
        physical_exponent: 3,
        protected: true,
        thin: true,
        reads_zeros: true,
    };
    let bytes = hex(&format!(
        "0102030405060708 00001000 01 03 c000 {}",
        "00".repeat(16)
    ));
    assert_eq!(Capacity::parse16(&bytes), Ok(long));
    assert_eq!(long.emit16()[..], bytes);
    refuses_every_prefix(&bytes, Capacity::parse16);
    assert_eq!(long.emit10(), [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0]);
    let short = Capacity::parse10(&long.emit10()).unwrap();
    assert_eq!(short.last_lba, u64::from(u32::MAX));
    refuses_every_prefix(&long.emit10(), Capacity::parse10);
    let small = Capacity::parse10(&hex("00007fff 00000200")).unwrap();
    assert_eq!(small.bytes(), Some(16 << 20));
    assert_eq!(small.to_string(), "capacity last=32767 block=512");
    // Sizes beyond 64 bits, and a block length of 0.
    let vast = Capacity {
        last_lba: u64::MAX,
        ..long
    };
    assert_eq!(
        (vast.blocks(), vast.bytes(), long.bytes()),
        (None, None, None)
    );
    let zero = Err(Malformed::BlockLength { got: 0 });
    assert_eq!(Capacity::parse10(&[0; 8]), zero);
    assert_eq!(Capacity::parse16(&[0; 32]), zero);
}

#[test]
fn unit_lists_are_parsed_and_emitted() {
    let units: Vec<Lun> = [0, 1, 300].into_iter().filter_map(Lun::new).collect();
    let mut bytes = Vec::new();
    Luns::emit(&units, &mut bytes);
    let text = "00000018 00000000 0000000000000000 0001000000000000 412c000000000000";
    assert_eq!(bytes, hex(text));
    let luns = Luns::parse(&bytes).unwrap();
    assert_eq!(luns.iter().collect::<Vec<_>>(), units);
    assert_eq!(luns.to_string(), "units 0 1 300");
    assert_eq!(luns.required_len(), bytes.len());
    // A buffer too short for all numbers.
    let cut = Luns::parse(&bytes[..31]).unwrap();
    assert_eq!((cut.iter().count(), cut.is_complete()), (2, false));
    assert_eq!(cut.to_string(), "units 0 1 ...");
    // Bytes behind the list are not read.
    bytes[3] = 8;
    assert_eq!(Luns::parse(&bytes).unwrap().iter().count(), 1);
    bytes[3] = 9;
    assert_eq!(Luns::parse(&bytes), Err(Malformed::LunList { got: 9 }));
    bytes[..4].copy_from_slice(&[0xff, 0xff, 0xff, 0xf8]);
    let lie = Luns::parse(&bytes).unwrap();
    assert_eq!((lie.iter().count(), lie.is_complete()), (3, false));
    refuses_every_prefix(&bytes[..8], |b| Luns::parse(b).map(drop));
}

#[test]
fn vital_product_data_pages_are_parsed() {
    let pages = hex("00 00 0003 00 80 b0 83");
    let pages = SupportedPages::parse(&pages).unwrap();
    assert!(pages.has(0x80) && pages.has(0xb0) && !pages.has(0x83));
    assert_eq!(pages.to_string(), "pages 00 80 b0");

    let serial = hex("00 80 0008 2020626561663131 99");
    assert_eq!(UnitSerial::parse(&serial).unwrap().bytes(), b"beaf11");
    let cut = UnitSerial::parse(&serial[..8]).unwrap();
    assert_eq!(cut.to_string(), "serial be");
    refuses_every_prefix(&serial[..4], |b| UnitSerial::parse(b).map(drop));
    let wrong = Malformed::ScsiPage {
        expected: 0x83,
        got: 0x80,
    };
    assert_eq!(DeviceId::parse(&serial), Err(wrong));

    let names = hex("00 83 0018 01030008 6001020304050607 02180006 69716e2e6120 0100");
    // The last two bytes are too few for a designator.
    let short = Malformed::Truncated {
        what: "designator",
        need: 4,
        got: 2,
    };
    assert_eq!(DeviceId::parse(&names), Err(short));
    let mut names = names;
    names[3] = 0x16;
    let id = DeviceId::parse(&names).unwrap();
    assert_eq!(
        id.to_string(),
        "names [kind=3 of=0 6001020304050607] [kind=8 of=1 iqn.a]"
    );
    assert_eq!(id.designators().count(), 2);
    names[7] = 0xff;
    assert!(matches!(
        DeviceId::parse(&names),
        Err(Malformed::Truncated {
            need: 259,
            got: 22,
            ..
        })
    ));
}

#[test]
fn block_limits_page_is_parsed() {
    let text = "00 b0 003c 01 02 0304 05060708 090a0b0c 0d0e0f10 11121314 15161718 191a1b1c 9d1e1f20 \
                2122232425262728";
    let bytes = hex(&format!("{text} {}", "00".repeat(20)));
    let limits = BlockLimits {
        max_compare_and_write: 2,
        optimal_granularity: 0x0304,
        max_transfer: 0x0506_0708,
        optimal_transfer: 0x090a_0b0c,
        max_unmap_blocks: 0x1112_1314,
        max_unmap_ranges: 0x1516_1718,
        unmap_granularity: 0x191a_1b1c,
        unmap_alignment: Some(0x1d1e_1f20),
        max_write_same: 0x2122_2324_2526_2728,
    };
    assert_eq!(BlockLimits::parse(&bytes), Ok(limits));
    // The short page of older disks, and the shortest page.
    let mut short = bytes.clone();
    short[3] = 0x0c;
    let short_limits = BlockLimits {
        max_compare_and_write: 2,
        optimal_granularity: 0x0304,
        max_transfer: 0x0506_0708,
        optimal_transfer: 0x090a_0b0c,
        ..BlockLimits::default()
    };
    assert_eq!(BlockLimits::parse(&short), Ok(short_limits));
    assert_eq!(BlockLimits::parse(&bytes[..16]), Ok(short_limits));
    assert_eq!(BlockLimits::parse(&bytes[..4]), Ok(BlockLimits::default()));
    refuses_every_prefix(&bytes[..4], BlockLimits::parse);
}

#[test]
fn mode_header_parses_and_emits_exactly() {
    let bytes = [0x17, 0, 0x90, 8];
    let header = ModeHeader::parse(&bytes).unwrap();
    assert!(header.write_protected && header.fua);
    assert_eq!(header.emit(), bytes);
    assert_eq!(header.to_string(), "mode medium=0 write-protected fua");
    assert!(!ModeHeader::parse(&[3, 0, 0, 0]).unwrap().write_protected);
    refuses_every_prefix(&bytes, ModeHeader::parse);
}

#[test]
fn unmap_lists_are_emitted_and_limited() {
    let range = |lba, blocks| UnmapRange { lba, blocks };
    let ranges = [range(0x0102_0304_0506_0708, 0x090a_0b0c), range(7, 1)];
    let list = UnmapList::new(&ranges).unwrap();
    let mut bytes = Vec::new();
    list.emit(&mut bytes);
    let text =
        "0026 0020 00000000 0102030405060708 090a0b0c 00000000 0000000000000007 00000001 00000000";
    assert_eq!(bytes, hex(text));
    assert_eq!(usize::from(list.len()), bytes.len());
    assert!(!list.is_empty());
    assert_eq!(list.to_string(), "unmap 72623859790382856+151653132 7+1");
    let many = vec![range(0, 1); UnmapList::MAX + 1];
    let most = UnmapList::new(&many[1..]).unwrap();
    assert_eq!(usize::from(most.len()), 8 + 16 * UnmapList::MAX);
    let error = UnmapList::new(&many).unwrap_err();
    assert_eq!(
        error.to_string(),
        "UNMAP list is limited to 65528 bytes, got 65544"
    );
}

proptest! {
    #[test]
    fn sense_round_trip(deferred: bool, key in 0_u8..16, asc: u8, ascq: u8, information: Option<u32>) {
        let sense = Sense {
            deferred,
            key: SenseKey::from_code(key),
            asc,
            ascq,
            information: information.map(u64::from),
        };
        prop_assert_eq!(Sense::parse(&sense.emit()), Ok(sense));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), page in 0_usize..4) {
        let mut bytes = bytes;
        if let Some(code) = bytes.get_mut(1) {
            *code = [0x00, 0x80, 0x83, 0xb0][page];
        }
        let _ = SupportedPages::parse(&bytes).map(|page| page.to_string());
        let _ = UnitSerial::parse(&bytes).map(|page| page.to_string());
        let _ = DeviceId::parse(&bytes).map(|page| page.to_string());
        let _ = BlockLimits::parse(&bytes).map(|page| page.to_string());
        let _ = Inquiry::parse(&bytes).map(|data| data.to_string());
        let _ = Luns::parse(&bytes).map(|data| data.to_string());
        let _ = ModeHeader::parse(&bytes).map(|data| data.to_string());
        let _ = Capacity::parse10(&bytes).map(|data| data.to_string());
        let _ = Capacity::parse16(&bytes).map(|data| data.bytes());
        if let Some(form) = bytes.first_mut() {
            *form = 0x70 | *form & 0x83;
        }
        let _ = Sense::parse(&bytes).map(|sense| sense.to_string());
    }
}
