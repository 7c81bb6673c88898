//! The capture is a pcap whose TCP streams reassemble to what the peers sent, with valid checksums.
//! The same seed writes the same file. The messages themselves are checked with `verbena decode` and tshark.

use std::collections::BTreeMap;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;

fn capture(seed: u64) -> Vec<u8> {
    let mut out = Vec::new();
    super::write_to(&mut out, seed).expect("it can be written");
    out
}

#[test]
fn the_same_seed_writes_the_same_file() {
    assert_eq!(capture(1), capture(1));
    assert_ne!(capture(1), capture(2));
}

#[test]
fn captured_packets_are_valid_and_streams_complete() {
    let bytes = capture(1);
    let mut reader = PcapReader::new(&bytes[..]).expect("a pcap");
    let mut next: BTreeMap<(u16, u16), u32> = BTreeMap::new();
    let mut streams: BTreeMap<(u16, u16), Vec<u8>> = BTreeMap::new();
    let mut before = core::time::Duration::ZERO;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a packet");
        assert!(packet.timestamp >= before, "time runs backwards");
        before = packet.timestamp;
        let sliced = SlicedPacket::from_ethernet(&packet.data).expect("a frame");
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
            (sliced.net, sliced.transport)
        else {
            panic!("not TCP over IPv4");
        };
        let header = ip.header().to_header();
        assert_eq!(header.source[..3], [192, 0, 2]);
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        let sum = tcp.calc_checksum_ipv4(header.source, header.destination);
        assert_eq!(Ok(tcp.checksum()), sum);
        let flow = (tcp.source_port(), tcp.destination_port());
        let expected = next.entry(flow).or_insert(tcp.sequence_number());
        assert_eq!(tcp.sequence_number(), *expected, "a gap in {flow:?}");
        let advance = tcp.payload().len() as u32 + u32::from(tcp.syn()) + u32::from(tcp.fin());
        *expected = expected.wrapping_add(advance);
        streams.entry(flow).or_default().extend(tcp.payload());
    }
    assert_eq!(streams.len(), 6, "three connections, both ways");
    for (flow, bytes) in streams {
        let key: &[u8] = if flow.1 == 20049 {
            b"MPA ID Req Frame"
        } else {
            b"MPA ID Rep Frame"
        };
        assert!(bytes.starts_with(key), "{flow:?}");
    }
}
