//! Packets of RoCEv2, of every operation: what parses must be emitted so that it parses as the same packet.
//! The length of the emitted packet is a multiple of four, and its headers are those that precede a payload sent from elsewhere.

use verbena_wire::roce::{Bth, ICRC_LEN, Packet};

/// Runs one input.
pub fn target(data: &[u8]) {
    let (packet, icrc) = match Packet::parse(data) {
        Ok(parsed) => parsed,
        Err(error) => return drop(error.to_string()),
    };
    assert!(packet.payload.len() + Bth::LEN + ICRC_LEN <= data.len());
    let mut out = Vec::new();
    packet.emit(&mut out);
    let mut headers = Vec::new();
    packet.emit_headers(packet.payload.len(), &mut headers);
    assert!(out.starts_with(&headers), "headers of a separate payload");
    assert!(out[headers.len()..].starts_with(packet.payload));
    assert_eq!(out.len() % 4, 0, "padded to words");
    out.extend(icrc);
    assert_eq!(Packet::parse(&out), Ok((packet, icrc)));
    assert_eq!(packet.operation.opcode(), data[0]);
    let _ = packet.to_string();
}
