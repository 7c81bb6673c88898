//! Fast path of sending: a whole Send or Write that may be sent now is begun, framed and marked as sent at once.
//! It makes the same frames and the same marks as the general path, and leaves fences, drained queues, refused memory and
//! peers that are not ready to the general path. Only memory that is unmapped while it is copied fails the request here.

use verbena_mem::Refusal;
use verbena_stream::Message;

use super::QpInit;
use super::inner::Inner;
use super::memory::source;
use super::wqe::{Payload, Progress, Wqe};
use crate::wr::{Flags, SendOp};
use verbena_events::event::Outbox;

impl Inner {
    /// Frames the next request if that takes one short plain frame and nothing prevents it; false if nothing was done.
    #[inline]
    pub(super) fn frame_short(&mut self, init: &QpInit, out: &mut Outbox) -> bool {
        let wqe = self.sends.next_unbegun(self.state);
        let (Some(wqe), Some(stream)) = (wqe, &mut self.stream) else {
            return false;
        };
        let Some(message) = message_of(init, wqe) else {
            return false;
        };
        // All its memory is granted before anything is numbered: a frame once made must be finished.
        let Ok(source) = source(init, wqe, 0, wqe.len) else {
            return false;
        };
        let Some((plain, rsn)) = stream.frame_single(&message) else {
            return false;
        };
        let (began, mut copied) = (self.transmit.frame_start(), Ok(()));
        self.transmit.put_plain(&plain, |stage| {
            copied = source.append(0, wqe.len as usize, stage);
        });
        drop(source);
        if let Err(lost) = copied {
            let refusal = Refusal::from(lost);
            wqe.rsn[0] = Some(rsn);
            self.transmit.truncate(began);
            self.sends.advance();
            self.cause
                .get_or_insert_with(|| format!("our own memory: {refusal}"));
            let number = self.sends.number(self.sends.begun() - 1);
            self.defer_failure(init, number, out);
            return true;
        }
        self.counters.messages_out += 1;
        wqe.rsn[0] = Some(rsn);
        wqe.progress = Progress::Sent {
            end: self.transmit.framed(),
        };
        self.sends.advance();
        true
    }
}

/// The one message of a request that could take the fast path.
fn message_of(init: &QpInit, wqe: &Wqe) -> Option<Message> {
    let fenced = wqe.flags.contains(Flags::FENCE) || wqe.flags.contains(Flags::LOCAL_FENCE);
    let fresh = wqe.progress == Progress::Waiting { part: 0 };
    // Longer payload is sent from its memory.
    let long =
        wqe.len >= init.transfer.direct_min.max(1) && matches!(wqe.payload, Payload::Gather(_));
    if fenced || long || !fresh {
        return None;
    }
    match wqe.op {
        SendOp::Send {
            invalidate: None,
            immediate: None,
        } => Some(Message::Send {
            solicited: wqe.flags.contains(Flags::SOLICITED),
            invalidate: None,
            len: wqe.len,
        }),
        SendOp::Write {
            remote,
            immediate: None,
        } => Some(Message::Write {
            stag: remote.stag,
            to: remote.to,
            len: wqe.len,
        }),
        _ => None,
    }
}
