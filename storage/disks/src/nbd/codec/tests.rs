//! Requests and replies, byte by byte.

use super::*;

#[test]
fn request_header_is_parsed_and_emitted() {
    let bytes = [
        0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0,
        0, 2, 0,
    ];
    let head = Head {
        command: Some(Command::Write { fua: true }),
        payload: true,
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1000,
        len: 512,
    };
    assert_eq!(Head::parse(&bytes), Ok(head));
    assert_eq!(Head::emit(1, 1, head.cookie, 0x1000, 512), bytes);
}

#[test]
fn command_flags_follow_the_table() {
    let mut table = String::new();
    for kind in 0..9 {
        for flags in [0, 1, 2, 4, 8, 16, 1 << 15] {
            if let Some(command) = command(kind, flags) {
                table += &format!("{kind} {flags} {command:?}\n");
            }
        }
    }
    let expected = "0 0 Read\n0 1 Read\n0 4 Read\n\
        1 0 Write { fua: false }\n1 1 Write { fua: true }\n\
        2 0 Disconnect\n2 1 Disconnect\n3 0 Flush\n3 1 Flush\n\
        4 0 Trim { fua: false }\n4 1 Trim { fua: true }\n\
        6 0 Zero { fua: false, no_hole: false }\n6 1 Zero { fua: true, no_hole: false }\n\
        6 2 Zero { fua: false, no_hole: true }\n";
    assert_eq!(table, expected);
}

#[test]
fn unknown_write_keeps_its_payload_length() {
    let head = Head::parse(&Head::emit(1, 0x80, 9, 0, 512)).unwrap();
    assert_eq!((head.command, head.payload, head.len), (None, true, 512));
}

#[test]
fn wrong_request_magic_is_refused() {
    let mut bytes = Head::emit(0, 0, 1, 0, 512);
    bytes[3] = 0x14;
    let said = Head::parse(&bytes).unwrap_err().to_string();
    assert_eq!(
        said,
        "a request begins with 0x25609514 instead of 0x25609513"
    );
}

#[test]
fn reply_headers_have_the_specified_bytes() {
    let simple = ReplyHead::simple(7, Some(Errno::NoSpace));
    let expected = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 7];
    assert_eq!(simple.as_slice(), expected);
    assert_eq!(ReplyHead::simple(7, None).as_slice()[4..8], [0; 4]);

    let data = ReplyHead::data(7, 0x200, 0x1000);
    let expected = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0x10, 8, 0, 0, 0, 0, 0,
        0, 2, 0,
    ];
    assert_eq!(data.as_slice(), expected);

    let failed = ReplyHead::failed(7, Errno::Io);
    let expected = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 6, 0, 0, 0, 5, 0, 0,
    ];
    assert_eq!(failed.as_slice(), expected);
}
