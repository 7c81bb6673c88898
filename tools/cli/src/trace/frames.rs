//! What the beginning of a frame or packet says: its name, its place in its message, and what it answers. Bytes come from another process and may be anything.

use verbena::unstable::trace::record::{Frame, FrameKind, HEAD};
use verbena_wire::ddp::Header;
use verbena_wire::ext::Control;
use verbena_wire::mpa::fpdu::LENGTH_LEN;
use verbena_wire::rdmap::Opcode;
use verbena_wire::roce::{Aeth, Bth, Syndrome};

/// The queue pair of the connection manager.
const MANAGER_QPN: u32 = 1;
/// The service of an opcode, and its operation within the service.
const SERVICE_MASK: u8 = 0xe0;
const UD: u8 = 0x60;
const UC: u8 = 0x20;
const CONGESTION: u8 = 0x81;

/// What a frame is to a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// What it is called.
    pub(super) name: &'static str,
    /// Bytes on the wire, as far as is known.
    pub(super) len: u32,
    pub(super) role: Role,
    /// A word for what is noteworthy: a refusal or an end.
    pub(super) notice: Option<&'static str>,
    /// The message number, or the packet sequence number.
    pub(super) number: Option<u32>,
    /// The queue pair that a packet is for.
    pub(super) dest_qpn: Option<u32>,
}

/// Its place in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A part of a request that is not the last.
    Part,
    /// The last part of a request; `takes` says that it takes a receive.
    Last { takes: bool },
    /// An answer: an acknowledgement or a response.
    Answer,
    /// Something else.
    Other,
}

impl Seen {
    fn named(name: &'static str, len: u32) -> Seen {
        Seen {
            name,
            len,
            role: Role::Other,
            notice: None,
            number: None,
            dest_qpn: None,
        }
    }

    pub(super) fn of(frame: &Frame) -> Seen {
        match frame.kind {
            FrameKind::Startup { .. } => startup(&frame.head),
            FrameKind::Fpdu { markers, .. } => fpdu(&frame.head, markers),
            FrameKind::Packet { len, .. } => packet(&frame.head, len.into()),
        }
    }
}

fn startup(head: &[u8; HEAD]) -> Seen {
    let name = match &head[..] {
        [
            b'M',
            b'P',
            b'A',
            b' ',
            b'I',
            b'D',
            b' ',
            b'R',
            b'e',
            b'q',
            ..,
        ] => "MPA Request",
        [
            b'M',
            b'P',
            b'A',
            b' ',
            b'I',
            b'D',
            b' ',
            b'R',
            b'e',
            b'p',
            ..,
        ] => "MPA Reply",
        _ => "MPA startup",
    };
    Seen::named(name, 0)
}

/// Bytes of an FPDU without markers whose length field has this value.
pub(super) fn fpdu_len(ulpdu: u16) -> u32 {
    (LENGTH_LEN as u32 + u32::from(ulpdu)).next_multiple_of(4) + 4
}

fn fpdu(head: &[u8; HEAD], markers: bool) -> Seen {
    // A marker may be in front of the length.
    if markers {
        return Seen::named("FPDU", 0);
    }
    let (length, rest) = head.split_at(LENGTH_LEN);
    let ulpdu = length
        .first_chunk()
        .map_or(0, |field| u16::from_be_bytes(*field));
    let len = fpdu_len(ulpdu);
    let Ok(header) = Header::parse(rest) else {
        return Seen::named("FPDU", len);
    };
    let opcode = header.opcode();
    let name = opcode.name();
    let number = match &header {
        Header::Untagged(header) => Some(header.msn.get()),
        Header::Tagged(_) => None,
    };
    let seen = Seen {
        number,
        ..Seen::named(name, len)
    };
    match opcode {
        Opcode::Control => control(&header, seen),
        Opcode::Terminate => Seen {
            notice: Some("Terminate"),
            ..seen
        },
        Opcode::ReadResponse | Opcode::ReadV2Response | Opcode::AtomicResponse => Seen {
            role: Role::Answer,
            ..seen
        },
        _ if !header.last() => Seen {
            role: Role::Part,
            ..seen
        },
        // A receive is taken by what arrives in queue 0.
        _ => Seen {
            role: Role::Last {
                takes: opcode.qn().is_some_and(|qn| qn.get() == 0),
            },
            ..seen
        },
    }
}

fn control(header: &Header, seen: Seen) -> Seen {
    let Header::Untagged(header) = header else {
        return seen;
    };
    let [kind, ..] = header.ulp.to_be_bytes();
    let is = |name, role, notice| Seen {
        name,
        role,
        notice,
        number: None,
        ..seen.clone()
    };
    // The payload of the others is not recorded in full.
    match Control::parse(header.ulp, &[]) {
        Ok(Control::Ack(_)) => is("Ack", Role::Answer, None),
        Ok(Control::Ready(_)) => is("Ready", Role::Other, Some("receive ready")),
        Ok(Control::Resume(_)) => is("Resume", Role::Other, Some("resumed")),
        Ok(Control::Active { .. }) => is("Active", Role::Other, None),
        Ok(_) => is("Control", Role::Other, None),
        Err(_) if kind == 3 => is("RNR", Role::Other, Some("RNR")),
        Err(_) if kind == 1 => is("Capabilities", Role::Other, None),
        Err(_) => is("Control", Role::Other, None),
    }
}

fn packet(head: &[u8; HEAD], len: u32) -> Seen {
    let Ok(bth) = Bth::parse(head) else {
        return Seen::named("packet", len);
    };
    let dest_qpn = bth.dest_qpn.get();
    let is = |name, role| Seen {
        role,
        number: Some(bth.psn.get()),
        dest_qpn: Some(dest_qpn),
        ..Seen::named(name, len)
    };
    if dest_qpn == MANAGER_QPN {
        return is("connection manager", Role::Other);
    }
    if bth.opcode == CONGESTION {
        return is("CNP", Role::Other);
    }
    let service = bth.opcode & SERVICE_MASK;
    let operation = bth.opcode & !SERVICE_MASK;
    if service == UD {
        return is("UD Send", Role::Last { takes: true });
    }
    if service != 0 && service != UC {
        return is("packet", Role::Other);
    }
    let last = |takes| Role::Last { takes };
    match operation {
        0x00 => is("Send first", Role::Part),
        0x01 => is("Send middle", Role::Part),
        0x02 | 0x03 | 0x16 => is("Send last", last(true)),
        0x04 | 0x05 | 0x17 => is("Send only", last(true)),
        0x06 => is("Write first", Role::Part),
        0x07 => is("Write middle", Role::Part),
        0x08 => is("Write last", last(false)),
        0x09 => is("Write last with immediate", last(true)),
        0x0a => is("Write only", last(false)),
        0x0b => is("Write only with immediate", last(true)),
        0x0c => is("Read Request", last(false)),
        0x0d => is("Read Response first", Role::Answer),
        0x0e => is("Read Response middle", Role::Answer),
        0x0f => is("Read Response last", Role::Answer),
        0x10 => is("Read Response only", Role::Answer),
        0x11 => acknowledgement(&head[Bth::LEN..], is("Acknowledge", Role::Answer)),
        0x12 => is("Atomic Acknowledge", Role::Answer),
        0x13 => is("CmpSwap", last(false)),
        0x14 => is("FetchAdd", last(false)),
        _ => is("packet", Role::Other),
    }
}

fn acknowledgement(aeth: &[u8], seen: Seen) -> Seen {
    match Aeth::parse(aeth).map(|aeth| aeth.syndrome) {
        Ok(Syndrome::RnrNak(_)) => Seen {
            name: "RNR NAK",
            notice: Some("RNR"),
            ..seen
        },
        Ok(Syndrome::Nak(_)) => Seen {
            name: "NAK",
            notice: Some("NAK"),
            ..seen
        },
        _ => seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fpdu_of(bytes: &[u8]) -> Seen {
        let mut head = [0; HEAD];
        head[..bytes.len()].copy_from_slice(bytes);
        fpdu(&head, false)
    }

    #[test]
    fn acknowledgement_and_refusal_are_told_apart() {
        // Length 18; DDP and RDMAP control of the control message, the word, queue 5, MSN 2, MO 0.
        let opcode = Opcode::Control.emit();
        let of = |kind: u8, ulpdu: u8| {
            let mut bytes = vec![0, ulpdu, 0x41, opcode, kind, 0, 0, 9];
            bytes.extend([0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 0]);
            fpdu_of(&bytes)
        };
        assert_eq!((of(2, 18).name, of(2, 18).role), ("Ack", Role::Answer));
        assert_eq!((of(3, 22).name, of(3, 22).notice), ("RNR", Some("RNR")));
        assert_eq!(of(2, 18).len, 24);
    }

    #[test]
    fn any_bytes_have_a_name() {
        for seed in 0..2000_u32 {
            let head: [u8; HEAD] =
                core::array::from_fn(|at| (seed.wrapping_mul(2_654_435_761) >> (at % 24)) as u8);
            for markers in [false, true] {
                assert!(!fpdu(&head, markers).name.is_empty());
            }
            assert!(!packet(&head, 5).name.is_empty());
            assert!(!startup(&head).name.is_empty());
        }
    }
}
