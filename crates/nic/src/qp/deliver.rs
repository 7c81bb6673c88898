//! What a queue pair does with a message that has arrived in full.
//! A Send or immediate data completes exactly one receive, and a response ends exactly the request it belongs to. The bytes have been placed before.

use verbena_stream::Delivery;
use verbena_wire::Rsn;
use verbena_wire::rdmap::Opcode;

use super::QpInit;
use super::answer::access_violation;
use super::inner::Inner;
use super::memory::scatter;
use super::responder::Owed;
use super::touch::sink_touched;
use super::wqe::Payload;
use crate::state::QpType;
use crate::wc::{Status, Wc, WcOp};
use crate::wr::SendOp;
use verbena_events::event::Outbox;

impl Inner {
    /// Processes something that has arrived in full; false if the stream is over, or is not read further for now.
    pub(super) fn deliver(&mut self, init: &QpInit, delivery: &Delivery, out: &mut Outbox) -> bool {
        match *delivery {
            Delivery::Send {
                opcode,
                len,
                invalidate,
                immediate,
                ..
            } => {
                if let Some(stag) = invalidate
                    && self.has_responses()
                    && !self.preserve_entry(init, stag)
                {
                    self.defer(delivery);
                    return false;
                }
                if let Some(stag) = invalidate
                    && let Err(refusal) = init.tpt.invalidate_remote(stag, init.pd, init.number)
                {
                    let violation = access_violation(opcode, stag, &refusal);
                    // An unreliable connection drops a message that memory refused; the receive stays for the next message.
                    if init.qp_type == QpType::Uc {
                        return self.count_refusal(init, &violation, out);
                    }
                    if let Some(stream) = &mut self.stream {
                        stream.fail(violation);
                    }
                    self.handle_violation(init, &violation, out);
                    return false;
                }
                let immediate = immediate.map(|i| i.imm());
                let wc = self.receive_wc(init, WcOp::Receive, len, immediate, opcode.solicited());
                self.complete_receive(
                    init,
                    Wc {
                        invalidated: invalidate,
                        ..wc
                    },
                    out,
                );
            }
            Delivery::Immediate {
                opcode,
                data,
                write_len,
                ..
            } => {
                let (op, len) = (WcOp::ReceiveWriteImm, write_len.unwrap_or(0));
                let wc = self.receive_wc(init, op, len, Some(data.imm()), opcode.solicited());
                self.complete_receive(init, wc, out);
            }
            Delivery::Write { .. } => {
                self.receive.set_write_dropped(false);
                if let Err(violation) = self.receive.take_touching().finish(init) {
                    self.refuse_request(init, violation, out);
                    return false;
                }
                self.counters.messages_in += 1;
            }
            Delivery::ReadRequest {
                header, request, ..
            } => return self.admit(init, Owed::Read(header, request), delivery, out),
            Delivery::ReadV2Request {
                header, request, ..
            } => return self.admit(init, Owed::ReadV2(header, request), delivery, out),
            Delivery::AtomicRequest {
                header, request, ..
            } => return self.admit(init, Owed::Atomic(header, request, 0), delivery, out),
            Delivery::ReadDone(read) => return self.read_done(init, read.rsn, out),
            Delivery::AtomicDone(read, response) => {
                return self.atomic_done(init, read.rsn, response.original, out);
            }
            Delivery::Active(psn) => return self.peer_active(init, psn, out),
            Delivery::Rnr(_) => self.counters.rnr_received += 1,
            Delivery::Ready(n) => self.rewind(n),
            Delivery::Terminate(ref terminate, _) => {
                self.peer_terminated(init, terminate, out);
                return false;
            }
            Delivery::Caps(caps) => return self.handle_peer_caps(init, &caps, out),
            Delivery::Discarded(Opcode::Write) => {
                self.receive.set_write_dropped(init.qp_type == QpType::Uc);
                self.receive.take_touching();
            }
            Delivery::Discarded(_)
            | Delivery::Rtr
            | Delivery::Acked(_)
            | Delivery::Resumed(_)
            | Delivery::Path(..) => {}
        }
        true
    }

    fn receive_wc(
        &self,
        init: &QpInit,
        op: WcOp,
        len: u32,
        immediate: Option<u32>,
        solicited: bool,
    ) -> Wc {
        Wc {
            id: self.receive.claimed().map_or(0, |r| r.id),
            qpn: init.wc_qpn,
            status: Status::Success,
            op,
            len,
            immediate,
            solicited,
            ..Wc::default()
        }
    }

    fn complete_receive(&mut self, init: &QpInit, wc: Wc, out: &mut Outbox) {
        self.counters.messages_in += 1;
        let entered = self.complete_sends(init, out);
        let received = self.receive.take_claimed().is_none() || init.recv_cq.push(wc, out);
        if !entered || !received {
            self.fail_cq_overflow(init, out);
        }
    }

    fn read_done(&mut self, init: &QpInit, rsn: Rsn, out: &mut Outbox) -> bool {
        let Some(at) = self.sends.find(rsn) else {
            return true;
        };
        if let SendOp::Read {
            local_invalidate: Some(stag),
            ..
        } = self.sends[at].op
            && init.tpt.invalidate_local(stag, init.pd).is_err()
        {
            self.fail_request(init, at, Status::LocProtErr, out);
            return false;
        }
        let classic = !self.peer_features().read_v2;
        if let Err(refusal) = sink_touched(init, &self.sends[at].payload, classic) {
            self.cause
                .get_or_insert_with(|| format!("the sink of a read: {refusal}"));
            self.fail_request(init, at, Status::LocProtErr, out);
            return false;
        }
        self.sends.end(at, Status::Success);
        true
    }

    fn atomic_done(&mut self, init: &QpInit, rsn: Rsn, original: u64, out: &mut Outbox) -> bool {
        let Some(at) = self.sends.find(rsn) else {
            return true;
        };
        let placed = match &self.sends[at].payload {
            Payload::Gather(sges) => scatter(init, sges, &original.to_ne_bytes()),
            Payload::Inline(_) => Ok(()),
        };
        if let Err(refusal) = placed {
            self.cause
                .get_or_insert_with(|| format!("the result of an atomic: {refusal}"));
            self.fail_request(init, at, Status::LocProtErr, out);
            return false;
        }
        self.sends.end(at, Status::Success);
        true
    }
}
