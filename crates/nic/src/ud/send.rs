//! The send side of a datagram queue pair: packets in posting order, each completes when it was sent.
//! A request that finds no room stays at the front; one that fails completes with an error, and those behind it are flushed. Addresses
//! and the checksum that covers them are added by the [`DatagramSender`].

use verbena_events::event::{Event, Outbox};
use verbena_mem::{Access, Refusal};
use verbena_wire::roce::UdPacket;

use super::datagram::PKEY;
use super::post::{Destination, Payload, Queued};
use super::{Inner, UdInit, UdQp, mem_access};
use crate::state::{QpEvent, QpState};
use crate::trace::{self, TraceEvent};
use crate::wc::{Status, Wc, WcOp};
use crate::wr::Flags;

/// InfiniBand: a Q_Key with this bit set stands for the sender's own.
const OWN_KEY: u32 = 0x8000_0000;

/// Result of sending a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// It was sent.
    Sent,
    /// The system did not send it, for a reason outside the adapter; it is lost.
    Lost,
    /// There is no room now.
    Full,
    /// No socket is bound to the source address.
    UnknownSource,
}

/// Sends packets.
pub trait DatagramSender {
    /// Sends one packet, from the base transport header to the pad; bytes appended to `packet` are sent along.
    fn send_packet(&mut self, to: &Destination, packet: &mut Vec<u8>) -> SendOutcome;
}

/// Why sending stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdSending {
    /// Nothing is left to send.
    Idle,
    /// There is no room for the request at the front; it is sent from this address.
    Blocked(core::net::IpAddr),
}

impl UdQp {
    /// Sends until nothing is left or there is no room.
    pub fn transmit(&self, post: &mut impl DatagramSender, out: &mut Outbox) -> UdSending {
        let mut inner = self.inner.lock();
        inner.transmit(&self.init, post, out)
    }
}

impl Inner {
    fn transmit(
        &mut self,
        init: &UdInit,
        post: &mut impl DatagramSender,
        out: &mut Outbox,
    ) -> UdSending {
        while self.state == QpState::Rts {
            let Some(queued) = self.sends.pop_front() else {
                break;
            };
            let payload = match self.build_packet(init, &queued) {
                Ok(payload) => payload,
                // V5: the queue waits until its memory is registered; the queue pair is woken then.
                Err(Refusal::Pending { stag }) => {
                    let waits = init.tpt.wait(stag, init.number);
                    self.sends.push_front(queued);
                    if waits {
                        break;
                    }
                    // The registration ended meanwhile, and is never pending again: try once more.
                    continue;
                }
                Err(refusal) => {
                    let why = format!("the data of a datagram: {refusal}");
                    self.fail_send(init, &queued, Status::LocProtErr, why, out);
                    break;
                }
            };
            match post.send_packet(&queued.to, &mut self.packet) {
                SendOutcome::Full => {
                    let source = queued.to.source;
                    self.sends.push_front(queued);
                    return UdSending::Blocked(source);
                }
                SendOutcome::UnknownSource => {
                    let why = format!("not an address of this adapter: {}", queued.to.source);
                    self.fail_send(init, &queued, Status::LocQpOpErr, why, out);
                    break;
                }
                SendOutcome::Sent => {
                    self.counters.sent += 1;
                    self.counters.bytes_out += payload as u64;
                    if trace::is_active() {
                        init.observer.record(&TraceEvent::LastPacket {
                            qp: init.number,
                            number: queued.number,
                            dest_qpn: queued.to.number.get(),
                            psn: self.psn.get(),
                        });
                    }
                }
                SendOutcome::Lost => self.counters.lost += 1,
            }
            self.psn = self.psn.next();
            self.complete_send(init, &queued, Status::Success, out);
        }
        UdSending::Idle
    }

    /// Builds the packet of a request, without its checksum; returns the length of its payload.
    fn build_packet(&mut self, init: &UdInit, queued: &Queued) -> Result<usize, Refusal> {
        self.gathered.clear();
        let payload = match &queued.payload {
            Payload::Inline(bytes) => bytes.as_slice(),
            Payload::Gather(sges) => {
                for sge in sges.iter().filter(|sge| sge.len > 0) {
                    let piece = mem_access(init, sge, sge.len, Access::NONE);
                    let gather = init.tpt.gather_local(&piece)?;
                    gather.append_to(0, sge.len as usize, &mut self.gathered)?;
                }
                &self.gathered
            }
        };
        let packet = UdPacket {
            dest_qpn: queued.to.number,
            src_qpn: init.qpn,
            qkey: if queued.to.qkey & OWN_KEY != 0 {
                self.qkey
            } else {
                queued.to.qkey
            },
            pkey: PKEY,
            psn: self.psn,
            solicited: queued.flags.contains(Flags::SOLICITED),
            immediate: queued.immediate.map(u32::to_be_bytes),
            payload,
        };
        self.packet.clear();
        packet.emit(&mut self.packet);
        Ok(payload.len())
    }

    /// A send failed: it completes with an error, the rest flushes, and the queue pair continues to receive (InfiniBand's SQE).
    fn fail_send(
        &mut self,
        init: &UdInit,
        struck: &Queued,
        status: Status,
        why: String,
        out: &mut Outbox,
    ) {
        self.cause.get_or_insert(why);
        if let Some(next) = self.state.next_ud(QpEvent::SendFailed) {
            self.state = next;
        }
        self.complete_send(init, struck, status, out);
        self.flush_sends(init, out);
    }

    pub(super) fn flush_sends(&mut self, init: &UdInit, out: &mut Outbox) {
        while let Some(queued) = self.sends.pop_front() {
            self.complete_send(init, &queued, Status::WrFlushErr, out);
        }
    }

    /// Pushes the completion of a send, if it has one.
    pub(super) fn complete_send(
        &mut self,
        init: &UdInit,
        queued: &Queued,
        status: Status,
        out: &mut Outbox,
    ) {
        let notify = queued.flags.contains(Flags::NOTIFY);
        let silent = status == Status::Success && !queued.flags.contains(Flags::SIGNALED);
        if trace::is_active() {
            init.observer.record(&TraceEvent::Ended {
                qp: init.number,
                number: queued.number,
                id: queued.id,
                op: WcOp::Send,
                status,
                len: queued.len,
                entry: notify || !silent,
            });
        }
        if silent && !notify {
            return;
        }
        let wc = Wc {
            id: queued.id,
            qpn: init.qpn.get(),
            status,
            op: WcOp::Send,
            len: queued.len,
            ..Wc::default()
        };
        let entered = if notify {
            init.send_cq.push_and_notify(wc, out)
        } else {
            init.send_cq.push(wc, out)
        };
        if !entered {
            self.fail_cq_overflow(init, out);
        }
    }

    /// A completion was lost: the queue pair fails.
    pub(super) fn fail_cq_overflow(&mut self, init: &UdInit, out: &mut Outbox) {
        if self.state.flushes() {
            return;
        }
        self.cause
            .get_or_insert_with(|| "a completion queue overflowed".to_owned());
        out.push(Event::QpFatal { qp: init.number });
        self.end(init, QpEvent::Failed, out);
    }
}
