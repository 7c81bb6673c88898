//! Frames of the split driver: the offload header, completing checksums, cutting super-frames, recognizing pure acknowledgements, and
//! the I/O unit's switch under a script of ports and frames. Checksums are verified by a separate computation, and the switch against
//! the addresses that its ports own.

use core::time::Duration;

use verbena_lan::{
    Ack, GsoKind, Limits, Mac, Multicast, Offloads, PortId, Role, Switch, VNET_HDR_LEN, Verdict,
    Vnet, apply_offloads, complete_checksum, segment,
};

use crate::source::Source;

/// Pieces that a super-frame may become at most (`verbena_lan::cut`).
const MOST_PIECES: usize = 1024;

/// Runs one input: the first byte chooses between a frame and a script for a switch.
pub fn target(data: &[u8]) {
    match data.split_first() {
        Some((first, rest)) if first % 2 == 0 => frame(rest),
        Some((_, rest)) => switch(rest),
        None => {}
    }
}

fn frame(data: &[u8]) {
    let Some((head, frame)) = data.split_first_chunk::<VNET_HDR_LEN>() else {
        return;
    };
    if let (Some(ack), Some(other)) = (Ack::parse(frame), Ack::parse(data)) {
        assert!(!ack.supersedes(&ack) && ack.is_duplicate_of(&ack));
        assert!(!(ack.supersedes(&other) && other.supersedes(&ack)));
    }
    let vnet = match Vnet::parse(head) {
        Ok(vnet) => vnet,
        Err(error) => return drop(error.to_string()),
    };
    let unclaimed = vnet.without_data_valid();
    assert_eq!(Vnet::parse(&unclaimed.emit()), Ok(unclaimed));
    if let Some(partial) = vnet.partial {
        let mut whole = frame.to_vec();
        if complete_checksum(&mut whole, partial).is_ok() {
            let at = usize::from(partial.start) + usize::from(partial.offset);
            assert_eq!(whole[..at], frame[..at]);
            assert_eq!(whole[at + 2..], frame[at + 2..]);
            assert_ne!(whole[at..at + 2], [0, 0]);
        } else {
            assert_eq!(whole, frame);
        }
    }
    pieces(&vnet, frame);
    for takes in [Offloads::NONE, Offloads::ALL] {
        let mut room = Vec::new();
        let fitted = apply_offloads(&vnet, frame, takes, &mut room, |left, piece| {
            assert!(piece.len() <= frame.len());
            assert!(takes == Offloads::ALL || left.is_plain());
        });
        drop(fitted.map_err(|error| error.to_string()));
    }
}

/// The pieces carry the payload in order, none more than the segment size, and their checksums are valid.
fn pieces(vnet: &Vnet, frame: &[u8]) {
    let (Some(gso), Some(partial)) = (vnet.gso, vnet.partial) else {
        return;
    };
    let start = usize::from(partial.start);
    let (mut room, mut all, mut count) = (Vec::new(), Vec::new(), 0);
    let done = segment(frame, gso, vnet.partial, &mut room, |piece| {
        let header = match gso.kind {
            GsoKind::Udp => 8,
            GsoKind::Tcp4 | GsoKind::Tcp6 => usize::from(piece[start + 12] >> 4) * 4,
        };
        let payload = &piece[start + header..];
        assert!(payload.len() <= usize::from(gso.size));
        all.extend_from_slice(payload);
        count += 1;
        assert!(is_checksum_valid(piece, start), "{piece:02x?}");
    });
    match done {
        Ok(()) => {
            assert!(count <= MOST_PIECES);
            assert!(frame.ends_with(&all));
        }
        Err(error) => {
            assert_eq!(count, 0);
            let _ = error.to_string();
        }
    }
}

/// The checksum of RFC 1071 over pseudo-header, header and payload, computed word by word.
fn is_checksum_valid(piece: &[u8], start: usize) -> bool {
    let above = &piece[start..];
    let ethertype = |at: usize| u16::from_be_bytes([piece[at], piece[at + 1]]);
    let mut at = 12;
    while matches!(ethertype(at), 0x8100 | 0x88a8) {
        at += 4;
    }
    let ip = at + 2;
    let v6 = ethertype(at) == 0x86dd;
    let addresses = if v6 {
        &piece[ip + 8..ip + 40]
    } else {
        &piece[ip + 12..ip + 20]
    };
    let udp = usize::from(u16::from_be_bytes([above[4], above[5]])) == above.len();
    let sum = |protocol: u32| {
        let mut sum = protocol + above.len() as u32;
        for part in [addresses, above] {
            for pair in part.chunks(2) {
                let low = pair.get(1).copied().unwrap_or_default();
                sum += u32::from(u16::from_be_bytes([pair[0], low]));
            }
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum == 0xffff
    };
    sum(6) || (udp && sum(17))
}

const LIMITS: Limits = Limits {
    ports: 6,
    per_host: 3,
    per_lan: 5,
    groups: 2,
    age: Duration::from_secs(9),
};

/// Few addresses, so that scripts name the same one repeatedly.
fn mac(byte: u8) -> Mac {
    match byte % 12 {
        0 => Mac::BROADCAST,
        1 => Mac::new([1, 0, 0x5e, 0, 0, byte % 3]),
        2 => Mac::new([1, 0x80, 0xc2, 0, 0, 0]),
        3 => Mac::new([0; 6]),
        low => Mac::new([2, 0, 0, 0, 0, low]),
    }
}

fn switch(data: &[u8]) {
    let mut source = Source::new(data);
    let mut switch = Switch::new(LIMITS);
    // Ports, and the address that each owns.
    let mut ports: Vec<(PortId, Option<Mac>)> = Vec::new();
    let (mut now, mut to) = (Duration::ZERO, Vec::new());
    while !source.is_empty() {
        let (op, which) = (source.byte(), source.byte());
        let at = usize::from(which) % ports.len().max(1);
        let chosen = ports.get(at).copied();
        match (op % 8, chosen) {
            (0, _) => {
                let own = (which > 99).then(|| mac(source.byte()));
                let role = if which % 4 == 0 {
                    Role::Lan
                } else {
                    Role::Host { own }
                };
                if let Ok(id) = switch.add(role) {
                    ports.push((id, if role == Role::Lan { None } else { own }));
                }
            }
            (1, Some((id, _))) => {
                switch.remove(id).expect("a port that is there");
                ports.remove(at);
                assert!(switch.statistics(id).is_err());
            }
            (2, Some((id, _))) => {
                let own = (op > 99).then(|| mac(source.byte()));
                if switch.set_own_mac(id, own).is_ok() {
                    ports[at].1 = own;
                }
            }
            (3, Some((id, _))) => {
                let groups = source.slice(usize::from(op / 64));
                let groups = groups.iter().copied().map(mac).collect();
                let _ = switch.set_multicast(id, Multicast::Groups(groups));
            }
            (4, Some((id, _))) => switch.set_promiscuous(id, op > 99).expect("a port"),
            (5, _) => {
                now += Duration::from_secs(u64::from(which % 16));
                if op > 99 {
                    switch.expire(now);
                }
            }
            (_, Some((id, _))) => {
                let mut frame = [0; 14];
                frame[..6].copy_from_slice(&mac(source.byte()).octets());
                frame[6..12].copy_from_slice(&mac(source.byte()).octets());
                let len = if op > 250 { usize::from(op - 250) } else { 14 };
                let verdict = switch.forward(id, &frame[..len], now, &mut to);
                let verdict = verdict.expect("a port");
                assert!(!to.contains(&id), "back to where it came from");
                let known = |id: &PortId| ports.iter().any(|(port, _)| port == id);
                assert!(to.iter().all(known) && to.is_sorted());
                assert!(!matches!(verdict, Verdict::Dropped(_)) || to.is_empty());
            }
            (_, None) => {}
        }
        for (id, own) in &ports {
            if let Some(own) = own {
                assert_eq!(switch.port_of(*own, now), Some(*id), "{own} was taken");
            }
        }
        let most = ports.len() * LIMITS.per_host.max(LIMITS.per_lan) + ports.len();
        assert!(switch.addresses() <= most);
    }
}
