//! Execution of a command at the head of the send queue (M12): four checks, a table entry under its task tag, and its PDU. Nothing is
//! sent of a command that fails a check; then the send queue stops and can be resumed, or the connection ends. A command whose memory is
//! pending waits, and all requests behind it (V5).
//!
//! | after a failure | option 1 (reactive) | option 2 (anticipatory) |
//! | --- | --- | --- |
//! | state | `Sqe` | `Err` |
//! | the command | completes with its status | the same |
//! | requests behind it, posted already or later | flushed | flushed |
//! | PDUs for immediate delivery, R2Ts, receives, earlier commands | continue | flushed |

use parking_lot::Mutex;
use verbena_mem::{Access, Command as Entry, Misuse, Refusal};
use verbena_nic::{Event, OnFailure, Outbox, QpState, Status};
use verbena_storage_wire::iscsi::{Bhs, NO_TAG, ScsiCommand};
use verbena_storage_wire::scsi::{self, DeviceType};
use verbena_wire::Stag;

use super::Init;
use super::burst::Burst;
use super::command::Command;
use super::frame::{Frame, Refused};
use super::inner::Inner;
use super::queues::{Queues, Request};
use super::segments;
use crate::wr::Direction;

/// Why a command is not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExecuteError {
    #[error("the queue pair is not in iSCSI mode: login is not complete")]
    Mode,
    #[error("a device of type {device} has no command {opcode:#04x}")]
    Opcode { device: DeviceType, opcode: u8 },
    #[error("its data segments wrap")]
    Wrap,
    #[error("it has data and no direction")]
    Direction,
    #[error("access to its memory failed: {0}")]
    Memory(Refusal),
    #[error("registration of its memory failed: {0}")]
    Table(Misuse),
}

impl ExecuteError {
    fn status(self) -> Status {
        match self {
            ExecuteError::Mode
            | ExecuteError::Opcode { .. }
            | ExecuteError::Wrap
            | ExecuteError::Direction => Status::LocQpOpErr,
            ExecuteError::Memory(_) => Status::LocProtErr,
            ExecuteError::Table(_) => Status::MwBindErr,
        }
    }
}

impl Inner {
    /// Executes the first command of the send queue. False if it waits there for its memory.
    pub(super) fn execute(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        mut command: Command,
        out: &mut Outbox,
    ) -> bool {
        match self.check(init, &mut command) {
            Ok(stag) => {
                self.frame_command(init, queues, command, stag, out);
                true
            }
            Err(ExecuteError::Memory(Refusal::Pending { stag })) => {
                let ulp = &init.ulp;
                queues.lock().sends.push_front(Request::Command(command));
                // `wait` returns false if the entry became ready in between: try again.
                !ulp.tpt.wait(stag, ulp.number)
            }
            Err(unfit) => {
                self.fail_execution(init, queues, &command, unfit, out);
                true
            }
        }
    }

    /// The checks of M12, and registration.
    fn check(&self, init: &Init, command: &mut Command) -> Result<Stag, ExecuteError> {
        if !self.full_feature {
            return Err(ExecuteError::Mode);
        }
        let (device, [opcode, ..]) = (command.device, command.cdb);
        if !scsi::is_valid_for(device, opcode) {
            return Err(ExecuteError::Opcode { device, opcode });
        }
        for sge in &command.data {
            let whole = sge.addr.checked_add(sge.len.into());
            command.len = whole
                .and_then(|_| command.len.checked_add(sge.len))
                .ok_or(ExecuteError::Wrap)?;
        }
        let (needs, access) = match command.direction {
            Direction::None if command.len > 0 => return Err(ExecuteError::Direction),
            Direction::None => (Access::LOCAL_READ, Access::NONE),
            Direction::Read => (Access::LOCAL_WRITE, Access::REMOTE_WRITE),
            Direction::Write => (Access::LOCAL_READ, Access::REMOTE_READ),
        };
        let ulp = &init.ulp;
        let checked = segments::check(ulp, &command.data, needs);
        checked
            .inspect_err(|_| command.len = 0)
            .map_err(ExecuteError::Memory)?;
        let entry = Entry {
            wqe: u64::from(ulp.number) << 32 | u64::from(self.commands.next_slot()),
            len: command.len,
            pd: ulp.pd,
            access,
        };
        ulp.tpt.register_command(entry).map_err(ExecuteError::Table)
    }

    /// Builds the command PDU with immediate data, and queues unsolicited Data-Out (RFC 7143 §11.3).
    fn frame_command(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        mut command: Command,
        stag: Stag,
        out: &mut Outbox,
    ) {
        let (terms, slot) = (self.terms, self.commands.next_slot());
        let writes = command.direction == Direction::Write;
        let (immediate, unsolicited) = match writes {
            true => terms.unsolicited(command.len),
            false => (0, 0),
        };
        let behind = immediate < unsolicited;
        let pdu = ScsiCommand {
            immediate: false,
            is_final: !behind,
            read: command.direction == Direction::Read,
            write: writes,
            attribute: command.attribute,
            ahs_len: 0,
            data_len: immediate,
            lun: command.lun,
            itt: stag.get(),
            expected_len: command.len,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.expected_status(),
            cdb: command.cdb,
        };
        command.cmd_sn = self.cmd_sn;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.counters.commands += 1;
        command.stag = Some(stag);
        if behind {
            // RFC 7143 §13.17: the implied R2T of unsolicited data is not counted.
            self.bursts.push_front(Burst {
                slot,
                itt: stag.get(),
                ttt: NO_TAG,
                lun: command.lun,
                offset: immediate,
                left: unsolicited - immediate,
                data_sn: 0,
            });
        }
        self.commands.add(command);
        if let Err(refused) = self.frame_data(init, &pdu.emit(), (slot, 0, immediate)) {
            self.fail_gather(init, queues, &refused, out);
        }
    }

    /// Queues a PDU with data of a command.
    pub(super) fn frame_data(
        &mut self,
        init: &Init,
        bhs: &Bhs,
        (slot, offset, len): (u32, u32, u32),
    ) -> Result<(), Refused> {
        let terms = &self.terms;
        let digests = (terms.header_digest, terms.data_digest);
        let frame = if len == 0 {
            Frame::owned(bhs, Vec::new(), digests)
        } else if terms.data_digest {
            let mut copy = Vec::with_capacity(len as usize);
            if let Some(command) = self.commands.get(slot) {
                segments::append(&init.ulp, &command.data, (offset, len), &mut copy)
                    .map_err(|refusal| Refused { slot, refusal })?;
            }
            Frame::owned(bhs, copy, digests)
        } else {
            Frame::placed(bhs, (slot, offset, len), terms.header_digest)
        };
        self.frames.push(frame);
        Ok(())
    }

    /// A command cannot be executed: options 1 and 2.
    fn fail_execution(
        &mut self,
        init: &Init,
        queues: &Mutex<Queues>,
        command: &Command,
        unfit: ExecuteError,
        out: &mut Outbox,
    ) {
        let cause = format!("command {} was not executed: {unfit}", command.id);
        let ended = queues.lock().end_command();
        self.complete_send(init, command.id, unfit.status(), ended, out);
        match init.on_failure {
            OnFailure::Reactive => {
                self.cause = Some(cause);
                let stopped = {
                    let mut queues = queues.lock();
                    queues.state = QpState::Sqe;
                    core::mem::take(&mut queues.sends)
                };
                for request in stopped {
                    self.flush(init, queues, &request, out);
                }
                out.push(Event::QpRequest {
                    qp: init.ulp.number,
                });
            }
            OnFailure::Anticipatory => self.end(init, queues, &cause, out),
        }
    }
}
