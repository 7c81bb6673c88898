//! Task management (RFC 7143 §11.5, §11.6): functions that act on other tasks, and their outcomes. Unknown functions and
//! outcomes are kept as numbers.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{FINAL, Raw, Tag, flags};
use super::{Bhs, Lun, Opcode, Window};
use crate::coded::coded;

const FUNCTION: u8 = 0x7f;

coded! {
    /// Task management function, seven bits.
    TaskFunction: u8 {
        /// Abort the referenced task.
        AbortTask = 1 "abort-task",
        /// Abort all tasks of this initiator at the logical unit.
        AbortTaskSet = 2 "abort-task-set",
        /// Clear the auto contingent allegiance condition.
        ClearAca = 3 "clear-aca",
        /// Abort all tasks of all initiators at the logical unit.
        ClearTaskSet = 4 "clear-task-set",
        /// Reset the logical unit.
        LogicalUnitReset = 5 "logical-unit-reset",
        /// Reset the target.
        TargetWarmReset = 6 "target-warm-reset",
        /// Reset the target and close its connections.
        TargetColdReset = 7 "target-cold-reset",
        /// Reassign the referenced task to this connection.
        TaskReassign = 8 "task-reassign",
    }
}

coded! {
    /// The outcome of a function.
    TaskOutcome: u8 {
        /// Function complete.
        Complete = 0 "complete",
        /// The task does not exist.
        NoTask = 1 "no-task",
        /// The logical unit does not exist.
        NoLun = 2 "no-lun",
        /// The task is still allegiant to another connection.
        StillAllegiant = 3 "still-allegiant",
        /// Reassignment is not supported.
        ReassignUnsupported = 4 "reassign-unsupported",
        /// The function is not supported.
        Unsupported = 5 "unsupported",
        /// The initiator is not authorised.
        NotAuthorised = 6 "not-authorised",
        /// Function rejected.
        Rejected = 255 "rejected",
    }
}

/// Task Management Function Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskRequest {
    /// The I bit, usually set.
    pub immediate: bool,
    /// The function.
    pub function: TaskFunction,
    /// The logical unit.
    pub lun: Lun,
    /// Initiator task tag of the request.
    pub itt: u32,
    /// Initiator task tag of the referenced task, or [`NO_TAG`](super::NO_TAG).
    pub reference: u32,
    /// CmdSN.
    pub cmd_sn: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
    /// CmdSN of the referenced task.
    pub ref_cmd_sn: u32,
    /// The next DataSN that a reassigned task expects.
    pub exp_data_sn: u32,
}

impl TaskRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<TaskRequest, Malformed> {
        let raw = Raw::read_bare(bhs, Opcode::TaskRequest)?;
        Ok(TaskRequest {
            immediate: raw.is_immediate(),
            function: TaskFunction::from_code(raw.flags & FUNCTION),
            lun: raw.lun(),
            itt: raw.itt.get(),
            reference: raw.w20.get(),
            cmd_sn: raw.w24.get(),
            exp_stat_sn: raw.w28.get(),
            ref_cmd_sn: raw.w32.get(),
            exp_data_sn: raw.w36.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            flags: FINAL | self.function.code() & FUNCTION,
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.reference),
            w24: U32::new(self.cmd_sn),
            w28: U32::new(self.exp_stat_sn),
            w32: U32::new(self.ref_cmd_sn),
            w36: U32::new(self.exp_data_sn),
            ..Raw::new(Opcode::TaskRequest)
        }
        .immediate(self.immediate)
        .emit()
    }
}

impl fmt::Display for TaskRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} lun={} itt={} reference={} cmdsn={} expstatsn={} refcmdsn={} expdatasn={}",
            Opcode::TaskRequest,
            self.function,
            self.lun,
            Tag(self.itt),
            Tag(self.reference),
            self.cmd_sn,
            self.exp_stat_sn,
            self.ref_cmd_sn,
            self.exp_data_sn
        )?;
        flags(f, &[(self.immediate, "immediate")])
    }
}

/// Task Management Function Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskResponse {
    /// The outcome.
    pub response: TaskOutcome,
    /// Initiator task tag of the request.
    pub itt: u32,
    /// StatSN.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
}

impl TaskResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<TaskResponse, Malformed> {
        let raw = Raw::read_bare(bhs, Opcode::TaskResponse)?;
        Ok(TaskResponse {
            response: TaskOutcome::from_code(raw.b2),
            itt: raw.itt.get(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            b2: self.response.code(),
            itt: U32::new(self.itt),
            w24: U32::new(self.stat_sn),
            ..Raw::new(Opcode::TaskResponse)
        }
        .with_window(self.window)
        .emit()
    }
}

impl fmt::Display for TaskResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} itt={} statsn={} {}",
            Opcode::TaskResponse,
            self.response,
            Tag(self.itt),
            self.stat_sn,
            self.window
        )
    }
}
