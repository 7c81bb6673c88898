//! Seeds of the targets for what a peer sends outside of queue pairs: inquiries, hellos and services of the split driver, stream sockets,
//! frames, requests for an exported disk, and words of a shared ring. Those that a codec can emit are built by it.

use verbena_lan::{Gso, GsoKind, Mac, Offloads, PartialChecksum, Vnet};
use verbena_split::Arrangement;
use verbena_split::hello::Hello;
use verbena_split::lane::Lane;
use verbena_split::service::{ConfigRequest, Counts, Terms};
use verbena_wire::ext::{SidrKind, SidrMessage};
use verbena_wire::number::Qpn;

use crate::Seed;

pub(crate) fn inquiries() -> Vec<Seed> {
    let inquiry = |matter| {
        let inquiry = SidrMessage {
            transaction: 0x0102_0304,
            kind: matter,
            private_data: b"private",
        };
        inquiry.emit().to_vec()
    };
    let accepted = SidrKind::Accepted {
        number: Qpn::wrapping(17),
        qkey: 0x8001_0000,
        gid: [9; 16],
    };
    vec![
        ("question", inquiry(SidrKind::Request)),
        ("heard", inquiry(SidrKind::Pending)),
        ("accepted", inquiry(accepted)),
        ("refused", inquiry(SidrKind::Refused)),
    ]
}

/// A byte for the operation, and its data; or a hello.
pub(crate) fn services() -> Vec<Seed> {
    let ask = |code: u8, ask: &ConfigRequest| [&[code][..], &ask.encode().1].concat();
    let terms = Terms {
        accepts: Offloads::ALL,
        mtu: 1500,
    };
    let group = Mac::new([1, 0, 0x5e, 0, 0, 1]);
    let hello = Hello {
        service: 7,
        arrangement: Arrangement::Writes,
        channel: 1,
        lane: Lane::ONLY,
        kinds: None,
        data_pair: None,
        name: "host".to_owned(),
    };
    vec![
        ("hello", hello.to_bytes()),
        ("hello-headless", hello.to_bytes()[5..].to_vec()),
        ("initialise", ask(1, &ConfigRequest::Initialise(terms))),
        (
            "set-mac",
            ask(3, &ConfigRequest::SetMac(Mac::new([2, 0, 0, 0, 0, 9]))),
        ),
        ("set-link", ask(5, &ConfigRequest::SetLink(true))),
        ("set-mtu", ask(8, &ConfigRequest::SetMtu(9000))),
        (
            "groups",
            ask(10, &ConfigRequest::MulticastFilter(Some(vec![group; 2]))),
        ),
        ("counts", Counts::default().to_bytes()),
    ]
}

/// Hellos, control messages, and steps of credits.
pub(crate) fn sockets() -> Vec<Seed> {
    let word = |kind: u8, len: usize| {
        let mut bytes = vec![0; len];
        bytes[0] = kind;
        bytes
    };
    let mut hello = b"VRS1\0\x40\0\0".to_vec();
    hello.extend([0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 0, 0, 1, 0, 0]);
    hello.extend([0, 0, 0, 0, 0, 1, 0, 0]);
    vec![
        ("hello", hello),
        ("credit", word(1, 24)),
        ("end", word(2, 8)),
        ("map", word(3, 40)),
        ("unmap", word(4, 16)),
        (
            "turns",
            [0, 60, 1, 60, 2, 0, 0, 99, 1, 30, 2, 0, 3, 50].repeat(4),
        ),
    ]
}

/// Ethernet, IPv4 or IPv6, and a TCP or UDP header, before `payload` bytes.
fn packet(v6: bool, protocol: u8, payload: usize) -> (Vec<u8>, u16) {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let above = if protocol == 6 { 20 } else { 8 };
    let len = (above + payload) as u16;
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(len.to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend([0xfd; 32]);
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + len).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    let start = frame.len() as u16;
    let mut header = vec![0x1f, 0x90, 0x1f, 0x91];
    match protocol {
        6 => header.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]),
        _ => header.extend([len.to_be_bytes(), [0, 0]].concat()),
    }
    frame.extend(header);
    frame.extend((0..payload).map(|i| i as u8));
    (frame, start)
}

/// A frame behind an even byte, a script for a switch behind an odd one.
pub(crate) fn frames() -> Vec<Seed> {
    let gso = |kind, v6, protocol, payload| {
        let (frame, start) = packet(v6, protocol, payload);
        let vnet = Vnet {
            partial: Some(PartialChecksum {
                start,
                offset: if protocol == 6 { 16 } else { 6 },
            }),
            data_valid: false,
            gso: Some(Gso {
                kind,
                size: 50,
                headers: 54,
                ecn: false,
            }),
        };
        [&[0][..], &vnet.emit(), &frame].concat()
    };
    let (ack, _) = packet(false, 6, 0);
    let plain = [&[0][..], &Vnet::PLAIN.emit(), &ack].concat();
    let script = vec![
        1, 0, 4, 0, 101, 5, 0, 102, 6, 6, 1, 7, 5, 6, 0, 5, 7, 3, 1, 9, 4, 2, 101, 2, 8, 5, 9, 6,
        2, 0, 5, 1, 1,
    ];
    vec![
        ("tcp4", gso(GsoKind::Tcp4, false, 6, 170)),
        ("tcp6", gso(GsoKind::Tcp6, true, 6, 170)),
        ("udp4", gso(GsoKind::Udp, false, 17, 120)),
        ("udp6", gso(GsoKind::Udp, true, 17, 120)),
        ("ack", plain),
        ("switch", script),
    ]
}

/// Bytes behind a 0, options behind a 1, requests behind a 2.
pub(crate) fn clients() -> Vec<Seed> {
    vec![
        ("raw", b"\0\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0".to_vec()),
        (
            "options",
            b"\x01\x03\x03\0\x08\0\x07\x06\0\0\0\0\0\0".to_vec(),
        ),
        (
            "name",
            b"\x01\x03\x06\x0a\0\0\0\x02no\0\x01\0\x03\x01\x02no".to_vec(),
        ),
        (
            "reads",
            vec![2, 0, 0, 0, 8, 0, 0, 4, 60, 0, 0x80, 3, 9, 0, 0, 63, 2],
        ),
        (
            "writes",
            vec![2, 1, 0, 1, 4, 1, 1, 8, 2, 3, 0, 0, 0, 0, 0, 1, 4],
        ),
        (
            "others",
            vec![2, 4, 0, 1, 4, 6, 2, 8, 2, 5, 0, 0, 0, 2, 0, 0, 0],
        ),
    ]
}

/// A byte for the capacity, then steps: their number and operands.
pub(crate) fn rings() -> Vec<Seed> {
    let write = |n: u8| vec![0, n, 5];
    let read = |n: u8| vec![3, n, 0];
    let external = [
        &[2][..],
        &4096_u64.to_be_bytes(),
        &9_u64.to_be_bytes(),
        &[0],
    ]
    .concat();
    let script = |steps: &[&[u8]]| [&[0][..], &steps.concat()].concat();
    let seed_hostile = |step: &[u8]| {
        script(&[
            &write(20),
            step,
            &write(40),
            &read(60),
            &[5],
            &write(40),
            &read(60),
        ])
    };
    vec![
        (
            "honest",
            script(&[
                &write(3),
                &read(4),
                &write(90),
                &read(200),
                &external,
                &read(1),
                &[9, 0],
            ]),
        ),
        ("wraps", script(&[&write(30)[..], &read(40)].repeat(6))),
        (
            "sleeps",
            script(&[&[5], &write(200), &[5], &read(250), &[5]]),
        ),
        (
            "closed-by-consumer",
            script(&[&write(60), &[9, 1], &write(60), &read(9)]),
        ),
        (
            "head-beyond",
            seed_hostile(&[6, 0, 3, 0xff, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ("head-back", seed_hostile(&[6, 0, 2, 8])),
        ("head-unaligned", seed_hostile(&[6, 0, 1, 1])),
        ("always-asleep", seed_hostile(&[6, 1, 1, 1])),
        (
            "long-record",
            seed_hostile(&[7, 0, 0, 0xff, 0xff, 0xff, 0xff]),
        ),
        ("empty-record", seed_hostile(&[7, 0, 1, 0])),
        ("external-without-range", seed_hostile(&[7, 0, 2])),
        ("early-end", seed_hostile(&[7, 0, 3])),
        (
            "unknown-kind",
            seed_hostile(&[8, 1, 0x80, 0xff, 0, 0, 0, 0, 0, 0, 1]),
        ),
    ]
}
