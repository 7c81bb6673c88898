//! The part of a queue pair that is accessed under the combining lock only: outstanding commands, both directions of the stream, and
//! the sequence numbers of RFC 7143 §4.2.2. What posting needs is in `Queues`, behind a lock of its own.

use std::collections::VecDeque;

use verbena_nic::receive::Receive;
use verbena_storage_wire::iscsi::{Bhs, FromTarget, NO_TAG, Window, sn_lt};

use super::burst::Burst;
use super::commands::Commands;
use super::frame::Frames;
use super::intake::state::Intake;
use crate::terms::Terms;

/// Counters of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes received, headers included.
    pub bytes_in: u64,
    /// Bytes sent, headers included.
    pub bytes_out: u64,
    /// Bytes of data that were read directly into buffers of commands.
    pub placed: u64,
    /// Bytes of data that were copied into such buffers, because they were read together with a header.
    pub copied: u64,
    /// Bytes of data that were sent directly from buffers.
    pub gathered: u64,
    /// Commands sent.
    pub commands: u64,
    /// PDUs received.
    pub pdus_in: u64,
    /// PDUs sent.
    pub pdus_out: u64,
    /// R2Ts and Data-Ins that failed a check and were delivered whole.
    pub refused: u64,
    /// Responses that were dropped: StatSN out of sequence, or no such command.
    pub dropped: u64,
}

/// Statuses that the target numbered and we did not receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The StatSN that was expected.
    pub expected: u32,
    /// The StatSN received.
    pub got: u32,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) terms: Terms,
    /// The login is complete.
    pub(super) full_feature: bool,
    pub(super) commands: Commands,
    /// Data requested by R2Ts, in the order of their arrival, and unsolicited data of the last command.
    pub(super) bursts: VecDeque<Burst>,
    pub(super) frames: Frames,
    pub(super) intake: Intake,
    /// The receive for the PDU that is being read.
    pub(super) claimed: Option<Receive>,
    /// CmdSN of the next request.
    pub(super) cmd_sn: u32,
    pub(super) window: Window,
    /// Tag and CmdSN of the last task management request.
    pub(super) task_request: Option<(u32, u32)>,
    /// ExpStatSN; `None` before the first status.
    pub(super) exp_stat_sn: Option<u32>,
    /// The first gap in StatSN.
    pub(super) gap: Option<Gap>,
    /// Staged bytes wait for a receive, or for its memory.
    pub(super) held: bool,
    /// The queue pair is in `Err`: a copy of that fact which is read without the lock of the queues.
    pub(super) ended: bool,
    /// The carrier's low-water mark as last set, in bytes.
    pub(super) low_water: usize,
    pub(super) cause: Option<String>,
    pub(super) counters: Counters,
}

impl Inner {
    pub(super) fn new() -> Inner {
        Inner {
            terms: Terms::DEFAULT,
            full_feature: false,
            commands: Commands::default(),
            bursts: VecDeque::new(),
            frames: Frames::default(),
            intake: Intake::new(),
            claimed: None,
            // RFC 7143 §11.12.8: the first login request sets the initial CmdSN; login requests do not advance it.
            cmd_sn: 1,
            window: Window {
                exp_cmd_sn: 1,
                max_cmd_sn: 1,
            },
            task_request: None,
            exp_stat_sn: None,
            gap: None,
            held: false,
            ended: false,
            low_water: 1,
            cause: None,
            counters: Counters::default(),
        }
    }

    pub(super) fn begin(&mut self, terms: Terms) {
        self.terms = terms;
        self.full_feature = true;
    }

    /// ExpStatSN for the next header.
    pub(super) fn expected_status(&self) -> u32 {
        self.exp_stat_sn.unwrap_or(0)
    }

    /// RFC 7143 §4.2.2.1: every PDU of a target carries ExpCmdSN and MaxCmdSN.
    pub(super) fn note_window(&mut self, bhs: &Bhs) {
        let word = |at: usize| {
            let bytes = bhs.get(at..at + 4).and_then(|b| b.try_into().ok());
            u32::from_be_bytes(bytes.unwrap_or_default())
        };
        let news = Window {
            exp_cmd_sn: word(28),
            max_cmd_sn: word(32),
        };
        self.window = self.window.advanced_to(news);
    }

    /// RFC 7143 §4.2.2.2: whether this is the expected StatSN. Any is accepted as the first.
    pub(super) fn is_next_status(&mut self, stat_sn: u32) -> bool {
        let Some(expected) = self.exp_stat_sn else {
            return true;
        };
        if self.full_feature && sn_lt(expected, stat_sn) {
            // RFC 7143 §7.9: at error recovery level 0 a missing status cannot be requested again.
            self.gap.get_or_insert(Gap {
                expected,
                got: stat_sn,
            });
        }
        expected == stat_sn
    }

    /// Advances ExpStatSN, never backwards.
    pub(super) fn note_status(&mut self, stat_sn: u32) {
        let next = stat_sn.wrapping_add(1);
        if self
            .exp_stat_sn
            .is_none_or(|expected| sn_lt(expected, next))
        {
            self.exp_stat_sn = Some(next);
        }
    }
}

/// The StatSN of a PDU that does not answer a SCSI command, if it consumes one.
pub(super) fn status_of(pdu: &FromTarget) -> Option<u32> {
    match pdu {
        FromTarget::NopIn(nop) => (nop.itt != NO_TAG).then_some(nop.stat_sn),
        FromTarget::TaskResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::LoginResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::TextResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::LogoutResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::AsyncMessage(pdu) => Some(pdu.stat_sn),
        FromTarget::Reject(pdu) => Some(pdu.stat_sn),
        FromTarget::ScsiResponse(_) | FromTarget::DataIn(_) | FromTarget::R2t(_) => None,
    }
}
