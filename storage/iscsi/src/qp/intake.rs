//! The receiving side: headers are staged, data is read directly into the buffers of commands, and complete PDUs are processed. While
//! commands read, no more is read behind data than the next header, so that the data after it can be placed directly as well; data
//! that was read together with a header is copied and counted. A PDU longer than we declared ends the connection.

pub(super) mod state;

use parking_lot::Mutex;
use verbena_mem::{Refusal, Targets};
use verbena_nic::{Carrier, IoOutcome, Outbox, Receiving, Status};
use verbena_storage_wire::iscsi::{BHS_LEN, DIGEST_LEN, Lengths, digest, pad};
use verbena_wire::crc::{Crc32c, crc32c_wire};

use super::Init;
use super::inner::Inner;
use super::queues::Queues;
use super::segments;
use super::verdict::Verdict;
use state::{Body, STAGE_SIZE};

/// Why processing of the stage stopped.
enum Flow {
    /// More bytes are needed.
    More,
    /// A receive is needed, or its memory.
    Held,
    /// The queue pair is in `Err`.
    Ended,
}

impl Inner {
    pub(super) fn pull(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        carrier: &mut (impl Carrier + ?Sized),
        out: &mut Outbox,
    ) -> Receiving {
        if self.ended {
            return Receiving::Ended;
        }
        if self.held {
            match self.process_stage(init, queues, out) {
                Flow::More => {}
                Flow::Held => return Receiving::Held,
                Flow::Ended => return Receiving::Ended,
            }
        }
        match self.read(init, carrier) {
            Ok((asked, direct, IoOutcome::Bytes(n))) => {
                self.counters.bytes_in += n as u64;
                let at_once = n.min(direct as usize);
                self.intake.end += n - at_once;
                if let Err(refusal) = self.account_placed(init, at_once as u32) {
                    self.fail_placement(init, queues, &refusal, out);
                    return Receiving::Ended;
                }
                let flow = self.process_stage(init, queues, out);
                let drained = n < asked;
                // Also when more may be there: the caller may stop reading here and has to be woken for the rest.
                if drained || self.has_low_water() {
                    self.update_low_water(carrier);
                }
                match flow {
                    Flow::More if drained => Receiving::WouldBlock,
                    Flow::More => Receiving::Some(n),
                    Flow::Held => Receiving::Held,
                    Flow::Ended => Receiving::Ended,
                }
            }
            Ok((.., IoOutcome::WouldBlock)) => {
                self.update_low_water(carrier);
                Receiving::WouldBlock
            }
            Ok((.., IoOutcome::Eof)) => {
                self.handle_disconnect(init, queues, "the target closed the connection", out);
                Receiving::Ended
            }
            Ok((.., IoOutcome::Broken)) => {
                self.handle_disconnect(init, queues, "the connection to the target broke", out);
                Receiving::Ended
            }
            Ok((.., IoOutcome::Fault)) => {
                self.end(init, queues, "registered memory is not mapped", out);
                Receiving::Ended
            }
            Err(refusal) => {
                self.fail_placement(init, queues, &refusal, out);
                Receiving::Ended
            }
        }
    }

    /// Whether the `received` bytes just read are only the header of a PDU whose data will be placed.
    pub(super) fn is_at_data(&self, received: usize) -> bool {
        let is_next = |body: &Body| body.len > 0 && matches!(body.verdict, Verdict::DataIn { .. });
        received <= BHS_LEN + DIGEST_LEN && self.intake.body.as_ref().is_some_and(is_next)
    }

    /// Reads into the places of the next bytes. Returns how many were asked for, how many of those are data in buffers of a command, and the
    /// carrier's result.
    fn read(
        &mut self,
        init: &Init,
        carrier: &mut (impl Carrier + ?Sized),
    ) -> Result<(usize, u32, IoOutcome), Refusal> {
        let header = BHS_LEN + self.terms.header_digest_len();
        let ahead = self.stage_limit(header);
        let Inner {
            intake, commands, ..
        } = self;
        let mut targets = Targets::new();
        let mut direct = 0;
        if let Some(body) = &intake.body
            && let Verdict::DataIn { slot, pdu } = &body.verdict
            && let Some(command) = commands.get(*slot)
            && body.done < body.len
        {
            let range = (pdu.offset + body.done, body.len - body.done);
            direct = segments::targets(&init.ulp, &command.data, range, &mut targets)?;
            if direct == range.1 {
                let behind = body.trailer_len;
                targets.stage(intake.room(behind + header));
            }
        } else {
            targets.stage(intake.room(ahead));
        }
        let moved = carrier.read(&mut targets);
        Ok((targets.bytes(), direct, moved))
    }

    /// How many bytes may be staged next. While commands read: a header, or the rest of the PDU and a header.
    fn stage_limit(&self, header: usize) -> usize {
        if !self.commands.has_reads() {
            return STAGE_SIZE;
        }
        let staged = self.intake.staged();
        match &self.intake.body {
            Some(body) => {
                let rest = (body.len - body.done) as usize + body.trailer_len + header;
                rest.saturating_sub(staged.len())
            }
            None => {
                let ahs = staged.get(4).map_or(0, |words| usize::from(*words) * 4);
                (header + ahs).saturating_sub(staged.len())
            }
        }
    }

    /// Accounts for `n` bytes of data that were read into a command's buffers.
    fn account_placed(&mut self, init: &Init, n: u32) -> Result<(), Refusal> {
        let Some(body) = self.intake.body.as_mut().filter(|_| n > 0) else {
            return Ok(());
        };
        self.counters.placed += u64::from(n);
        if let (Some(crc), Verdict::DataIn { slot, pdu }) = (&mut body.crc, &body.verdict)
            && let Some(command) = self.commands.get(*slot)
        {
            let range = (pdu.offset + body.done, n);
            segments::sum(&init.ulp, &command.data, range, crc)?;
        }
        body.done += n;
        Ok(())
    }

    /// Processes everything that is staged.
    fn process_stage(&mut self, init: &Init, queues: &Mutex<Queues>, out: &mut Outbox) -> Flow {
        loop {
            let step = if self.intake.body.is_some() {
                self.take_body(init, queues, out)
            } else {
                self.take_head(init, queues, out)
            };
            if let Some(flow) = step {
                self.held = matches!(flow, Flow::Held);
                return flow;
            }
        }
    }

    /// Processes the next header. `None` on success.
    fn take_head(&mut self, init: &Init, queues: &Mutex<Queues>, out: &mut Outbox) -> Option<Flow> {
        let staged = self.intake.staged();
        let Some(bhs) = staged.first_chunk::<BHS_LEN>().copied() else {
            return Some(Flow::More);
        };
        let lengths = Lengths::of(&bhs);
        let head = BHS_LEN + usize::from(lengths.ahs);
        let digest_len = self.terms.header_digest_len();
        let Some(whole) = staged.get(..head + digest_len) else {
            return Some(Flow::More);
        };
        let (header, summed) = whole.split_at(head);
        if !summed.is_empty() && digest(header) != *summed {
            self.end(init, queues, "the digest of a header is wrong", out);
            return Some(Flow::Ended);
        }
        if lengths.data > self.terms.max_recv {
            let (got, most) = (lengths.data, self.terms.max_recv);
            let cause = format!("a PDU with {got} bytes of data, more than the {most} we declared");
            self.end(init, queues, &cause, out);
            return Some(Flow::Ended);
        }
        if self.claimed.is_none() {
            self.claimed = queues.lock().receives.take();
        }
        match &self.claimed {
            Some(receive) if !segments::wait(&init.ulp, &receive.scatter) => {}
            _ => return Some(Flow::Held),
        }
        self.counters.pdus_in += 1;
        let verdict = self.classify(init, &bhs);
        let summed = self.terms.data_digest && lengths.data > 0;
        self.intake.body = Some(Body {
            bhs,
            verdict,
            head: head as u32,
            len: lengths.data,
            done: 0,
            trailer_len: pad(lengths.data) as usize + if summed { DIGEST_LEN } else { 0 },
            crc: summed.then(Crc32c::new),
        });
        let goes_on = !verdict.delivers_whole()
            || self.with_staged(head, |inner, header| {
                inner.write_receive(init, queues, 0, header, out)
            });
        self.intake.take(head + digest_len);
        (!goes_on).then_some(Flow::Ended)
    }

    /// Passes the first `len` staged bytes to `work`.
    fn with_staged<R>(&mut self, len: usize, work: impl FnOnce(&mut Inner, &[u8]) -> R) -> R {
        let start = self.intake.start;
        let stage = core::mem::take(&mut self.intake.stage);
        let done = work(self, stage.get(start..start + len).unwrap_or_default());
        // Restored also if `work` ended the queue pair, which does not use the stage any more.
        self.intake.stage = stage;
        done
    }

    /// Consumes staged data of the PDU, and finishes the PDU when it is complete. `None` if there may be more to process.
    fn take_body(&mut self, init: &Init, queues: &Mutex<Queues>, out: &mut Outbox) -> Option<Flow> {
        let staged = self.intake.end - self.intake.start;
        let body = self.intake.body.as_mut()?;
        let n = staged.min((body.len - body.done) as usize);
        if n > 0 {
            let goes_on =
                self.with_staged(n, |inner, bytes| inner.take_data(init, queues, bytes, out));
            self.intake.take(n);
            return (!goes_on).then_some(Flow::Ended);
        }
        if body.done < body.len {
            return Some(Flow::More);
        }
        let staged = self.intake.staged();
        let body = self.intake.body.as_ref()?;
        let Some(behind) = staged.get(..body.trailer_len) else {
            return Some(Flow::More);
        };
        if let Some(mut crc) = body.crc.clone() {
            let (padding, summed) = behind.split_at(body.trailer_len - DIGEST_LEN);
            crc.update(padding);
            if crc32c_wire(crc.finish()) != *summed {
                self.end(init, queues, "the digest of data is wrong", out);
                return Some(Flow::Ended);
            }
        }
        let behind = body.trailer_len;
        let body = self.intake.body.take()?;
        self.intake.take(behind);
        let goes_on = self.finish_pdu(init, queues, &body, out);
        (!goes_on).then_some(Flow::Ended)
    }

    /// Copies data that was read together with a header to its destination. False if the queue pair has ended.
    fn take_data(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> bool {
        let Some(body) = &mut self.intake.body else {
            return true;
        };
        if let Some(crc) = &mut body.crc {
            crc.update(bytes);
        }
        let (at, verdict, head) = (body.done, body.verdict, body.head);
        body.done += bytes.len() as u32;
        let Verdict::DataIn { slot, pdu } = verdict else {
            return verdict == Verdict::Drop
                || self.write_receive(init, queues, head + at, bytes, out);
        };
        self.counters.copied += bytes.len() as u64;
        let Some(command) = self.commands.get(slot) else {
            return true;
        };
        let written = segments::write(&init.ulp, &command.data, pdu.offset + at, bytes);
        match written {
            Ok(()) => true,
            Err(refusal) => {
                self.fail_placement(init, queues, &refusal, out);
                false
            }
        }
    }

    /// The buffers of a command are no longer accessible as they were when it was executed: the queue pair ends.
    fn fail_placement(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        refusal: &Refusal,
        out: &mut Outbox,
    ) {
        let verdict = self.intake.body.as_ref().map(|body| body.verdict);
        if let Some(Verdict::DataIn { slot, .. }) = verdict
            && let Some(command) = self.commands.remove(slot)
        {
            self.fail_command(init, queues, &command, Status::LocProtErr, out);
        }
        let cause = format!("access to the buffers of a command failed: {refusal}");
        self.end(init, queues, &cause, out);
    }
}
