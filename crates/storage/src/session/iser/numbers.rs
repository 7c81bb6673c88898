//! The numbers of one connection (RFC 7143 §4.2.2): which command comes next, which ones the target takes, which status came last.
//! They promise that no command leaves outside the target's window and that a status out of its turn is noticed. PDUs and tasks are
//! not known here.

use verbena_wire::iscsi::{Bhs, FromTarget, NO_TAG, Window, is_immediate, sn_lt};

/// Where CmdSN and ExpStatSN stand in a request, ExpCmdSN and MaxCmdSN in an answer.
const CMD_SN: usize = 24;
const EXP_STAT_SN: usize = 28;
const EXP_CMD_SN: usize = 28;
const MAX_CMD_SN: usize = 32;

/// The numbers of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// The next command's.
    cmd_sn: u32,
    window: Window,
    /// The next status's; none before the first one, which may be any.
    exp_stat_sn: Option<u32>,
}

impl Numbers {
    pub(super) fn new() -> Numbers {
        // RFC 7143 §11.12.8: the first login says where numbers begin.
        Numbers {
            cmd_sn: 1,
            window: Window {
                exp_cmd_sn: 1,
                max_cmd_sn: 1,
            },
            exp_stat_sn: None,
        }
    }

    /// Whether a request may leave. RFC 7143 §4.2.2.1: nothing beyond the window, but for immediate delivery.
    pub(super) fn admit(&self, bhs: &Bhs) -> bool {
        is_immediate(bhs) || self.window.has_room_for(self.cmd_sn)
    }

    /// Numbers a request that leaves now.
    pub(super) fn stamp(&mut self, bhs: &mut Bhs) {
        put(bhs, CMD_SN, self.cmd_sn);
        put(bhs, EXP_STAT_SN, self.exp_stat_sn.unwrap_or(0));
        if !is_immediate(bhs) {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
    }

    /// Notes what an answer says; the number that was expected and the one that came if a response is out of its turn.
    pub(super) fn note(&mut self, bhs: &Bhs, pdu: &FromTarget) -> Result<(), (u32, u32)> {
        self.window = self.window.after(Window {
            exp_cmd_sn: word(bhs, EXP_CMD_SN),
            max_cmd_sn: word(bhs, MAX_CMD_SN),
        });
        let Some(got) = status_of(pdu) else {
            return Ok(());
        };
        // RFC 7143 §4.2.2.2: on one connection that loses nothing, statuses come in their order.
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

/// The status number of a PDU, if it has one of its own.
fn status_of(pdu: &FromTarget) -> Option<u32> {
    match pdu {
        // A ping of the target has the number of the status to come.
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

fn put(bhs: &mut Bhs, at: usize, word: u32) {
    if let Some(to) = bhs.get_mut(at..at + 4) {
        to.copy_from_slice(&word.to_be_bytes());
    }
}

/// A word of a header.
pub(super) fn word(bhs: &Bhs, at: usize) -> u32 {
    let bytes = bhs.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.unwrap_or_default())
}
