//! Everything of a queue pair that only whoever runs it touches: commands, the stream in both directions, sequence numbers.
//! It promises one owner at a time, which the desk sees to, and sequence numbers as RFC 7143 §4.2.2 has them.
//! It refuses to hold anything that posting needs; that is in the queues.

use std::collections::VecDeque;

use verbena_nic::receive::Receive;
use verbena_wire::iscsi::{Bhs, FromTarget, NO_TAG, Window, sn_lt};

use super::burst::Burst;
use super::command::Commands;
use super::frame::Frames;
use super::intake::Intake;
use crate::terms::Terms;

/// What a queue pair has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes that came, heads included.
    pub bytes_in: u64,
    /// Bytes that left, heads included.
    pub bytes_out: u64,
    /// Bytes of data that were read straight into buffers of commands.
    pub placed: u64,
    /// Bytes of data for such buffers that were copied there: they had come along with a head.
    pub copied: u64,
    /// Bytes of data that were sent straight from buffers.
    pub gathered: u64,
    /// Commands sent.
    pub commands: u64,
    /// PDUs that came.
    pub pdus_in: u64,
    /// PDUs that left.
    pub pdus_out: u64,
    /// R2Ts and Data-Ins that failed a check and were passed up whole.
    pub refused: u64,
    /// Responses that were dropped: out of sequence, or for no command.
    pub dropped: u64,
}

/// Statuses that a target numbered and we did not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The number that comes next.
    pub expected: u32,
    /// The one that came.
    pub got: u32,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) terms: Terms,
    /// Login is over.
    pub(super) full_feature: bool,
    pub(super) commands: Commands,
    /// What the target asked for, in the order it did, and unsolicited data of the last command.
    pub(super) bursts: VecDeque<Burst>,
    pub(super) frames: Frames,
    pub(super) intake: Intake,
    /// A receive for the PDU that is coming.
    pub(super) claimed: Option<Receive>,
    /// The next request's number.
    pub(super) cmd_sn: u32,
    pub(super) window: Window,
    /// Tag and number of the last request about tasks: what has a smaller number is before it.
    pub(super) task_request: Option<(u32, u32)>,
    /// The next status; none before the first one.
    pub(super) exp_stat_sn: Option<u32>,
    /// The first gap in them.
    pub(super) gap: Option<Gap>,
    /// What is staged waits for a receive, or for its memory.
    pub(super) held: bool,
    /// The queue pair is in `Err`, for good: looked at here, it takes no lock.
    pub(super) ended: bool,
    /// Bytes that the carrier was told to expect, last.
    pub(super) expected: usize,
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
            // RFC 7143 §11.12.8: the first login says where numbers begin; login requests do not advance them.
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
            expected: 1,
            cause: None,
            counters: Counters::default(),
        }
    }

    pub(super) fn begin(&mut self, terms: Terms) {
        self.terms = terms;
        self.full_feature = true;
    }

    /// What the next header tells the target of the statuses that came.
    pub(super) fn expected_status(&self) -> u32 {
        self.exp_stat_sn.unwrap_or(0)
    }

    /// RFC 7143 §4.2.2.1: every PDU of a target has its window.
    pub(super) fn note_window(&mut self, bhs: &Bhs) {
        let word = |at: usize| {
            let bytes = bhs.get(at..at + 4).and_then(|b| b.try_into().ok());
            u32::from_be_bytes(bytes.unwrap_or_default())
        };
        let news = Window {
            exp_cmd_sn: word(28),
            max_cmd_sn: word(32),
        };
        self.window = self.window.after(news);
    }

    /// RFC 7143 §4.2.2.2: this is the next status number. The first one may be any.
    pub(super) fn is_next_status(&mut self, stat_sn: u32) -> bool {
        let Some(expected) = self.exp_stat_sn else {
            return true;
        };
        if self.full_feature && sn_lt(expected, stat_sn) {
            // RFC 7143 §7.9: at level 0 what is missing cannot be asked for, and will not come by itself.
            self.gap.get_or_insert(Gap {
                expected,
                got: stat_sn,
            });
        }
        expected == stat_sn
    }

    /// A status came. Never backwards: what came is not asked for again.
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

/// The status number of a PDU that is no answer to a command, if it has one of its own.
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
