//! Sequence numbers of one connection (RFC 7143 §4.2.2): CmdSN, the command window, ExpStatSN. No command is sent outside the target's
//! window, and a SCSI Response with an unexpected StatSN is an error.

use verbena_storage_wire::iscsi::{Bhs, FromTarget, NO_TAG, Window, is_immediate, sn_lt};

/// Position of CmdSN and ExpStatSN in a request, and of ExpCmdSN and MaxCmdSN in a response.
const CMD_SN: usize = 24;
const EXP_STAT_SN: usize = 28;
const EXP_CMD_SN: usize = 28;
const MAX_CMD_SN: usize = 32;

/// Sequence numbers of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct SequenceNumbers {
    /// CmdSN of the next command.
    cmd_sn: u32,
    window: Window,
    /// ExpStatSN; `None` before the first status, which may have any.
    exp_stat_sn: Option<u32>,
}

impl SequenceNumbers {
    pub(super) fn new() -> SequenceNumbers {
        // RFC 7143 §11.12.8: the first login request sets the initial CmdSN.
        SequenceNumbers {
            cmd_sn: 1,
            window: Window {
                exp_cmd_sn: 1,
                max_cmd_sn: 1,
            },
            exp_stat_sn: None,
        }
    }

    /// Whether a request may be sent. RFC 7143 §4.2.2.1: nothing beyond MaxCmdSN, except for immediate delivery.
    pub(super) fn may_send(&self, bhs: &Bhs) -> bool {
        is_immediate(bhs) || self.window.has_room_for(self.cmd_sn)
    }

    /// Fills in the sequence numbers of a request that is sent now. Returns its CmdSN.
    pub(super) fn stamp(&mut self, bhs: &mut Bhs) -> u32 {
        let cmd_sn = self.cmd_sn;
        write_word(bhs, CMD_SN, cmd_sn);
        write_word(bhs, EXP_STAT_SN, self.exp_stat_sn());
        if !is_immediate(bhs) {
            self.cmd_sn = cmd_sn.wrapping_add(1);
        }
        cmd_sn
    }

    /// The ExpStatSN of a request that is sent now.
    pub(super) fn exp_stat_sn(&self) -> u32 {
        self.exp_stat_sn.unwrap_or(0)
    }

    /// Evaluates the sequence numbers of a PDU. The error is the expected and the received StatSN of a response out of sequence.
    pub(super) fn update(&mut self, bhs: &Bhs, pdu: &FromTarget) -> Result<(), (u32, u32)> {
        self.window = self.window.advanced_to(Window {
            exp_cmd_sn: read_word(bhs, EXP_CMD_SN),
            max_cmd_sn: read_word(bhs, MAX_CMD_SN),
        });
        let Some(got) = status_of(pdu) else {
            return Ok(());
        };
        // RFC 7143 §4.2.2.2: on a single reliable connection StatSN is in sequence.
        if let (FromTarget::ScsiResponse(_), Some(expected)) = (pdu, self.exp_stat_sn)
            && expected != got
        {
            return Err((expected, got));
        }
        let next = got.wrapping_add(1);
        if self.exp_stat_sn.is_none_or(|before| sn_lt(before, next)) {
            self.exp_stat_sn = Some(next);
        }
        Ok(())
    }
}

/// The StatSN of a PDU, if it consumes one.
fn status_of(pdu: &FromTarget) -> Option<u32> {
    match pdu {
        // An unsolicited NOP-In carries the next StatSN without consuming it.
        FromTarget::NopIn(pdu) => (pdu.itt != NO_TAG).then_some(pdu.stat_sn),
        FromTarget::ScsiResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::TaskResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::LoginResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::TextResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::LogoutResponse(pdu) => Some(pdu.stat_sn),
        FromTarget::AsyncMessage(pdu) => Some(pdu.stat_sn),
        FromTarget::Reject(pdu) => Some(pdu.stat_sn),
        FromTarget::DataIn(_) | FromTarget::R2t(_) => None,
    }
}

fn write_word(bhs: &mut Bhs, at: usize, word: u32) {
    if let Some(to) = bhs.get_mut(at..at + 4) {
        to.copy_from_slice(&word.to_be_bytes());
    }
}

/// A word of a header.
pub(super) fn read_word(bhs: &Bhs, at: usize) -> u32 {
    let bytes = bhs.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.unwrap_or_default())
}
