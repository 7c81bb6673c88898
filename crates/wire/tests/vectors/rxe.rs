//! Captures of Linux rxe: every packet is parsed and written to the same bytes, ICRC included, and every message of the connection manager
//! too. The captures and what happens in them are described in docs/roce.md.

use verbena_wire::roce::cm::{CmMessage, CmaHeader};
use verbena_wire::roce::{
    ICRC_LEN, MadHeader, Operation, Packet, Path, icrc, icrc_over_socket, is_icrc_valid,
};

/// Ethernet header.
const ETHERNET: usize = 14;
/// IPv4 and UDP headers.
const HEADERS: usize = 28;

/// The packets of a capture from the IP header on.
fn packets(name: &str) -> Vec<Vec<u8>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join(format!("../../tools/cli/tests/fixtures/{name}.pcap"));
    let file = std::fs::read(path).unwrap();
    let mut rest = &file[24..];
    let mut packets = Vec::new();
    while let Some(header) = rest.first_chunk::<16>() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        packets.push(rest[16 + ETHERNET..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    packets
}

/// Packets, and messages of the connection manager among them.
fn check(name: &str) -> (usize, usize) {
    let (mut count, mut messages) = (0, 0);
    for bytes in packets(name) {
        let (headers, udp) = bytes.split_at(HEADERS);
        let (packet, sum) = Packet::parse(udp).unwrap();
        assert_eq!(icrc(headers, &udp[..udp.len() - ICRC_LEN]), sum, "{packet}");
        let mut again = Vec::new();
        packet.emit(&mut again);
        again.extend(sum);
        assert_eq!(again, udp, "{packet}");
        count += 1;
        if packet.dest_qpn.get() == MadHeader::QPN {
            assert!(
                matches!(packet.operation, Operation::Datagram(deth, None) if deth.qkey == MadHeader::QKEY)
            );
            let (transaction, message) = CmMessage::parse(packet.payload).unwrap();
            assert_eq!(message.emit(transaction), packet.payload, "{message}");
            if let CmMessage::Req(req) = message {
                let header = CmaHeader::parse(req.private).unwrap();
                assert_eq!(header.emit(), req.private[..CmaHeader::LEN]);
                assert_eq!(header.src.to_string(), "10.2.0.1");
                assert!(CmaHeader::port_of(CmaHeader::PS_TCP, req.service).is_some());
            }
            messages += 1;
        }
    }
    (count, messages)
}

#[test]
fn captured_packets_emit_as_they_were() {
    assert_eq!(check("40_rxe_cm_rping"), (134, 10));
    for (name, count) in [
        ("41_rxe_ops", 97),
        ("42_rxe_errors", 35),
        ("44_rxe_loss", 659),
        ("46_rxe_perftest", 166),
    ] {
        assert_eq!(check(name).0, count, "{name}");
    }
}

/// The path of a packet, as a socket reports it.
fn path(headers: &[u8]) -> Path {
    let ip = |at: usize| {
        let octets: [u8; 4] = headers[at..at + 4].try_into().unwrap();
        octets.into()
    };
    let port = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    Path {
        src: ip(12),
        dst: ip(16),
        src_port: port(20),
        dst_port: port(22),
    }
}

/// A socket does not show the identification, and rxe sets it.
#[test]
fn captured_packets_are_valid_without_identification() {
    let mut exact = 0;
    for name in [
        "40_rxe_cm_rping",
        "41_rxe_ops",
        "42_rxe_errors",
        "44_rxe_loss",
        "46_rxe_perftest",
    ] {
        for (number, bytes) in packets(name).into_iter().enumerate() {
            let (headers, udp) = bytes.split_at(HEADERS);
            let (ib, sum) = udp.split_last_chunk::<ICRC_LEN>().unwrap();
            let path = path(headers);
            assert!(is_icrc_valid(path, ib, *sum), "{name} {number}");
            exact += usize::from(icrc_over_socket(path, ib) == *sum);
            let damaged = |at: usize| {
                let mut ib = ib.to_vec();
                ib[at] ^= 1 << (number % 8);
                is_icrc_valid(path, &ib, *sum)
            };
            assert!(!damaged(0), "opcode, {name} {number}");
            assert!(!damaged(ib.len() - 1), "last byte, {name} {number}");
            let other = Path {
                src: path.dst,
                ..path
            };
            assert!(!is_icrc_valid(other, ib, *sum), "source, {name} {number}");
        }
    }
    assert!(exact < 50, "{exact} packets with identification 0");
}
