//! What leaves a port, and when it wants to be looked at again.
//! It promises that work queue pairs take turns, that a datagram goes to one port and holds whole cells, and that a deadline which
//! has passed is dealt with by the next call. It refuses to know whether a datagram arrived anywhere.

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_wire::cell::PortAddress;

use super::Port;
use crate::wqp::{Emitted, Moment, Turn};

impl Port {
    /// Appends the next datagram, of up to `room` bytes, to `datagram`; says which port it goes to, or that nothing waits.
    ///
    /// It is the carrier's from now on: unacknowledged packets whose last cell it holds have completed (P2). A `room` below
    /// [`largest_cell`](crate::Config::largest_cell) is exceeded if the first cell needs it.
    pub fn poll_transmit(
        &mut self,
        room: usize,
        now: Time,
        datagram: &mut Vec<u8>,
        out: &mut Outbox,
    ) -> Option<PortAddress> {
        self.poll_transmit_to(|_| room, now, datagram, out)
    }

    /// The same, for a carrier whose ways differ: `room` says how many bytes a datagram to a port may have.
    pub fn poll_transmit_to(
        &mut self,
        room: impl Fn(PortAddress) -> usize,
        now: Time,
        datagram: &mut Vec<u8>,
        out: &mut Outbox,
    ) -> Option<PortAddress> {
        datagram.clear();
        let config = self.config;
        let mut turn = Turn {
            here: self.address,
            config: &config,
            now,
            to: None,
            room: 0,
        };
        let goes = |turn: &mut Turn<'_>, to: PortAddress| {
            if turn.to != Some(to) {
                (turn.to, turn.room) = (Some(to), room(to));
            }
        };
        self.put_strays(&mut turn, datagram, &goes);
        // Each has one turn at most; whoever has more to say comes back behind the others.
        for _ in 0..self.ready.len() {
            let Some(number) = self.ready.pop_front() else {
                break;
            };
            let Some(wqp) = self.wqps.get_mut(&number) else {
                continue;
            };
            wqp.queued = false;
            loop {
                match wqp.emit(&turn, datagram, &mut self.effects, out) {
                    Emitted::Cell(to) => goes(&mut turn, to),
                    Emitted::Elsewhere | Emitted::Full => {
                        wqp.queued = true;
                        self.ready.push_back(number);
                        break;
                    }
                    Emitted::Idle => break,
                }
            }
            if turn.to.is_some() && datagram.len() >= turn.room {
                break;
            }
        }
        // Somebody who failed while it was asked may have left an answer.
        if turn.to.is_none() {
            self.put_strays(&mut turn, datagram, &goes);
        }
        turn.to
    }

    /// Answers that belong to no work queue pair, as many as go to the same port and fit.
    fn put_strays(
        &mut self,
        turn: &mut Turn<'_>,
        datagram: &mut Vec<u8>,
        goes: &impl Fn(&mut Turn<'_>, PortAddress),
    ) {
        while let Some(stray) = self.effects.strays.front() {
            let Ok(to) = turn.put(&stray.cell(), datagram) else {
                break;
            };
            goes(turn, to);
            self.effects.strays.pop_front();
        }
    }

    /// When [`handle_timeout`](Port::handle_timeout) wants to be called, if nothing happens before.
    pub fn deadline(&self) -> Option<Time> {
        let wqps = self.wqps.values().filter_map(crate::wqp::Wqp::deadline);
        let requests = self.requests.iter().map(|request| request.until);
        wqps.chain(requests).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        self.requests.retain(|request| now < request.until);
        let config = self.config;
        let moment = Moment {
            here: self.address,
            config: &config,
            now,
        };
        let mut woken = Vec::new();
        for (number, wqp) in &mut self.wqps {
            if wqp.deadline().is_some_and(|deadline| deadline <= now) {
                wqp.on_time(&moment, &mut self.effects, out);
                woken.push(*number);
            }
        }
        for number in woken {
            self.wake(number);
        }
    }
}
