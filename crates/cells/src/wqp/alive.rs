//! Is a silent peer still there? An acknowledged, connected channel without work asks, if its port was told to.
//! A question is the packet before the first: empty, and a duplicate to whoever is there, who acknowledges it as such.
//! It promises that no peer is asked while packets are under way, whose own acknowledgements tell. It refuses to guess: a peer
//! is gone when it let as many questions pass as there are tries.

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_wire::cell::{Body, Cell, Data, Place, PortAddress, Tail};
use verbena_wire::crc::crc32c;

use super::{Moment, Wqp};
use crate::config::Config;
use crate::notice::{Effects, Why};
use crate::state::State;

/// What is known about a silent peer.
#[derive(Debug, Default)]
pub(super) struct Alive {
    /// When to ask, or ask again.
    pub(super) until: Option<Time>,
    /// Questions without an answer.
    asked: u32,
    /// A question must be put now.
    due: bool,
}

impl Wqp {
    /// The peer said something, or is about to hear from us for the first time.
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

    /// The clock of a connection starts with the first look at it.
    pub(super) fn begin_to_listen(&mut self, now: Time, config: &Config) {
        if self.alive.until.is_none() && config.keep_alive.is_some() {
            self.hear(now, config);
        }
    }

    /// It is time to ask.
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

    /// The question, if it must be put now.
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

    /// It was put.
    pub(super) fn asked(&mut self) {
        self.alive.due = false;
    }
}
