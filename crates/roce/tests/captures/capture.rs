//! Reads the captures: their packets by connection and side, and the sequence numbers that each connection begins with.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use verbena_roce::cm::Mad;
use verbena_wire::roce::cm::CmMessage;
use verbena_wire::roce::{MadHeader, Packet, Psn};

/// Ethernet header.
const ETHERNET: usize = 14;
/// IPv4 and UDP headers.
const HEADERS: usize = 28;
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

/// A packet of a connection: its sender and its bytes.
pub(crate) struct Captured {
    pub(crate) from: Ipv4Addr,
    pub(crate) bytes: Vec<u8>,
}

impl Captured {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).unwrap().0
    }
}

/// The packets of one connection, in the order of the capture.
#[derive(Default)]
pub(crate) struct Conversation {
    pub(crate) packets: Vec<Captured>,
    /// PSN of the first request of each side.
    pub(crate) first: HashMap<Ipv4Addr, Psn>,
    /// How often each side repeats a message that finds no receive, if the connection manager has agreed on it.
    pub(crate) rnr_retry: HashMap<Ipv4Addr, u8>,
}

/// The packets of a capture, in its order.
fn packets(name: &str) -> Vec<Captured> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join(format!("../../tools/cli/tests/fixtures/{name}.pcap"));
    let file = std::fs::read(path).unwrap();
    let (mut rest, mut all) = (&file[24..], Vec::new());
    while let Some(header) = rest.first_chunk::<16>() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let ip = &rest[16 + ETHERNET..16 + len];
        rest = &rest[16 + len..];
        all.push(Captured {
            from: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]),
            bytes: ip[HEADERS..].to_vec(),
        });
    }
    all
}

/// The messages of the connection manager in a capture, with their senders.
pub(crate) fn messages(name: &str) -> Vec<(Ipv4Addr, Mad)> {
    let all = packets(name).into_iter();
    let of_qp1 = all.filter(|one| one.packet().dest_qpn.get() == MadHeader::QPN);
    let mads = of_qp1.map(|one| (one.from, one.packet().payload.try_into().unwrap()));
    mads.collect()
}

/// The connections of a capture. A connection ends where the connection manager begins another one; without messages of the connection manager, each
/// pair of queue pair numbers is one.
pub(crate) fn conversations(name: &str) -> Vec<Conversation> {
    let mut all: Vec<Conversation> = Vec::new();
    let mut has_cm = false;
    let mut by_number: HashMap<u32, usize> = HashMap::new();
    for captured in packets(name) {
        let from = captured.from;
        let packet = captured.packet();
        if packet.dest_qpn.get() == MadHeader::QPN {
            let (_, message) = CmMessage::parse(packet.payload).unwrap();
            match message {
                CmMessage::Req(req) => {
                    has_cm = true;
                    let mut new = Conversation::default();
                    // What a side asks for is where the other one begins.
                    new.first.insert(SERVER, req.starting_psn);
                    new.rnr_retry.insert(SERVER, req.rnr_retry_count);
                    all.push(new);
                }
                CmMessage::Rep(rep) => {
                    let last = all.last_mut().unwrap();
                    last.first.insert(CLIENT, rep.starting_psn);
                    last.rnr_retry.insert(CLIENT, rep.rnr_retry_count);
                }
                _ => {}
            }
            continue;
        }
        if packet.operation.opcode() >= 0x20 {
            continue;
        }
        if has_cm {
            all.last_mut().unwrap().packets.push(captured);
            continue;
        }
        let number = packet.dest_qpn.get();
        let index = *by_number.entry(number).or_insert_with(|| {
            all.push(Conversation::default());
            all.len() - 1
        });
        let conversation = &mut all[index];
        if !packet.operation.is_response() {
            conversation.first.entry(from).or_insert(packet.psn);
        }
        conversation.packets.push(captured);
    }
    all.retain(|conversation| !conversation.packets.is_empty());
    all
}
