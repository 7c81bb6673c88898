//! Inquiries of datagram queue pairs (docs/extensions.md).
//! An inquiry that parses must be emitted so that it parses as the same; every other length is an error.

use verbena_wire::ext::SidrMessage;

/// Runs one input: as it came, and cut or padded to the only valid length with a valid head.
pub fn target(data: &[u8]) {
    check(data);
    let mut framed = [0; SidrMessage::LEN];
    let len = data.len().min(SidrMessage::LEN - 8);
    framed[..5].copy_from_slice(b"VbIQ\x01");
    framed[5] = data.first().copied().unwrap_or_default() % 5;
    framed[7] = data.get(1).copied().unwrap_or_default();
    framed[8..8 + len].copy_from_slice(&data[..len]);
    check(&framed);
}

fn check(bytes: &[u8]) {
    let inquiry = match SidrMessage::parse(bytes) {
        Ok(inquiry) => inquiry,
        Err(error) => return drop(error.to_string()),
    };
    assert_eq!(bytes.len(), SidrMessage::LEN);
    let emitted = inquiry.emit();
    assert_eq!(SidrMessage::parse(&emitted), Ok(inquiry));
    assert!(!inquiry.to_string().chars().any(char::is_control));
    for len in [0, 8, SidrMessage::LEN - 1] {
        assert!(SidrMessage::parse(&bytes[..len]).is_err());
    }
}
