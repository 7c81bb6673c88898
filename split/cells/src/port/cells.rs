//! Received cells: each is checked on its own and passed to its work queue pair. A bad cell does not affect others, and each that is
//! not accepted is counted. The source port is taken from the cells, and compared with the carrier's where the carrier knows it.

use verbena_nic::Outbox;
use verbena_split_wire::cell::{Body, Cell, Cells, DisconnectReason, PacketSeq, PortAddress};
use verbena_stream::Time;
use verbena_wire::Malformed;

use super::Port;
use super::connect::reply_way;
use crate::descriptor::Peer;
use crate::notice::{StrayAnswer, StrayBody};
use crate::wqp::EventContext;

impl Port {
    /// Handles the cells of a datagram.
    pub fn handle_cells(&mut self, datagram: &[u8], now: Time, out: &mut Outbox) {
        self.process_cells(None, true, datagram, now, out);
    }

    /// The same for a carrier that knows which port a datagram came from: cells with another source are dropped.
    pub fn handle_cells_from(
        &mut self,
        port: PortAddress,
        datagram: &[u8],
        now: Time,
        out: &mut Outbox,
    ) {
        self.process_cells(Some(port), true, datagram, now, out);
    }

    /// The same without requests for connections: the sender has not returned a cookie, so its address may be forged
    /// ([`Cookies`](crate::Cookies)).
    pub fn handle_cells_unproven(
        &mut self,
        port: PortAddress,
        datagram: &[u8],
        now: Time,
        out: &mut Outbox,
    ) {
        self.process_cells(Some(port), false, datagram, now, out);
    }

    fn process_cells(
        &mut self,
        from: Option<PortAddress>,
        proven: bool,
        datagram: &[u8],
        now: Time,
        out: &mut Outbox,
    ) {
        for cell in Cells::new(datagram) {
            match cell {
                Ok(cell) if from.is_some_and(|port| port != cell.route.from) => {
                    self.counters.wrong_source += 1;
                }
                Ok(cell) if !proven && matches!(cell.body, Body::Connect { .. }) => {
                    self.counters.unproven += 1;
                }
                Ok(cell) if self.is_for_us(&cell) => self.on_cell(&cell, now, out),
                Ok(_) => self.counters.wrong_destination += 1,
                Err(Malformed::CellCrc { .. }) => self.counters.cell_crc += 1,
                Err(_) => self.counters.malformed += 1,
            }
        }
    }

    /// Addressed to this port, or a request to the wildcard address.
    fn is_for_us(&self, cell: &Cell<'_>) -> bool {
        let to = cell.route.to;
        let any_port = to == PortAddress::ANY && matches!(cell.body, Body::Connect { .. });
        to == self.address || any_port
    }

    fn on_cell(&mut self, cell: &Cell<'_>, now: Time, out: &mut Outbox) {
        let from = Peer {
            port: cell.route.from,
            wqp: cell.route.from_wqp,
        };
        let config = self.config;
        let moment = EventContext {
            local: self.address,
            config: &config,
            now,
        };
        let (number, packet) = (cell.route.to_wqp, cell.packet);
        if let Body::Connect { terms, .. } = &cell.body {
            return self.on_connect(from, number, packet, terms, &moment);
        }
        let Some(wqp) = self.wqps.get_mut(&number.get()) else {
            self.counters.unknown += 1;
            let strays = matches!(cell.body, Body::Data(_) | Body::Accept { .. });
            if strays && cell.connected {
                self.answer_no_channel(from, cell);
            }
            return;
        };
        let fx = &mut self.effects;
        let mut stray = false;
        match &cell.body {
            Body::Data(data) => {
                stray = wqp.on_data(from, (cell.connected, packet), data, &moment, fx, out);
            }
            Body::Ack => {
                wqp.on_answer(from, cell.connected, (packet, None), &moment, fx, out);
            }
            Body::Nak(reason) => {
                let answer = (packet, Some(*reason));
                wqp.on_answer(from, cell.connected, answer, &moment, fx, out);
            }
            Body::Accept { echo, terms } => {
                // A repeated Accept is ignored; one without a Connect is answered with a Disconnect.
                let known = wqp.state.is_active() && wqp.peer == Some(from);
                stray = !known && !wqp.on_accept(from, packet, *echo, terms, fx);
            }
            Body::Reject {
                echo,
                reason,
                private,
            } => {
                wqp.on_reject(from, *echo, *reason, private, fx);
            }
            Body::Disconnect(ending) => {
                if wqp.is_ended_by(from, packet, *ending) {
                    wqp.on_peer_disconnect(*ending, fx, out);
                }
            }
            Body::Retry { echo, cookie } => {
                wqp.on_retry(from, *echo, *cookie);
            }
            Body::Connect { .. } => {}
        }
        if stray {
            self.answer_no_channel(from, cell);
        }
        self.wake(number.get());
    }

    /// Tells a sender that there is no such connection. The answer repeats the cell's packet number, by which the sender verifies it.
    fn answer_no_channel(&mut self, from: Peer, cell: &Cell<'_>) {
        let packet: PacketSeq = cell.packet;
        self.effects.queue_stray(StrayAnswer {
            way: reply_way(self.address, from, cell.route.to_wqp),
            packet,
            body: StrayBody::Disconnect(DisconnectReason::NoChannel),
        });
    }
}
