//! Processes one cell in order (P3): checks and places it. A rejected cell is not placed and leaves its packet unchanged; of a packet
//! only its destination, progress and checksum are kept. The caller has checked that the cell is the next one.

use verbena_mem::Refusal;
use verbena_nic::Outbox;
use verbena_nic::receive::Receive;
use verbena_nic::wc::Status;
use verbena_split_wire::cell::{AddressBlock, CellPosition, Data, Kind, Tail};
use verbena_wire::crc::Crc32c;

use super::answer::EventContext;
use super::{Wqp, place};
use crate::counters::Refused;

/// A packet in progress.
#[derive(Debug)]
pub(super) struct Reassembly {
    pub(super) target: Target,
    /// The next cell; after the longest packet one more than the largest number.
    pub(super) next: u32,
    /// Bytes placed.
    pub(super) offset: u32,
    crc: Crc32c,
}

/// The destination of a packet.
#[derive(Debug)]
pub(super) enum Target {
    Receive(Receive),
    Write(AddressBlock),
}

impl Reassembly {
    /// The receive that it had taken.
    pub(super) fn into_receive(self) -> Option<Receive> {
        match self.target {
            Target::Receive(receive) => Some(receive),
            Target::Write(_) => None,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.target {
            Target::Receive(_) => Kind::Send,
            Target::Write(_) => Kind::Write,
        }
    }

    /// The capacity of its destination.
    fn capacity(&self) -> u32 {
        match &self.target {
            Target::Receive(receive) => receive.capacity(),
            Target::Write(block) => block.len,
        }
    }
}

/// Progress of a packet after a cell.
pub(super) enum Step {
    More(Reassembly),
    Whole(Reassembly),
}

impl Wqp {
    /// Places the next cell. On rejection the packet is returned unchanged.
    pub(super) fn step(
        &mut self,
        part: Option<Reassembly>,
        data: &Data<'_>,
        moment: &EventContext<'_>,
        out: &mut Outbox,
    ) -> Result<Step, (Refused, Option<Box<Reassembly>>)> {
        let mut part = match part {
            Some(part) => part,
            None => self.start(data, moment).map_err(|why| (why, None))?,
        };
        let last = data.tail != Tail::More;
        let (crc, end) = match self.check_cell(&part, data, moment) {
            Ok(judged) => judged,
            Err(why) => return Err((why, Some(Box::new(part)))),
        };
        match &part.target {
            Target::Write(block) => {
                let placed = place::write(&self.init, block, part.offset, data.payload, last);
                if let Err(why) = placed {
                    return Err((why, Some(Box::new(part))));
                }
            }
            Target::Receive(receive) => {
                match place::scatter(&self.init, receive, part.offset, data.payload) {
                    Ok(()) => {}
                    Err(Refusal::Pending { .. }) => {
                        return Err((Refused::NoBuffer, Some(Box::new(part))));
                    }
                    Err(_) => {
                        // The receive completes with an error, and the channel fails.
                        self.fail_receive(receive.id, Status::LocProtErr, out);
                        return Err((Refused::Receive, None));
                    }
                }
            }
        }
        self.counters.cells_placed += 1;
        part.crc = crc;
        part.offset = end;
        part.next += 1;
        Ok(if last {
            Step::Whole(part)
        } else {
            Step::More(part)
        })
    }

    /// The first cell: takes a receive, or checks access to all of the memory.
    fn start(&mut self, data: &Data<'_>, moment: &EventContext<'_>) -> Result<Reassembly, Refused> {
        let target = match data.position {
            CellPosition::WriteFirst(block) => {
                if block.len > moment.config.packet {
                    return Err(Refused::Bounds);
                }
                place::check_write(&self.init, &block)?;
                Target::Write(block)
            }
            CellPosition::SendFirst => {
                Target::Receive(self.take_receive().ok_or(Refused::NoBuffer)?)
            }
            CellPosition::SendMore(_) | CellPosition::WriteMore(_) => return Err(Refused::Gap),
        };
        Ok(Reassembly {
            target,
            next: 0,
            offset: 0,
            crc: Crc32c::new(),
        })
    }

    /// Checks the length and checksum of the next cell; returns the checksum so far and the end of its bytes in the packet.
    fn check_cell(
        &self,
        part: &Reassembly,
        data: &Data<'_>,
        moment: &EventContext<'_>,
    ) -> Result<(Crc32c, u32), Refused> {
        let len = data.payload.len();
        let end = part.offset.saturating_add(len as u32);
        let fits = len <= usize::from(moment.config.cell) && end <= part.capacity();
        if !fits || part.kind() != data.position.kind() {
            return Err(Refused::Bounds);
        }
        let mut crc = part.crc.clone();
        if let CellPosition::WriteFirst(block) = &data.position {
            crc.update(&block.emit());
        }
        let Tail::Last {
            immediate,
            crc: sum,
        } = data.tail
        else {
            crc.update(data.payload);
            return Ok((crc, end));
        };
        let write = part.kind() == Kind::Write;
        // A write must have the length for which access was checked.
        if write && end != part.capacity() {
            return Err(Refused::Bounds);
        }
        if let Some(immediate) = immediate {
            if write && self.rung_receives == 0 {
                return Err(Refused::NoBuffer);
            }
            crc.update(&immediate.to_be_bytes());
        }
        crc.update(data.payload);
        if crc.clone().finish() != sum {
            return Err(Refused::PacketCrc);
        }
        Ok((crc, end))
    }
}
