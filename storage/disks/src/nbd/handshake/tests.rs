//! Negotiations at every split, with valid and invalid clients.

use super::*;

fn facts() -> ExportInfo {
    ExportInfo {
        name: "disk".into(),
        bytes: 1 << 30,
        flags: 0x6d,
        sizes: [512, 4096, 4 << 20],
        structured_flags: 0x80,
    }
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut out = OPTION.to_be_bytes().to_vec();
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
    out
}

fn choice_of(name: &str, wants: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(wants.len() as u16).to_be_bytes());
    data.extend(wants.iter().flat_map(|want| want.to_be_bytes()));
    data
}

/// The end, the output, and the input that was not consumed.
type HandshakeResult = (Result<Option<Verdict>, Violation>, Vec<u8>, Vec<u8>);

/// Runs the input in pieces of one size.
fn run(input: &[u8], piece: usize) -> HandshakeResult {
    let (facts, mut out) = (facts(), Vec::new());
    let mut machine = Handshake::new();
    let (mut held, mut left) = (Vec::new(), input);
    loop {
        match machine.take(&held, &facts, &mut out) {
            Ok((0, None)) if left.is_empty() => return (Ok(None), out, held),
            Ok((0, None)) => {
                assert!(held.len() < LONGEST, "never waits for more than fits");
                let (now, later) = left.split_at(piece.min(left.len()));
                held.extend_from_slice(now);
                left = later;
            }
            Ok((taken, None)) => drop(held.drain(..taken)),
            Ok((taken, verdict)) => {
                held.drain(..taken);
                held.extend_from_slice(left);
                return (Ok(verdict), out, held);
            }
            Err(violation) => return (Err(violation), out, held),
        }
    }
}

/// Runs the input at every split; all have to agree.
fn run_all_splits(parts: &[&[u8]]) -> HandshakeResult {
    let input = parts.concat();
    let whole = run(&input, input.len());
    for piece in 1..input.len().min(60) {
        let again = run(&input, piece);
        assert_eq!((&again.0, &again.1), (&whole.0, &whole.1), "in {piece}");
    }
    whole
}

/// Replies as (option, type, data).
fn answers(mut out: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut list = Vec::new();
    while !out.is_empty() {
        assert_eq!(out[..8], OPTION_REPLY.to_be_bytes());
        let len = number(out, 16).unwrap() as usize;
        let kind = (number(out, 8).unwrap(), number(out, 12).unwrap());
        list.push((kind.0, kind.1, out[20..20 + len].to_vec()));
        out = &out[20 + len..];
    }
    list
}

const NO_ZEROES_CLIENT: &[u8] = &[0, 0, 0, 3];
const ZEROES_CLIENT: &[u8] = &[0, 0, 0, 0];
const GO: Verdict = Verdict::Go {
    structured_replies: false,
};

#[test]
fn export_name_accepts_the_name_or_none() {
    for name in [&b"disk"[..], b""] {
        let (verdict, out, left) = run_all_splits(&[NO_ZEROES_CLIENT, &option(1, name), b"rest"]);
        assert_eq!(verdict, Ok(Some(GO)));
        assert_eq!(out, [0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0x6d]);
        assert_eq!(left, b"rest");
    }
    let (_, out, _) = run_all_splits(&[ZEROES_CLIENT, &option(1, b"disk")]);
    assert_eq!(out.len(), 10 + 124);
    assert!(out[10..].iter().all(|byte| *byte == 0));
    let (verdict, out, _) = run_all_splits(&[NO_ZEROES_CLIENT, &option(1, b"other")]);
    assert_eq!((verdict, out.len()), (Err(Violation::Export), 0));
}

#[test]
fn opt_go_reports_size_flags_and_block_sizes() {
    let (verdict, out, _) =
        run_all_splits(&[NO_ZEROES_CLIENT, &option(7, &choice_of("disk", &[3, 1]))]);
    assert_eq!(verdict, Ok(Some(GO)));
    let expected = [
        (7, 3, vec![0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0x6d]),
        (7, 3, vec![0, 3, 0, 0, 2, 0, 0, 0, 0x10, 0, 0, 0x40, 0, 0]),
        (7, 3, b"\0\x01disk".to_vec()),
        (7, 1, vec![]),
    ];
    assert_eq!(answers(&out), expected);
}

#[test]
fn opt_info_leaves_the_negotiation_open() {
    let ask = option(6, &choice_of("", &[]));
    let (verdict, out, left) = run_all_splits(&[
        NO_ZEROES_CLIENT,
        &ask,
        &option(3, b""),
        &option(2, b""),
        b"x",
    ]);
    assert_eq!(verdict, Ok(Some(Verdict::Abort)));
    let kinds: Vec<(u32, u32)> = answers(&out).iter().map(|a| (a.0, a.1)).collect();
    assert_eq!(kinds, [(6, 3), (6, 3), (6, 1), (3, 2), (3, 1), (2, 1)]);
    assert_eq!(answers(&out)[3].2, b"\0\0\0\x04disk");
    assert_eq!(left, b"x");
}

#[test]
fn structured_replies_must_be_negotiated_first() {
    let (verdict, out, _) = run_all_splits(&[
        NO_ZEROES_CLIENT,
        &option(8, b""),
        &option(7, &choice_of("", &[])),
    ]);
    assert_eq!(
        verdict,
        Ok(Some(Verdict::Go {
            structured_replies: true
        }))
    );
    assert_eq!(answers(&out)[0], (8, 1, vec![]));
    assert_eq!(answers(&out)[1].2[10..], [0, 0xed]);
}

#[test]
fn invalid_options_are_refused_and_negotiation_continues() {
    let mut crooked = choice_of("disk", &[3]);
    crooked.pop();
    let cases = [
        (option(5, b""), reply_type::UNSUPPORTED),
        (option(10, b"base:allocation"), reply_type::UNSUPPORTED),
        (option(99, b"what"), reply_type::UNSUPPORTED),
        (option(3, b"data"), reply_type::INVALID),
        (option(8, b"data"), reply_type::INVALID),
        (option(7, b""), reply_type::INVALID),
        (option(7, &[0xff; 10]), reply_type::INVALID),
        (option(6, &crooked), reply_type::INVALID),
        (option(7, &choice_of("other", &[])), reply_type::UNKNOWN),
        (option(6, &choice_of("disk2", &[])), reply_type::UNKNOWN),
        (option(7, &vec![0; MAX_OPTION + 1]), reply_type::TOO_BIG),
        (
            option(99, &vec![0; MAX_SKIPPED as usize]),
            reply_type::TOO_BIG,
        ),
    ];
    for (bytes, kind) in cases {
        let (verdict, out, _) = run_all_splits(&[NO_ZEROES_CLIENT, &bytes, &option(2, b"")]);
        assert_eq!(verdict, Ok(Some(Verdict::Abort)));
        assert_eq!(answers(&out)[0].1, kind, "{:?}", &bytes[8..16]);
    }
}

#[test]
fn handshake_violations_end_the_connection() {
    let flags = 7_u32.to_be_bytes();
    assert_eq!(run_all_splits(&[&flags]).0, Err(Violation::Flags(7)));
    let magic = [NO_ZEROES_CLIENT, &[1; 8]].concat();
    assert_eq!(
        run_all_splits(&[&magic]).0,
        Err(Violation::Magic(0x0101_0101_0101_0101))
    );
    for (kind, len) in [
        (1, MAX_OPTION as u32 + 1),
        (7, MAX_SKIPPED + 1),
        (7, u32::MAX),
    ] {
        let mut head = option(kind, b"");
        head[12..].copy_from_slice(&len.to_be_bytes());
        let long = Violation::Long { option: kind, len };
        assert_eq!(run_all_splits(&[NO_ZEROES_CLIENT, &head]).0, Err(long));
    }
    let many = option(3, b"").repeat(MAX_OPTIONS as usize + 1);
    let (verdict, out, _) = run_all_splits(&[NO_ZEROES_CLIENT, &many]);
    assert_eq!(verdict, Err(Violation::Options));
    assert_eq!(answers(&out).len(), 2 * MAX_OPTIONS as usize);
}

proptest::proptest! {
    #[test]
    fn random_input_never_panics_or_hangs(
        input in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        kind in 0_u32..11, piece in 1_usize..50,
    ) {
        let _ = run(&input, piece);
        let _ = run(&[NO_ZEROES_CLIENT, &option(kind, &input), &input].concat(), piece);
    }
}
