//! Every control byte, and a table of the properties of every opcode.

use super::*;

#[test]
fn every_byte_of_version_one_has_an_opcode() {
    for byte in 0..=u8::MAX {
        match Opcode::parse(byte) {
            Ok(opcode) => {
                assert_eq!(byte >> 6, 1);
                assert_eq!(opcode.code(), byte & 0x0f);
                // RFC 5040 §4.1: reserved bits are ignored, except where the extensions define them.
                let kept = if opcode.code() == 0xe { 0xff } else { 0xcf };
                assert_eq!(opcode.emit(), byte & kept);
            }
            Err(error) => {
                let got = byte >> 6;
                assert_ne!(got, 1);
                assert_eq!(error, Malformed::RdmapVersion { got });
            }
        }
    }
}

#[test]
fn all_lists_each_opcode_once() {
    for (i, opcode) in Opcode::ALL.iter().enumerate() {
        assert_eq!(Opcode::parse(opcode.emit()), Ok(*opcode));
        assert!(!Opcode::ALL[..i].contains(opcode));
    }
    let mut names: Vec<&str> = Opcode::ALL.iter().map(|opcode| opcode.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 19);
}

/// Name, control byte, queue, then: request, send, solicited, invalidates, RFC 7306, extension.
const FACTS: &str = "\
Write 40 - r-----
ReadRequest 41 1 r-----
ReadResponse 42 - ------
Send 43 0 rs----
SendInv 44 0 rs-i--
SendSe 45 0 rse---
SendSeInv 46 0 rsei--
Terminate 47 2 ------
Immediate 48 0 r---7-
ImmediateSe 49 0 r-e-7-
AtomicRequest 4a 1 r---7-
AtomicResponse 4b 3 ----7-
ReadV2Request 4c 1 r----x
ReadV2Response 4d 4 -----x
SendImm 4e 0 rs---x
SendImmSe 5e 0 rse--x
SendImmInv 6e 0 rs-i-x
SendImmSeInv 7e 0 rsei-x
Control 4f 5 -----x
";

#[test]
fn opcode_properties_match_the_table() {
    let mut table = String::new();
    for opcode in Opcode::ALL {
        let queue = opcode.qn().map_or("-".into(), |qn| qn.to_string());
        assert_eq!(opcode.tagged(), opcode.qn().is_none());
        table += &format!("{opcode} {:02x} {queue} ", opcode.emit());
        for (set, letter) in [
            (opcode.is_request(), 'r'),
            (opcode.is_send(), 's'),
            (opcode.solicited(), 'e'),
            (opcode.invalidates(), 'i'),
            (opcode.is_rfc7306(), '7'),
            (opcode.is_extension(), 'x'),
        ] {
            table.push(if set { letter } else { '-' });
        }
        table.push('\n');
    }
    assert_eq!(table, FACTS);
}
