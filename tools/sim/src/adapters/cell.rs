//! Requests of one queue pair that read and write the same memory of its peer, one behind the other without waiting.
//! A cell is memory that only requests of one queue pair use, so that posting order determines what every read returns.
//! The checks are in [`super::checker`].

use verbena_nic::qp::QpAccessFlags;
use verbena_nic::wr::RemoteAddr;
use verbena_nic::{SendOp, Status, Transfer};
use verbena_wire::Stag;

use super::record::{Cell, CellUse, FRESH, Fault, Kind, Touch, Use};
use super::request::Draft;
use super::world::{Cells, World, Zone};
use crate::rng::{Ratio, Rng};

/// A step of a run with cells uses one.
const USE: Ratio = Ratio::per_mille(350);
/// Such a use ends with a read that must be refused.
const REFUSED: Ratio = Ratio::per_mille(40);
/// A use takes a new cell.
const FRESH_CELL: Ratio = Ratio::per_mille(400);

impl World {
    /// How bytes are moved in this run.
    pub(super) fn transfer(&self) -> Transfer {
        let usual = Transfer::default();
        let held = self.cells.as_ref().is_some_and(|cells| cells.held);
        Transfer {
            snapshot_max: if held { 0 } else { usual.snapshot_max },
            ..usual
        }
    }

    /// Uses a cell, with a certain probability.
    pub(super) fn maybe_use_cell(&mut self) {
        let Some(mut cells) = self.cells.take() else {
            return;
        };
        if cells.rng.chance(USE) {
            self.use_cell(&mut cells);
        }
        self.cells = Some(cells);
    }

    fn use_cell(&mut self, cells: &mut Cells) {
        let sender = self.pick_sender();
        let Some(qp) = sender.filter(|qp| self.record.qps[*qp].reliable) else {
            return;
        };
        let QpAccessFlags { read, write, .. } = self.allowed(qp);
        if !read || !write || (cells.held && !qp.is_multiple_of(2)) {
            return;
        }
        let mut known = (0..self.record.cells.len()).filter(|c| self.record.cells[*c].qp == qp);
        let cell = match known.next_back() {
            Some(cell) if !cells.rng.chance(FRESH_CELL) => cell,
            _ => self.new_cell(qp, &mut cells.rng),
        };
        for _ in 0..cells.rng.len(2, 6) {
            if cells.rng.coin() {
                self.write_cell(cell, &mut cells.rng);
            } else {
                self.read_cell(cell, &mut cells.rng);
            }
        }
        if cells.rng.chance(REFUSED) {
            self.refused_read(qp, cell);
            for _ in 0..cells.rng.len(1, 3) {
                let draft = self.write(qp);
                self.post(qp, draft);
            }
        }
    }

    fn new_cell(&mut self, qp: usize, rng: &mut Rng) -> usize {
        let peer = self.record.qps[self.record.qps[qp].peer].host;
        let len = rng.len(1, 2500);
        let room = self.reserve(peer, Zone::Stable, len);
        let slot = self.slot(room, len, Use::Cell);
        self.record.cells.push(Cell {
            qp,
            slot,
            first: vec![FRESH; len],
            uses: Vec::new(),
        });
        self.record.cells.len() - 1
    }

    /// A part of the cell: offset, length, and its address for the peer.
    fn part_of(&self, cell: usize, rng: &mut Rng) -> (usize, usize, RemoteAddr, Touch) {
        let slot = &self.record.slots[self.record.cells[cell].slot];
        let at = if rng.coin() {
            0
        } else {
            rng.below(slot.len as u64) as usize
        };
        let len = rng.len(1, slot.len - at);
        let remote = self.remote((slot.region, slot.at + at));
        (at, len, remote, Touch::Remote(slot.region))
    }

    fn write_cell(&mut self, cell: usize, rng: &mut Rng) {
        let (at, len, remote, there) = self.part_of(cell, rng);
        let (qp, op) = (self.record.cells[cell].qp, self.next_op());
        let bytes = self.payload(len);
        let (data, here) = self.source(qp, &bytes);
        self.record.cells[cell]
            .uses
            .push(CellUse::Write { op, at, bytes });
        let draft = Draft {
            kind: Kind::Write {
                len,
                immediate: false,
            },
            op: SendOp::Write {
                remote,
                immediate: None,
            },
            data: Some(data),
            bad: None,
            touches: vec![here, there],
        };
        self.post(qp, draft);
    }

    fn read_cell(&mut self, cell: usize, rng: &mut Rng) {
        let (at, len, remote, there) = self.part_of(cell, rng);
        let (qp, op) = (self.record.cells[cell].qp, self.next_op());
        let (data, slot, here) = self.cell_sink(qp, op, len);
        self.record.cells[cell]
            .uses
            .push(CellUse::Read { op, at, slot });
        let draft = Draft {
            kind: Kind::Read { invalidates: None },
            op: SendOp::Read {
                remote,
                local_invalidate: None,
            },
            data: Some(data),
            bad: None,
            touches: vec![here, there],
        };
        self.post(qp, draft);
    }

    /// A read with an STag that does not exist.
    fn refused_read(&mut self, qp: usize, cell: usize) {
        let slot = &self.record.slots[self.record.cells[cell].slot];
        let RemoteAddr { stag, to } = self.remote((slot.region, slot.at));
        let (data, _, here) = self.cell_sink(qp, self.next_op(), 8);
        let draft = Draft {
            kind: Kind::Read { invalidates: None },
            op: SendOp::Read {
                remote: RemoteAddr {
                    stag: Stag::new(stag.get() ^ 0x8000_0000),
                    to,
                },
                local_invalidate: None,
            },
            data: Some(data),
            bad: Some(Status::RemAccessErr),
            touches: vec![here],
        };
        self.record_fault(self.record.qps[qp].pair, Fault::Bad);
        self.post(qp, draft);
    }

    fn cell_sink(&mut self, qp: usize, op: usize, len: usize) -> (verbena_nic::Sge, usize, Touch) {
        let host = self.record.qps[qp].host;
        let room = self.reserve(host, Zone::Stable, len);
        let slot = self.slot(room, len, Use::Seen(op));
        (self.sge(room, len), slot, Touch::Local(room.0))
    }
}
