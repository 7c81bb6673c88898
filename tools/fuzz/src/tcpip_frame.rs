//! A stack with a connection, a listener and a datagram port, and frames: as they are in the input, and with valid addresses and
//! checksums. It must not panic, answer one frame with more than a bounded number, or send a frame that it would not accept itself.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use verbena_stream::Time;
use verbena_tcpip::checksum::Checksum;
use verbena_tcpip::frame::{self, Carried};
use verbena_tcpip::tcp::TcpConfig;
use verbena_tcpip::{
    Arrival, ConnectionId, InterfaceAddress, ListenConfig, Mac, Outgoing, Stack, StackConfig,
    TrafficClass,
};

use crate::source::{Source, bit};

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// Frames that one frame may cause: what is queued on the connection, and an answer.
const MOST: usize = 200;

fn stack(number: u8) -> Stack {
    let own = |text: String, prefix| InterfaceAddress {
        address: text.parse::<IpAddr>().expect("an address"),
        prefix,
    };
    let config = StackConfig {
        mac: Mac([2, 0, 0, 0, 0, number]),
        addresses: vec![
            own(format!("10.0.0.{number}"), 24),
            own(format!("fd00::{number}"), 64),
        ],
        max_connections: 64,
        ..StackConfig::default()
    };
    Stack::new(config, [number; 32])
}

fn emitted(outgoing: Outgoing) -> Vec<u8> {
    match outgoing {
        Outgoing::Frame(frame) => frame,
        Outgoing::Segment(mut segment) => {
            let len = usize::try_from(segment.payload.end - segment.payload.start);
            let payload = vec![0x5a; len.unwrap_or(0)];
            segment.complete([&payload[..]]);
            [segment.headers(), &payload].concat()
        }
    }
}

fn drain(stack: &mut Stack, now: Time) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(outgoing) = stack.poll_transmit(now) {
        let frame = emitted(outgoing);
        frame::parse(&frame, false).expect("a frame that it would accept");
        out.push(frame);
        assert!(out.len() <= MOST, "it sends without end");
    }
    out
}

/// A stack at 10.0.0.1 with a connection to 10.0.0.2, which has a queue of data.
fn world(now: Time) -> (Stack, ConnectionId) {
    let (mut ours, mut peer) = (stack(1), stack(2));
    for stack in [&mut ours, &mut peer] {
        let config = ListenConfig {
            backlog: 2,
            ..ListenConfig::default()
        };
        stack.listen(80, config).expect("a free port");
        assert!(stack.bind_datagrams(53));
    }
    let to = SocketAddr::new("10.0.0.2".parse().expect("an address"), 80);
    let class = TrafficClass::default();
    let id = ours
        .connect(to, Some(1000), TcpConfig::default(), class, now)
        .expect("a route");
    for _ in 0..6 {
        for frame in drain(&mut ours, now) {
            peer.handle_frame(&frame, false, now);
        }
        for frame in drain(&mut peer, now) {
            ours.handle_frame(&frame, false, now);
        }
    }
    ours.queue(id, 30_000).expect("a connection");
    (ours, id)
}

/// The same bytes as a frame for the stack with valid checksums, which mutation alone does not find.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if bytes.len() < 38 {
        return bytes;
    }
    bytes[..6].copy_from_slice(&OURS.0);
    bytes[6] &= 0xfe;
    let is_v6 = bit(bytes[11], 0);
    bytes[12..14].copy_from_slice(if is_v6 { &[0x86, 0xdd] } else { &[8, 0] });
    let rest = bytes.len() - 14;
    let (header, source, destination, protocol) = if is_v6 {
        if bytes.len() < 54 {
            return bytes;
        }
        let len = u16::try_from(rest - 40).unwrap_or(0);
        bytes[14] = 0x60;
        bytes[18..20].copy_from_slice(&len.to_be_bytes());
        bytes[20] = [6, 17, 58, 58][usize::from(bytes[20] & 3)];
        bytes[22..38].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        bytes[38..54].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let address = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap_or_default();
        (
            40,
            IpAddr::from(address(22)),
            IpAddr::from(address(38)),
            bytes[20],
        )
    } else {
        bytes[14] = 0x45;
        bytes[16..18].copy_from_slice(&u16::try_from(rest).unwrap_or(0).to_be_bytes());
        bytes[20..22].fill(0);
        bytes[23] = [6, 17, 1, 1][usize::from(bytes[23] & 3)];
        bytes[24..34].copy_from_slice(&[0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
        let mut sum = Checksum::default();
        sum.add(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.finish());
        let (from, to) = ([10, 0, 0, 2], [10, 0, 0, 1]);
        (20, IpAddr::from(from), IpAddr::from(to), bytes[23])
    };
    let payload = 14 + header;
    let at = payload
        + match protocol {
            6 => 16,
            17 => 6,
            _ => 2,
        };
    let Some(field) = bytes.get_mut(at..at + 2) else {
        return bytes;
    };
    field.fill(0);
    if protocol == 17 {
        let len = u16::try_from(bytes.len() - payload).unwrap_or(0);
        bytes[payload + 4..payload + 6].copy_from_slice(&len.to_be_bytes());
    }
    let mut sum = if protocol == 1 {
        Checksum::default()
    } else {
        Checksum::pseudo(source, destination, protocol, bytes.len() - payload)
    };
    sum.add(&bytes[payload..]);
    bytes[at..at + 2].copy_from_slice(&sum.finish());
    bytes
}

/// Runs one input: a byte of switches and a length before each frame.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let mut now = Time::from_nanos(1_000_000_000_000);
    let (mut stack, id) = world(now);
    drain(&mut stack, now);
    while !source.is_empty() {
        let switches = source.byte();
        let len = usize::from(source.u16() & 0x7ff);
        let chunk = source.slice(len);
        let frame = if bit(switches, 0) {
            sealed(chunk)
        } else {
            chunk.to_vec()
        };
        let arrival = stack.handle_frame(&frame, bit(switches, 1), now);
        match &arrival {
            Arrival::Segment {
                received, payload, ..
            } => {
                let data = frame.get(payload.clone()).expect("a place in the frame");
                for run in &received.runs {
                    assert!(data.get(run.payload.clone()).is_some());
                }
            }
            Arrival::Datagram { payload, .. } => assert!(frame.get(payload.clone()).is_some()),
            _ => {}
        }
        if bit(switches, 2) {
            stack.consume(id, u64::from(switches) * 100);
        }
        if bit(switches, 3)
            && let Some(deadline) = stack.deadline()
        {
            now = now.max(deadline);
            stack.handle_timeout(now);
        }
        if bit(switches, 4) {
            now = now + Duration::from_millis(u64::from(switches));
        }
        for sent in drain(&mut stack, now) {
            let (ether, carried) = frame::parse(&sent, false).expect("parsed before");
            assert_eq!(ether.source, OURS);
            assert!(!matches!(carried, Carried::Other(_)));
        }
        while stack.poll_event().is_some() {}
    }
}
