//! Fast path of receiving: a whole Send, Write or acknowledgement that was expected next is placed and completed at once.
//! It has the same effects as the general path. If anything is unusual it does at most claim the receive, and leaves the frame to the
//! general path, which handles every error.

use verbena_mem::{Access, MemAccess};
use verbena_stream::{PredictedKind, Prediction};
use verbena_wire::{Stag, To};

use super::QpInit;
use super::inner::Inner;
use super::memory::scatter;
use crate::srq::Srq;
use crate::wc::{Status, Wc, WcOp};
use verbena_events::event::Outbox;

impl Inner {
    /// Takes the frame at the front of the stage if it is an expected one; returns its bytes.
    #[inline]
    pub(super) fn take_predicted(
        &mut self,
        init: &QpInit,
        stage: &[u8],
        out: &mut Outbox,
    ) -> Option<usize> {
        let foreseen = self.stream.as_ref()?.predict(stage)?;
        match foreseen.kind {
            PredictedKind::Ack(_) => self.accept_predicted(&foreseen),
            // A response may still need the memory that it overwrites.
            _ if self.has_responses() => return None,
            PredictedKind::Write { stag, to, last, .. } => {
                self.take_write(init, &foreseen, (stag, to), last)?;
            }
            PredictedKind::Send { solicited } => self.take_send(init, &foreseen, solicited, out)?,
        }
        Some(foreseen.size)
    }

    fn accept_predicted(&mut self, foreseen: &Prediction<'_>) {
        if let Some(stream) = &mut self.stream {
            stream.commit_prediction(foreseen);
        }
    }

    fn take_write(
        &mut self,
        init: &QpInit,
        foreseen: &Prediction<'_>,
        (stag, to): (Stag, To),
        last: bool,
    ) -> Option<()> {
        let reach = MemAccess {
            stag,
            at: to.get(),
            len: foreseen.payload.len() as u64,
            pd: init.pd,
            qp: init.number,
            needs: Access::REMOTE_WRITE,
        };
        let place = if self.attributes.enabled.write {
            init.tpt.place_remote(&reach).ok()?
        } else {
            return None;
        };
        // M9: whether it is the first to end there is decided by the general path.
        if place.is_one_touch() {
            return None;
        }
        place.write(0, foreseen.payload).ok()?;
        let len = foreseen.payload.len() as u32;
        self.receive.note_run(len >= init.transfer.direct_min);
        self.accept_predicted(foreseen);
        if last {
            self.receive.set_write_dropped(false);
            self.counters.messages_in += 1;
        }
        Some(())
    }

    fn take_send(
        &mut self,
        init: &QpInit,
        foreseen: &Prediction<'_>,
        solicited: bool,
        out: &mut Outbox,
    ) -> Option<()> {
        // A receive whose message was dropped is still claimed.
        let works = !self.state.flushes();
        let take = works.then_some(|srq: &Srq| srq.take_at_once(init.number, out));
        let receive = self.receive.find_receive(init, &mut self.heads, take)?;
        let len = foreseen.payload.len() as u32;
        let fits = receive.capacity() >= len;
        if !fits || scatter(init, &receive.scatter, foreseen.payload).is_err() {
            // It stays claimed for this message: the general path finds it here.
            self.receive.set_claimed(receive);
            return None;
        }
        if len > 0 {
            self.receive.note_run(len >= init.transfer.direct_min);
        }
        self.accept_predicted(foreseen);
        self.receive.set_write_dropped(false);
        self.counters.messages_in += 1;
        let wc = Wc {
            id: receive.id,
            qpn: init.wc_qpn,
            status: Status::Success,
            op: WcOp::Receive,
            len,
            solicited,
            ..Wc::default()
        };
        let entered = self.complete_sends(init, out);
        let received = init.recv_cq.push(wc, out);
        if !entered || !received {
            self.fail_cq_overflow(init, out);
        }
        Some(())
    }
}
