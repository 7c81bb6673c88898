//! The messages that a program may send, and the payload of each.
//! Their content depends on their index, so that a repeated or lost message is noticed.

use verbena_stream::Message;
use verbena_wire::ext::ReadV2Request;
use verbena_wire::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, FlushScope, Immediate, ReadRequest,
};
use verbena_wire::{Stag, To};

use crate::source::{Source, bit};

/// A message to send; its index is in its content.
pub(super) struct Job(pub(super) Message);

impl Job {
    pub(super) fn read(source: &mut Source<'_>, index: usize) -> Job {
        let [kind, len] = source.array();
        let n = index as u32;
        let len = match u32::from(len) {
            long @ 0x80.. => (long - 0x80) * 50,
            short => short,
        };
        let solicited = bit(kind, 4);
        let invalidate = bit(kind, 5).then(|| Stag::new(n));
        let immediate = Immediate::from_imm(n);
        Job(match kind & 7 {
            0 => Message::Write {
                stag: Stag::new(n),
                to: To::new(u64::from(n) << 16),
                len,
            },
            1 => Message::SendImm {
                solicited,
                invalidate,
                immediate,
                len,
            },
            2 => Message::Immediate {
                solicited,
                data: immediate,
            },
            3 => Message::ReadRequest(ReadRequest {
                sink_stag: Stag::new(n),
                sink_to: To::new(0x1000),
                size: len,
                source_stag: Stag::new(1),
                source_to: To::new(u64::from(n)),
            }),
            4 => Message::ReadV2Request(ReadV2Request {
                size: len,
                source_stag: Stag::new(1),
                source_to: To::new(u64::from(n)),
            }),
            5 => Message::AtomicRequest(AtomicRequest {
                op: match n % 4 {
                    1 => AtomicOp::Write { bytes: [7; 8] },
                    2 => AtomicOp::Flush(FlushScope::Range { len: len.into() }),
                    3 => AtomicOp::Flush(FlushScope::Region),
                    _ => AtomicOp::FetchAdd { add: 1, mask: 0 },
                },
                id: n,
                stag: Stag::new(1),
                to: To::new(u64::from(n)),
            }),
            _ => Message::Send {
                solicited,
                invalidate,
                len,
            },
        })
    }
}

/// The response to a request; `None` for one without a response.
pub(super) fn response(message: &Message) -> Option<Message> {
    Some(match *message {
        Message::ReadRequest(r) => Message::ReadResponse {
            stag: r.sink_stag,
            to: r.sink_to,
            len: r.size,
        },
        Message::ReadV2Request(r) => Message::ReadV2Response { len: r.size },
        Message::AtomicRequest(r) => Message::AtomicResponse(AtomicResponse {
            id: r.id,
            original: u64::from(r.id) + 1,
        }),
        _ => return None,
    })
}

/// Byte `offset` of the payload of message `index`, or of the response to it.
pub(super) fn payload(index: usize, offset: u32) -> u8 {
    (index as u32 * 31 + offset % 251) as u8
}
