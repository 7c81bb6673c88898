//! The sending side: PDUs are built and written to the carrier, as much as it takes. The order is: PDUs for immediate delivery, then data
//! in the order of the R2Ts, then requests in posting order. A PDU that is partly transmitted is never withdrawn.

use parking_lot::Mutex;
use verbena_mem::Sources;
use verbena_nic::{Carrier, IoOutcome, Outbox, Sending, Status};
use verbena_storage_wire::iscsi::{Bhs, FromInitiator, NO_TAG, is_immediate};

use super::Init;
use super::frame::{Frame, MAX_FRAMES, Refused};
use super::inner::Inner;
use super::queues::{Pdu, Queues, Request};

/// Bytes of frames that are built ahead of the carrier.
const BATCH: usize = 256 << 10;

impl Inner {
    pub(super) fn push(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        carrier: &mut (impl Carrier + ?Sized),
        out: &mut Outbox,
    ) -> Sending {
        loop {
            let mut more = true;
            while more
                && !self.ended
                && self.frames.len() < MAX_FRAMES
                && self.frames.bytes() < BATCH
            {
                more = self.frame_next(init, queues, out);
            }
            // Before this call, or by one of the requests.
            if self.ended {
                return Sending::Ended;
            }
            if self.frames.is_empty() {
                return Sending::Idle;
            }
            let (refused, bytes, moved) = {
                let mut sources = Sources::new();
                let named = self.frames.sources(&init.ulp, &self.commands, &mut sources);
                let bytes = sources.bytes();
                let moved = if bytes == 0 {
                    IoOutcome::WouldBlock
                } else {
                    carrier.write(&sources)
                };
                (named.err(), bytes, moved)
            };
            let sent = match moved {
                IoOutcome::Bytes(n) => n,
                IoOutcome::WouldBlock => 0,
                IoOutcome::Eof | IoOutcome::Broken => {
                    self.handle_disconnect(init, queues, "the connection to the target broke", out);
                    return Sending::Ended;
                }
                IoOutcome::Fault => {
                    self.end(init, queues, "registered memory is not mapped", out);
                    return Sending::Ended;
                }
            };
            let (gathered, complete) = self.frames.advance(sent);
            self.counters.bytes_out += sent as u64;
            self.counters.gathered += gathered as u64;
            self.counters.pdus_out += complete as u64;
            if let Some(refused) = refused {
                if sent == bytes {
                    // Everything before it was sent, the PDU's own header included: the connection cannot continue.
                    self.fail_gather(init, queues, &refused, out);
                    return Sending::Ended;
                }
                return Sending::Blocked;
            }
            // Nothing to write although frames wait: do not loop under the lock.
            if sent < bytes || bytes == 0 {
                return Sending::Blocked;
            }
            // A request posted after the check is followed by a `try_transmit`, which the lock records.
            if !more && self.frames.is_empty() {
                return Sending::Idle;
            }
        }
    }

    /// Builds the next PDU, or ends a request that fails. False if there is nothing to do now.
    fn frame_next(&mut self, init: &Init, queues: &Mutex<Queues>, out: &mut Outbox) -> bool {
        // RFC 7143 §4.2.2.1: nothing beyond MaxCmdSN, except for immediate delivery.
        let may_begin = self.bursts.is_empty() && self.window.has_room_for(self.cmd_sn);
        let request = {
            let mut queues = queues.lock();
            match queues.immediate.pop_front() {
                Some(pdu) => Some(Request::Pdu(pdu)),
                None if may_begin => queues.sends.pop_front(),
                None => None,
            }
        };
        match request {
            Some(Request::Command(command)) => self.execute(init, queues, command, out),
            Some(Request::Pdu(pdu)) => {
                self.frame_pdu(init, queues, pdu, out);
                true
            }
            None => self.frame_burst(init, queues, out),
        }
    }

    /// Builds the next PDU of the oldest burst. False if there is none.
    fn frame_burst(&mut self, init: &Init, queues: &Mutex<Queues>, out: &mut Outbox) -> bool {
        let exp_stat_sn = self.expected_status();
        let Some(burst) = self.bursts.front_mut() else {
            return false;
        };
        let pdu = burst.next(self.terms.max_send, exp_stat_sn);
        let (slot, is_over, was_asked) = (burst.slot, burst.left == 0, burst.ttt != NO_TAG);
        if is_over {
            self.bursts.pop_front();
            if let Some(command) = self.commands.get_mut(slot).filter(|_| was_asked) {
                command.bursts = command.bursts.saturating_sub(1);
            }
        }
        let range = (slot, pdu.offset, pdu.data_len);
        if let Err(refused) = self.frame_data(init, &pdu.emit(), range) {
            self.fail_gather(init, queues, &refused, out);
        }
        true
    }

    /// Builds a PDU of the consumer.
    pub(super) fn frame_pdu(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        pdu: Pdu,
        out: &mut Outbox,
    ) {
        let mut bhs = pdu.bhs;
        // No AHS, and a length below 2^24, so the TotalAHSLength byte is 0: checked when it was posted.
        let lengths = (pdu.data.len() as u32).to_be_bytes();
        put(&mut bhs, 4, &lengths);
        put(&mut bhs, 24, &self.cmd_sn.to_be_bytes());
        put(&mut bhs, 28, &self.expected_status().to_be_bytes());
        if let Ok(FromInitiator::TaskRequest(request)) = FromInitiator::parse(&bhs) {
            self.task_request = Some((request.itt, request.cmd_sn));
        }
        if !is_immediate(&bhs) {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        let digests = (self.terms.header_digest, self.terms.data_digest);
        self.frames
            .push(Frame::owned(&bhs, pdu.data.into_vec(), digests));
        let signaled = pdu.flags.contains(verbena_nic::Flags::SIGNALED);
        let ended = queues.lock().end_send();
        self.complete_send(init, pdu.id, Status::Success, ended && signaled, out);
    }

    /// Data that the target expects can no longer be read: the queue pair ends.
    pub(super) fn fail_gather(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        refused: &Refused,
        out: &mut Outbox,
    ) {
        let cause = format!("access to local memory failed: {}", refused.refusal);
        if let Some(command) = self.commands.remove(refused.slot) {
            self.fail_command(init, queues, &command, Status::LocProtErr, out);
        }
        self.end(init, queues, &cause, out);
    }
}

fn put(bhs: &mut Bhs, at: usize, bytes: &[u8]) {
    if let Some(place) = bhs.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
