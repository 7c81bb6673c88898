//! Received Sends: each holds one PDU, whose lengths and sequence numbers are checked before it is reported. A response ends exactly the
//! command whose tag it has, and may invalidate no other STag than that command's. A violation is returned as text, and the link is closed
//! with it as the reason.

use verbena::low::{Stag, Wc};
use verbena_iscsi::Direction;
use verbena_storage_wire::iscsi::{BHS_LEN, FromTarget, Lengths, Residual, ScsiResponse};
use verbena_storage_wire::iser::{HEADER_LEN, IserHeader};
use verbena_storage_wire::scsi;

use super::tags::OutstandingCommand;
use super::{HEADERS_LEN, Iser, RECEIVE_LEN, TAG, sequence, text};
use crate::session::link::{DataSegment, LinkEvent};

impl Iser {
    /// Processes a received Send. An error describes the violation.
    pub(super) fn handle_receive(&mut self, wc: &Wc) -> Result<(), String> {
        let (at, len) = (wc.id as usize * RECEIVE_LEN, wc.len as usize);
        let Some(room) = len.checked_sub(HEADERS_LEN) else {
            return Err(format!(
                "the target sent {len} bytes, too few for a PDU: at least {HEADERS_LEN} are needed"
            ));
        };
        let (mut header, mut bhs) = ([0; HEADER_LEN], [0; BHS_LEN]);
        self.receives
            .read_at(at, &mut header)
            .map_err(|error| text(&error))?;
        let beyond = at + HEADER_LEN;
        self.receives
            .read_at(beyond, &mut bhs)
            .map_err(|error| text(&error))?;
        IserHeader::parse(&header).map_err(|why| format!("the target's Send: {why}"))?;
        let pdu = FromTarget::parse(&bhs).map_err(|why| format!("the target's PDU: {why}"))?;
        let claimed = Lengths::of(&bhs).data as usize;
        if claimed > room {
            return Err(format!(
                "the target sent {room} bytes of data, its header announces {claimed}"
            ));
        }
        self.sequence
            .update(&bhs, &pdu)
            .map_err(|(expected, got)| format!("status {got} came, expected {expected}"))?;
        let mut data = DataSegment::new();
        if claimed > 0 {
            data.resize(claimed, 0);
            self.receives
                .read_at(at + HEADERS_LEN, &mut data)
                .map_err(|error| text(&error))?;
        }
        let answered = match pdu {
            FromTarget::ScsiResponse(response) => self.tags.sent(response.itt),
            _ => None,
        };
        if let Some(stag) = wc.invalidated
            && answered.is_none_or(|(_, command)| command.stag != Some(stag))
        {
            return Err(format!(
                "the target invalidated {stag}, which is not of a command that it answers"
            ));
        }
        match (pdu, answered) {
            (FromTarget::ScsiResponse(response), Some((task, command))) => {
                self.count(&command, &response);
                let event = LinkEvent::Response {
                    task,
                    bhs,
                    data,
                    transferred: None,
                };
                self.end_command(task, wc.invalidated, event)
            }
            (FromTarget::ScsiResponse(response), None) => {
                let tag = response.itt;
                Err(format!(
                    "the target answers command {tag:#x}, which is not under way"
                ))
            }
            _ => {
                let tag = sequence::read_word(&bhs, TAG);
                self.immediate_tags.retain(|asked| *asked != tag);
                self.events.push(LinkEvent::Pdu { bhs, data });
                Ok(())
            }
        }
    }

    /// Ends a command that was sent. The event is reported once the target cannot access the command's memory any more: at once if the
    /// target has invalidated it, otherwise when our own request has.
    pub(super) fn end_command(
        &mut self,
        task: u32,
        invalidated: Option<Stag>,
        event: LinkEvent,
    ) -> Result<(), String> {
        let stag = self.tags.of(task).and_then(|command| command.stag);
        self.tags.end(task);
        // RFC 7143 §11.4: the target needs no more data of a command that it has answered or aborted.
        self.burst.take_if(|burst| burst.task == task);
        match stag {
            Some(stag) if invalidated.is_none() => {
                self.events.push_after(event, task);
                self.invalidate(task, stag)
            }
            _ => {
                self.events.push(event);
                self.registrations.release(task);
                Ok(())
            }
        }
    }

    /// Counts data that was moved by RDMA, by the residual count of the response.
    fn count(&mut self, under: &OutstandingCommand, response: &ScsiResponse) {
        if scsi::Status::from_code(response.status) != scsi::Status::Good {
            return;
        }
        let less = match response.residual {
            Residual::Underflow(less) => less,
            Residual::None | Residual::Overflow(_) => 0,
        };
        let bytes = u64::from(under.len.saturating_sub(less));
        match under.direction {
            Direction::Read => self.transferred.placed += bytes,
            Direction::Write => self.transferred.gathered += bytes,
            Direction::None => {}
        }
    }
}
