//! Validation of a received header: the seven checks of M12 for R2T and Data-In, and those of a response. Checks only; the PDU is
//! processed once it is complete. A PDU that fails is delivered whole, or dropped if it is a response.

use verbena_mem::{Access, MemAccess};
use verbena_storage_wire::iscsi::{Bhs, DataIn, FromTarget, NO_TAG, R2t, ScsiResponse};
use verbena_wire::Stag;

use super::Init;
use super::command::Command;
use super::inner::{Inner, status_of};
use super::verdict::Verdict;
use crate::wr::Direction;

impl Inner {
    /// Decides on a PDU by its header.
    pub(super) fn classify(&mut self, init: &Init, bhs: &Bhs) -> Verdict {
        let Ok(pdu) = FromTarget::parse(bhs) else {
            return Verdict::Deliver;
        };
        self.note_window(bhs);
        if !self.full_feature {
            return self.deliver_pdu(&pdu);
        }
        match pdu {
            FromTarget::DataIn(data) => self.classify_data_in(init, data),
            FromTarget::R2t(r2t) => match self.check_r2t(init, &r2t) {
                Some(slot) => Verdict::R2t { slot, pdu: r2t },
                None => self.refuse_pdu(),
            },
            FromTarget::ScsiResponse(response) => self.check_response(init, &response),
            pdu => self.deliver_pdu(&pdu),
        }
    }

    /// M12: a Data-In with status is also a response; if its StatSN is out of sequence, no data is placed.
    fn classify_data_in(&mut self, init: &Init, pdu: DataIn) -> Verdict {
        let in_sequence = pdu.status.is_none() || self.is_next_status(pdu.stat_sn);
        match self.check_data_in(init, &pdu) {
            Some(slot) if in_sequence => Verdict::DataIn { slot, pdu },
            Some(_) => self.drop_pdu(),
            None => {
                if pdu.status.is_some() && in_sequence {
                    // The StatSN is consumed although the PDU fails a check.
                    self.note_status(pdu.stat_sn);
                }
                self.refuse_pdu()
            }
        }
    }

    fn drop_pdu(&mut self) -> Verdict {
        self.counters.dropped += 1;
        Verdict::Drop
    }

    fn refuse_pdu(&mut self) -> Verdict {
        self.counters.refused += 1;
        Verdict::Deliver
    }

    fn deliver_pdu(&mut self, pdu: &FromTarget) -> Verdict {
        if let Some(stat_sn) = status_of(pdu) {
            // M12: delivered in any case; a gap before it is recorded.
            let _ = self.is_next_status(stat_sn);
            self.note_status(stat_sn);
        }
        Verdict::Deliver
    }

    fn check_data_in(&self, init: &Init, pdu: &DataIn) -> Option<u32> {
        let range = (pdu.offset, pdu.data_len);
        let (slot, command) = self.check_access(init, pdu.itt, range, Access::REMOTE_WRITE)?;
        // M12, check seven: the command's direction.
        (command.direction == Direction::Read).then_some(slot)
    }

    fn check_r2t(&self, init: &Init, pdu: &R2t) -> Option<u32> {
        let range = (pdu.offset, pdu.len);
        let (slot, command) = self.check_access(init, pdu.itt, range, Access::REMOTE_READ)?;
        // RFC 7143 §13.13, §13.17: MaxBurstLength and MaxOutstandingR2T.
        let agreed = pdu.len <= self.terms.max_burst && command.bursts < self.terms.max_r2t;
        // RFC 7143 §11.8.5: an R2T has a target transfer tag, which marks its data as solicited.
        let tagged = pdu.ttt != NO_TAG;
        (command.direction == Direction::Write && agreed && tagged).then_some(slot)
    }

    /// Six of the seven checks of M12: valid, type, domain, instance, bounds, access right.
    fn check_access(
        &self,
        init: &Init,
        itt: u32,
        (offset, len): (u32, u32),
        needs: Access,
    ) -> Option<(u32, &Command)> {
        let ulp = &init.ulp;
        let reach = MemAccess {
            stag: Stag::new(itt),
            at: offset.into(),
            len: len.into(),
            pd: ulp.pd,
            qp: ulp.number,
            needs,
        };
        self.find_own(init, ulp.tpt.check_command(&reach).ok()?)
    }

    /// M12: connection, StatSN and tag of a response.
    fn check_response(&mut self, init: &Init, pdu: &ScsiResponse) -> Verdict {
        let found = init.ulp.tpt.find_command(Stag::new(pdu.itt), init.ulp.pd);
        let own = found.ok().and_then(|wqe| self.find_own(init, wqe));
        let slot = own.map(|(slot, _)| slot);
        let stat_sn = pdu.stat_sn;
        if !self.is_next_status(stat_sn) {
            return self.drop_pdu();
        }
        match slot {
            Some(slot) => Verdict::Response { slot, stat_sn },
            None => {
                // The StatSN is consumed although the tag is unknown.
                self.note_status(stat_sn);
                self.drop_pdu()
            }
        }
    }

    /// The command that a table entry refers to, if it is one of this queue pair: a protection domain is shared by several.
    fn find_own(&self, init: &Init, wqe: u64) -> Option<(u32, &Command)> {
        let slot = wqe as u32;
        let ours = wqe >> 32 == u64::from(init.ulp.number);
        let command = self.commands.get(slot).filter(|_| ours)?;
        Some((slot, command))
    }
}
