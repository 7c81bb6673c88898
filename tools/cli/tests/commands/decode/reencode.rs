//! Every stream of every capture is parsed into values and emitted as the same bytes. Startup frames, headers, fixed-size bodies and siw's
//! Terminates use their value types; only payload is copied.

use std::collections::HashMap;
use std::net::SocketAddr;

use verbena_cli::decode::capture::Capture;
use verbena_cli::decode::fpdu::Fpdu;
use verbena_cli::decode::link;
use verbena_cli::decode::reassembly::Reassembly;
use verbena_cli::decode::segment::{IpContents, parse};
use verbena_wire::crc::{crc32c, crc32c_wire};
use verbena_wire::ddp::Header;
use verbena_wire::mpa::{Frame, Kind, emit_fpdu};
use verbena_wire::rdmap::{Dialect, Opcode, Phase, ReadRequest, Terminate};

use super::support::{CAPTURES, capture};

/// The bytes of every TCP direction that carries any.
fn directions(name: &str) -> HashMap<(SocketAddr, SocketAddr), Vec<u8>> {
    let file = capture(name);
    let mut reader = Capture::open(file.as_slice()).expect("capture");
    let mut found: HashMap<_, (Reassembly, Vec<u8>)> = HashMap::new();
    while let Some(packet) = reader.next_packet().expect("packet") {
        let Some(IpContents::Tcp(s)) = link::ip_packet(packet.link, packet.data).map(parse) else {
            continue;
        };
        if s.syn {
            let order = Reassembly::new(s.seq.wrapping_add(1));
            found.entry((s.from, s.to)).or_insert((order, Vec::new()));
        } else {
            let (order, out) = found.get_mut(&(s.from, s.to)).expect("SYN first");
            order.take(s.seq, s.payload, s.fin, out);
        }
    }
    let bytes = found.into_iter().map(|(ends, (_, bytes))| (ends, bytes));
    bytes.collect()
}

/// Parses one ULPDU into values and emits them again.
fn rewritten(ulpdu: &[u8]) -> Vec<u8> {
    let header = Header::parse(ulpdu).expect("header");
    let mut out = header.emit().to_vec();
    let body = &ulpdu[header.len()..];
    match header.opcode() {
        Opcode::ReadRequest => out.extend(ReadRequest::parse(body).expect("request").emit()),
        Opcode::Terminate => {
            let (terminate, dialect) = Terminate::parse(body, Phase::Running).expect("terminate");
            assert_eq!(dialect, Dialect::Siw);
            terminate.emit(dialect, &mut out);
        }
        _ => out.extend(body),
    }
    out
}

/// FPDUs whose padding siw did not clear, against RFC 5044 §4.1; receivers do not check it.
const DIRTY_PADS: usize = 12;

/// Copies the sender's padding into a frame that has a checksum.
fn restore_pad(frame: &mut [u8], pad: &[u8]) {
    let crc_at = frame.len() - 4;
    frame[crc_at - pad.len()..crc_at].copy_from_slice(pad);
    let crc = crc32c_wire(crc32c(&frame[..crc_at]));
    frame[crc_at..].copy_from_slice(&crc);
}

#[test]
fn every_captured_stream_reencodes_to_same_bytes() {
    let (mut fpdus, mut dirty) = (0, 0);
    for name in CAPTURES {
        let directions = directions(name);
        for (ends, bytes) in &directions {
            let kind = if bytes.starts_with(Kind::Request.key()) {
                Kind::Request
            } else {
                Kind::Reply
            };
            let (frame, len) = Frame::parse(kind, bytes).expect("frame").expect("whole");
            let mut again = Vec::new();
            frame.emit(&mut again);
            let (other, _) = {
                let reverse = &directions[&(ends.1, ends.0)];
                let kind = if kind == Kind::Request {
                    Kind::Reply
                } else {
                    Kind::Request
                };
                Frame::parse(kind, reverse).expect("frame").expect("whole")
            };
            let crc = frame.flags().crc || other.flags().crc;
            let mut at = len;
            while let Some(fpdu) = Fpdu::parse(&bytes[at..], None) {
                let start = again.len();
                emit_fpdu(&rewritten(&fpdu.ulpdu), None, crc, &mut again);
                if fpdu.pad.iter().any(|byte| *byte != 0) {
                    restore_pad(&mut again[start..], &fpdu.pad);
                    dirty += 1;
                }
                at += fpdu.bytes.len();
                fpdus += 1;
            }
            assert_eq!(&again, bytes, "{name} {ends:?}");
        }
    }
    assert_eq!((fpdus, dirty), (633, DIRTY_PADS));
}
