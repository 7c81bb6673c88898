//! Segmentation (P3): a work queue pair's output, one whole cell at a time. A packet is segmented at the same offsets each time it is
//! sent, so that its cells are identified by number. Memory is looked up for every cell, and no copy of what was sent is kept.

use verbena_mem::{Access, MemAccess, Refusal};
use verbena_nic::Outbox;
use verbena_nic::wc::Status;
use verbena_split_wire::cell::{
    AddressBlock, CRC_LEN, Cell, CellPosition, Data, Header, IMMEDIATE_LEN, OpenCell, PortAddress,
    Tail, emit_trailer,
};
use verbena_stream::Time;
use verbena_wire::crc::Crc32c;

use super::complete::Overflowed;
use super::{Cursor, Queued, SendState, Wqp};
use crate::config::Config;
use crate::descriptor::{Payload, Peer};
use crate::notice::{Effects, EndReason};

/// The datagram that is being filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatagramBuilder<'a> {
    pub(crate) local: PortAddress,
    pub(crate) config: &'a Config,
    pub(crate) now: Time,
    /// Its destination, once it has a cell.
    pub(crate) to: Option<PortAddress>,
    /// Its length limit.
    pub(crate) room: usize,
}

impl DatagramBuilder<'_> {
    /// Checks whether a cell of `len` bytes to this port may be added. The first one always may.
    fn admits(&self, to: PortAddress, len: usize, out: &[u8]) -> Result<(), Emitted> {
        match self.to {
            None => Ok(()),
            Some(other) if other != to => Err(Emitted::OtherPort),
            Some(_) if out.len() + len > self.room => Err(Emitted::Full),
            Some(_) => Ok(()),
        }
    }

    /// Adds a cell without data.
    pub(crate) fn put(&self, cell: &Cell<'_>, out: &mut Vec<u8>) -> Result<PortAddress, Emitted> {
        self.admits(cell.route.to, cell.len(), out)?;
        cell.emit(out);
        Ok(cell.route.to)
    }
}

/// The result of [`Wqp::emit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emitted {
    /// One cell was added, for this port.
    Cell(PortAddress),
    /// The next cell goes to another port.
    OtherPort,
    /// The next cell does not fit any more.
    Full,
    /// There is nothing to send.
    Idle,
}

/// The part of a packet in one cell.
#[derive(Debug, Clone, Copy)]
struct CellRange {
    offset: u32,
    len: u32,
    last: bool,
}

impl Queued {
    fn cell_range(&self, cell: u16, size: u16) -> CellRange {
        let offset = u32::from(cell) * u32::from(size);
        let len = self.len.saturating_sub(offset).min(u32::from(size));
        let last = offset.saturating_add(len) >= self.len;
        CellRange { offset, len, last }
    }

    fn block(&self) -> Option<AddressBlock> {
        self.remote.map(|remote| AddressBlock {
            at: remote.to,
            handle: remote.stag,
            len: self.len,
        })
    }

    /// Length of the cell on the wire.
    fn cell_len(&self, cell: u16, cut: CellRange) -> usize {
        let block = cell == 0 && self.remote.is_some();
        let immediate = cut.last && self.immediate.is_some();
        let optional = [
            (block, AddressBlock::LEN),
            (immediate, IMMEDIATE_LEN),
            (cut.last, CRC_LEN),
        ];
        let optional = optional.iter().filter(|(there, _)| *there);
        let around: usize = optional.map(|(_, len)| len).sum();
        Header::LEN + around + cut.len as usize + CRC_LEN
    }
}

impl Wqp {
    /// Adds the next cell to a datagram.
    pub(crate) fn emit(
        &mut self,
        turn: &DatagramBuilder<'_>,
        out: &mut Vec<u8>,
        fx: &mut Effects,
        outbox: &mut Outbox,
    ) -> Emitted {
        let said = self.emit_control(turn, out);
        match said {
            Emitted::Idle if self.state.is_active() && self.init.kind.connected => {
                self.emit_connected(turn, out, fx, outbox)
            }
            Emitted::Idle if self.state.is_active() => {
                self.emit_connectionless(turn, out, fx, outbox)
            }
            said => said,
        }
    }

    fn emit_control(&mut self, turn: &DatagramBuilder<'_>, out: &mut Vec<u8>) -> Emitted {
        if let Some(cell) = self.handshake_cell(turn.local, turn.config) {
            return match turn.put(&cell, out) {
                Ok(to) => {
                    self.on_handshake_sent(turn.now, turn.config);
                    Emitted::Cell(to)
                }
                Err(not) => not,
            };
        }
        if let Some(cell) = self.answer_cell(turn.local) {
            return match turn.put(&cell, out) {
                Ok(to) => {
                    // A Nak also acknowledges everything before its packet.
                    (self.pending_nak, self.pending_ack) = (None, false);
                    Emitted::Cell(to)
                }
                Err(not) => not,
            };
        }
        self.start_keepalive(turn.now, turn.config);
        if let Some(cell) = self.probe_cell(turn.local) {
            let put = turn.put(&cell, out);
            if put.is_ok() {
                self.on_probe_sent();
            }
            return put.map_or_else(|not| not, Emitted::Cell);
        }
        if let Some(cell) = self.connectionless_ack_cell(turn.local) {
            return match turn.put(&cell, out) {
                Ok(to) => {
                    self.pending_answers.pop_front();
                    Emitted::Cell(to)
                }
                Err(not) => not,
            };
        }
        Emitted::Idle
    }

    fn emit_connected(
        &mut self,
        turn: &DatagramBuilder<'_>,
        out: &mut Vec<u8>,
        fx: &mut Effects,
        outbox: &mut Outbox,
    ) -> Emitted {
        let acknowledged = self.init.kind.acknowledged;
        let window = if acknowledged {
            self.window
        } else {
            usize::MAX
        };
        let Cursor { at, cell, .. } = self.cursor;
        if at >= self.rung_sends.min(window) || self.hold.is_some() {
            return Emitted::Idle;
        }
        let Some(peer) = self.peer else {
            return Emitted::Idle;
        };
        let mut crc = self.cursor.crc.take().unwrap_or_default();
        let cut = self.write_cell(turn, (at, cell), peer, &mut crc, out);
        self.cursor.crc = Some(crc);
        let cut = match cut {
            Ok(Some(cut)) => cut,
            Ok(None) => return Emitted::Idle,
            Err(EmitError::Stopped(not)) => return not,
            Err(EmitError::Refusal(Refusal::Pending { .. })) => {
                // V5: the registration is pending.
                self.hold = Some(turn.now + turn.config.busy_delay);
                return Emitted::Idle;
            }
            Err(EmitError::Refusal(_)) => {
                if let Some(queued) = self.sends.get_mut(at) {
                    queued.state = SendState::Done(Status::LocProtErr);
                }
                self.fail(turn.local, EndReason::LocalMemory, None, fx, outbox);
                return Emitted::Idle;
            }
        };
        if cut.last {
            self.cursor = Cursor {
                at: at + 1,
                ..Cursor::default()
            };
            if at >= self.fully_sent {
                self.fully_sent = at + 1;
                self.rtt.on_sent(self.una.plus(at as u32), turn.now);
            }
            if !acknowledged {
                // P2: an unacknowledged packet completes when its last cell is passed to the carrier.
                let overflowed = self.complete_sends(1, outbox);
                self.note_overflow(turn.local, overflowed, fx, outbox);
            }
        } else {
            self.cursor.cell = cell.saturating_add(1);
        }
        if acknowledged {
            // Restarted with every cell: a slow carrier is not a silent peer. The window bounds it.
            self.timer = Some(turn.now + self.retransmit_timeout(turn.config));
        }
        Emitted::Cell(peer.port)
    }

    /// Connectionless packets are one cell each, and independent of each other.
    fn emit_connectionless(
        &mut self,
        turn: &DatagramBuilder<'_>,
        out: &mut Vec<u8>,
        fx: &mut Effects,
        outbox: &mut Outbox,
    ) -> Emitted {
        let waits = |queued: &Queued| queued.state == SendState::Waiting;
        loop {
            let seen = self.rung_sends.min(turn.config.window);
            let Some(at) = self.sends.iter().take(seen).position(waits) else {
                return Emitted::Idle;
            };
            let Some(to) = self.sends.get(at).and_then(|queued| queued.destination) else {
                return Emitted::Idle;
            };
            let cut = self.write_cell(turn, (at, 0), to, &mut Crc32c::new(), out);
            let (fate, emitted) = match cut {
                Ok(Some(_)) if self.init.kind.acknowledged => {
                    let tries = self.sends.get(at).map_or(0, |queued| queued.tries);
                    let until = turn.now + turn.config.timeout * (1 << tries.min(6));
                    (SendState::Sent(until), Some(Emitted::Cell(to.port)))
                }
                Ok(Some(_)) => (
                    SendState::Done(Status::Success),
                    Some(Emitted::Cell(to.port)),
                ),
                Ok(None) => return Emitted::Idle,
                Err(EmitError::Stopped(not)) => return not,
                Err(EmitError::Refusal(Refusal::Pending { .. })) => {
                    (SendState::Held(turn.now + turn.config.busy_delay), None)
                }
                Err(EmitError::Refusal(_)) => (SendState::Done(Status::LocProtErr), None),
            };
            if let Some(queued) = self.sends.get_mut(at) {
                queued.state = fate;
            }
            let overflowed = self.complete_done(outbox);
            self.note_overflow(turn.local, overflowed, fx, outbox);
            if let Some(emitted) = emitted {
                return emitted;
            }
        }
    }

    /// Appends one cell of a descriptor, or nothing.
    fn write_cell(
        &mut self,
        turn: &DatagramBuilder<'_>,
        (at, cell): (usize, u16),
        to: Peer,
        crc: &mut Crc32c,
        out: &mut Vec<u8>,
    ) -> Result<Option<CellRange>, EmitError> {
        let Some(queued) = self.sends.get(at) else {
            return Ok(None);
        };
        let cut = queued.cell_range(cell, self.cell);
        let admitted = turn.admits(to.port, queued.cell_len(cell, cut), out);
        admitted.map_err(EmitError::Stopped)?;
        let immediate = queued.immediate.filter(|_| cut.last);
        let data = Data {
            position: CellPosition::of(cell, queued.block()),
            tail: if cut.last {
                Tail::Last { immediate, crc: 0 }
            } else {
                Tail::More
            },
            acknowledged: self.init.kind.acknowledged,
            solicited: queued.flags.contains(verbena_nic::Flags::SOLICITED),
            payload: &[],
        };
        let open = OpenCell {
            route: self.way(turn.local, to),
            connected: self.init.kind.connected,
            packet: self.una.plus(at as u32),
            data,
        };
        let start = out.len();
        open.emit_head(cut.len as u16, out);
        if let Err(refusal) = self.gather(&queued.payload, cut, out) {
            out.truncate(start);
            return Err(EmitError::Refusal(refusal));
        }
        crc.update(out.get(start + Header::LEN..).unwrap_or_default());
        emit_trailer(start, cut.last.then(|| crc.clone().finish()), out);
        self.counters.cells_sent += 1;
        Ok(Some(cut))
    }

    /// Appends the bytes of one cell; memory is looked up each time (M6).
    fn gather(&self, payload: &Payload, cut: CellRange, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let sges = match payload {
            Payload::Inline(bytes) => {
                let (from, len) = (cut.offset as usize, cut.len as usize);
                out.extend_from_slice(bytes.get(from..from + len).unwrap_or_default());
                return Ok(());
            }
            Payload::Gather(sges) => sges,
        };
        let (mut skip, mut left) = (cut.offset, cut.len);
        for sge in sges {
            let from = skip.min(sge.len);
            let len = left.min(sge.len - from);
            (skip, left) = (skip - from, left - len);
            if len == 0 {
                continue;
            }
            let gather = self.init.tpt.gather_local(&MemAccess {
                stag: sge.stag,
                at: sge.addr.wrapping_add(u64::from(from)),
                len: u64::from(len),
                pd: self.init.pd,
                qp: self.init.number.get(),
                needs: Access::NONE,
            })?;
            gather.append_to(0, len as usize, out)?;
        }
        Ok(())
    }

    /// Fails the channel if completions were lost.
    pub(super) fn note_overflow(
        &mut self,
        here: PortAddress,
        overflowed: Overflowed,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        if overflowed.0 {
            self.fail(here, EndReason::Overflow, None, fx, out);
        }
    }
}

/// Why no cell was written.
enum EmitError {
    Stopped(Emitted),
    Refusal(Refusal),
}
