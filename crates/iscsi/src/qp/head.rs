//! What a header means: the seven checks of M12, and those of a response.
//! It promises that nothing is touched for a PDU that fails one: it is passed up whole, or dropped if it is a response.
//! It refuses to act: that is done when the PDU is complete.

use verbena_mem::{Access, Reach};
use verbena_wire::Stag;
use verbena_wire::iscsi::{Bhs, DataIn, FromTarget, NO_TAG, R2t, ScsiResponse};

use super::Init;
use super::command::Command;
use super::inner::{Inner, status_of};
use crate::wr::Direction;

/// What becomes of a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its data goes to the buffers of the command in this slot, its header up.
    DataIn { slot: u32, pdu: DataIn },
    /// Data of the command in this slot leaves, its header goes up.
    R2t { slot: u32, pdu: R2t },
    /// The command in this slot ends, and all of the PDU goes up.
    Response { slot: u32, stat_sn: u32 },
    /// All of it goes up.
    Up,
    /// Nobody hears of it.
    Drop,
}

impl Verdict {
    /// Its header goes up before its data comes.
    pub(super) fn goes_up_whole(self) -> bool {
        matches!(self, Verdict::Up | Verdict::Response { .. })
    }
}

impl Inner {
    /// Judges a PDU by its header.
    pub(super) fn judge(&mut self, init: &Init, bhs: &Bhs) -> Verdict {
        let Ok(pdu) = FromTarget::parse(bhs) else {
            return Verdict::Up;
        };
        self.note_window(bhs);
        if !self.full_feature {
            return self.up(&pdu);
        }
        match pdu {
            FromTarget::DataIn(data) => self.judge_data_in(init, data),
            FromTarget::R2t(r2t) => match self.check_r2t(init, &r2t) {
                Some(slot) => Verdict::R2t { slot, pdu: r2t },
                None => self.refused(),
            },
            FromTarget::ScsiResponse(response) => self.check_response(init, &response),
            pdu => self.up(&pdu),
        }
    }

    /// M12: one with status is a response as well, and nothing of it is placed if it is out of sequence.
    fn judge_data_in(&mut self, init: &Init, pdu: DataIn) -> Verdict {
        let in_sequence = pdu.status.is_none() || self.is_next_status(pdu.stat_sn);
        match self.check_data_in(init, &pdu) {
            Some(slot) if in_sequence => Verdict::DataIn { slot, pdu },
            Some(_) => self.dropped(),
            None => {
                if pdu.status.is_some() && in_sequence {
                    // Its number has come, whatever else is wrong with it: the next one is the next.
                    self.note_status(pdu.stat_sn);
                }
                self.refused()
            }
        }
    }

    fn dropped(&mut self) -> Verdict {
        self.counters.dropped += 1;
        Verdict::Drop
    }

    fn refused(&mut self) -> Verdict {
        self.counters.refused += 1;
        Verdict::Up
    }

    fn up(&mut self, pdu: &FromTarget) -> Verdict {
        if let Some(stat_sn) = status_of(pdu) {
            // M12: it goes up all the same; a gap before it is remembered.
            let _ = self.is_next_status(stat_sn);
            self.note_status(stat_sn);
        }
        Verdict::Up
    }

    fn check_data_in(&self, init: &Init, pdu: &DataIn) -> Option<u32> {
        let range = (pdu.offset, pdu.data_len);
        let (slot, command) = self.reached(init, pdu.itt, range, Access::REMOTE_WRITE)?;
        // M12, check seven: the command goes this way.
        (command.direction == Direction::Read).then_some(slot)
    }

    fn check_r2t(&self, init: &Init, pdu: &R2t) -> Option<u32> {
        let range = (pdu.offset, pdu.len);
        let (slot, command) = self.reached(init, pdu.itt, range, Access::REMOTE_READ)?;
        // RFC 7143 §13.13, §13.17: no more at once, and no longer, than was agreed on.
        let agreed = pdu.len <= self.terms.max_burst && command.bursts < self.terms.max_r2t;
        // RFC 7143 §11.8.5: it has a tag of the target's, which tells its data from what nobody asked for.
        let tagged = pdu.ttt != NO_TAG;
        (command.direction == Direction::Write && agreed && tagged).then_some(slot)
    }

    /// Six of the seven checks of M12: valid, type, domain, instance, bounds, right.
    fn reached(
        &self,
        init: &Init,
        itt: u32,
        (offset, len): (u32, u32),
        needs: Access,
    ) -> Option<(u32, &Command)> {
        let upper = &init.upper;
        let reach = Reach {
            stag: Stag::new(itt),
            at: offset.into(),
            len: len.into(),
            pd: upper.pd,
            qp: upper.number,
            needs,
        };
        self.own(init, upper.tpt.reach_command(&reach).ok()?)
    }

    /// M12: stream, sequence and tag of a response.
    fn check_response(&mut self, init: &Init, pdu: &ScsiResponse) -> Verdict {
        let found = init
            .upper
            .tpt
            .find_command(Stag::new(pdu.itt), init.upper.pd);
        let own = found.ok().and_then(|wqe| self.own(init, wqe));
        let slot = own.map(|(slot, _)| slot);
        let stat_sn = pdu.stat_sn;
        if !self.is_next_status(stat_sn) {
            return self.dropped();
        }
        match slot {
            Some(slot) => Verdict::Response { slot, stat_sn },
            None => {
                // Its number has come, whatever it names.
                self.note_status(stat_sn);
                self.dropped()
            }
        }
    }

    /// The command that an entry leads to, if it is one of this queue pair: domains are shared, streams are not.
    fn own(&self, init: &Init, wqe: u64) -> Option<(u32, &Command)> {
        let slot = wqe as u32;
        let ours = wqe >> 32 == u64::from(init.upper.number);
        let command = self.commands.get(slot).filter(|_| ours)?;
        Some((slot, command))
    }
}
