//! A port's output, and its deadline. Work queue pairs take turns, and a datagram goes to one port and consists of whole cells. An
//! expired deadline is handled by the next call of [`Port::handle_timeout`].

use verbena_nic::Outbox;
use verbena_split_wire::cell::PortAddress;
use verbena_stream::Time;

use super::Port;
use crate::wqp::{DatagramBuilder, Emitted, EventContext};

impl Port {
    /// Fills `datagram`, which is cleared first, with up to `room` bytes; returns the port it goes to, or `None` if there is nothing to send.
    ///
    /// The carrier then owns it: unacknowledged packets whose last cell it holds have completed (P2). A `room` below
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

    /// The same for a carrier whose paths differ: `room` returns the length limit of a datagram to a port.
    pub fn poll_transmit_to(
        &mut self,
        room: impl Fn(PortAddress) -> usize,
        now: Time,
        datagram: &mut Vec<u8>,
        out: &mut Outbox,
    ) -> Option<PortAddress> {
        datagram.clear();
        let config = self.config;
        let mut turn = DatagramBuilder {
            local: self.address,
            config: &config,
            now,
            to: None,
            room: 0,
        };
        let goes = |turn: &mut DatagramBuilder<'_>, to: PortAddress| {
            if turn.to != Some(to) {
                (turn.to, turn.room) = (Some(to), room(to));
            }
        };
        self.put_strays(&mut turn, datagram, &goes);
        // One turn each per datagram; a work queue pair with more to send goes to the end of the list.
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
                    Emitted::OtherPort | Emitted::Full => {
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
        // A work queue pair that failed in its turn may have queued an answer.
        if turn.to.is_none() {
            self.put_strays(&mut turn, datagram, &goes);
        }
        turn.to
    }

    /// Adds answers that belong to no work queue pair, as many as go to the same port and fit.
    fn put_strays(
        &mut self,
        turn: &mut DatagramBuilder<'_>,
        datagram: &mut Vec<u8>,
        goes: &impl Fn(&mut DatagramBuilder<'_>, PortAddress),
    ) {
        while let Some(stray) = self.effects.strays.front() {
            let Ok(to) = turn.put(&stray.cell(), datagram) else {
                break;
            };
            goes(turn, to);
            self.effects.strays.pop_front();
        }
    }

    /// When [`handle_timeout`](Port::handle_timeout) must be called next.
    pub fn deadline(&self) -> Option<Time> {
        let wqps = self.wqps.values().filter_map(crate::wqp::Wqp::deadline);
        let requests = self.requests.iter().map(|request| request.deadline);
        wqps.chain(requests).min()
    }

    /// Handles expired deadlines.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Outbox) {
        self.requests.retain(|request| now < request.deadline);
        let config = self.config;
        let moment = EventContext {
            local: self.address,
            config: &config,
            now,
        };
        let mut woken = Vec::new();
        for (number, wqp) in &mut self.wqps {
            if wqp.deadline().is_some_and(|deadline| deadline <= now) {
                wqp.on_timeout(&moment, &mut self.effects, out);
                woken.push(*number);
            }
        }
        for number in woken {
            self.wake(number);
        }
    }
}
