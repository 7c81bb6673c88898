//! Keep-alive of an acknowledged, connected channel without work, if configured. A probe is the packet before the first one in flight:
//! empty, and a duplicate that the peer acknowledges. No probes are sent while packets are in flight, which detect a silent peer
//! themselves; the channel fails after `retries` unanswered probes and not before `patience`.

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_wire::cell::{Body, Cell, Data, Place, PortAddress, Tail};
use verbena_wire::crc::crc32c;

use super::{Moment, Wqp};
use crate::config::Config;
use crate::notice::{Effects, Why};
use crate::state::State;

/// State of the probes.
#[derive(Debug, Default)]
pub(super) struct Alive {
    /// When to send the next probe.
    pub(super) until: Option<Time>,
    /// Unanswered probes.
    asked: u32,
    /// A probe is to be sent now.
    due: bool,
}

impl Wqp {
    /// The peer was heard, or the connection begins: restarts the interval.
    pub(super) fn hear(&mut self, now: Time, config: &Config) {
        let kind = self.init.kind;
        if !kind.acknowledged || !kind.connected || self.state != State::Connected {
            return;
        }
        self.alive = Alive {
            until: config.keep_alive.map(|span| now + span),
            ..Alive::default()
        };
    }

    /// Starts the interval of a new connection at its first turn to transmit.
    pub(super) fn begin_to_listen(&mut self, now: Time, config: &Config) {
        if self.alive.until.is_none() && config.keep_alive.is_some() {
            self.hear(now, config);
        }
    }

    /// The interval is over: sends a probe, or fails the channel.
    pub(super) fn ask_if_alive(&mut self, moment: &Moment<'_>, fx: &mut Effects, out: &mut Outbox) {
        if self.begun() > 0 {
            return self.hear(moment.now, moment.config);
        }
        let silent = moment
            .config
            .connect_timeout
            .saturating_mul(self.alive.asked);
        if self.alive.asked >= moment.config.retries && silent >= moment.config.patience {
            return self.fail(moment.here, Why::Silent, None, fx, out);
        }
        self.alive = Alive {
            until: Some(moment.now + moment.config.connect_timeout),
            asked: self.alive.asked.saturating_add(1),
            due: true,
        };
    }

    /// The probe, if one is due.
    pub(super) fn question_cell(&self, here: PortAddress) -> Option<Cell<'static>> {
        let peer = self.peer.filter(|_| self.alive.due)?;
        Some(Cell {
            way: self.way(here, peer),
            connected: true,
            packet: self.una.previous(),
            body: Body::Data(Data {
                place: Place::SendFirst,
                tail: Tail::Last {
                    immediate: None,
                    crc: crc32c(&[]),
                },
                acknowledged: true,
                solicited: false,
                payload: &[],
            }),
        })
    }

    /// The probe was sent.
    pub(super) fn asked(&mut self) {
        self.alive.due = false;
    }
}
