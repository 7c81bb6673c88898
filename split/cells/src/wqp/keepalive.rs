//! Keep-alive of an acknowledged, connected channel without work, if configured. A probe is the packet before the first one in flight:
//! empty, and a duplicate that the peer acknowledges. No probes are sent while packets are in flight, which detect a silent peer
//! themselves; the channel fails after `retries` unanswered probes and not before `patience`.

use verbena_nic::Outbox;
use verbena_split_wire::cell::{Body, Cell, CellPosition, Data, PortAddress, Tail};
use verbena_stream::Time;
use verbena_wire::crc::crc32c;

use super::{EventContext, Wqp};
use crate::config::Config;
use crate::notice::{Effects, EndReason};
use crate::state::State;

/// State of the probes.
#[derive(Debug, Default)]
pub(super) struct Keepalive {
    /// When to send the next probe.
    pub(super) next_probe: Option<Time>,
    /// Unanswered probes.
    probes: u32,
    /// A probe is to be sent now.
    due: bool,
}

impl Wqp {
    /// The peer was heard, or the connection begins: restarts the interval.
    pub(super) fn restart_keepalive(&mut self, now: Time, config: &Config) {
        let kind = self.init.kind;
        if !kind.acknowledged || !kind.connected || self.state != State::Connected {
            return;
        }
        self.keepalive = Keepalive {
            next_probe: config.keep_alive.map(|span| now + span),
            ..Keepalive::default()
        };
    }

    /// Starts the interval of a new connection at its first turn to transmit.
    pub(super) fn start_keepalive(&mut self, now: Time, config: &Config) {
        if self.keepalive.next_probe.is_none() && config.keep_alive.is_some() {
            self.restart_keepalive(now, config);
        }
    }

    /// The interval is over: sends a probe, or fails the channel.
    pub(super) fn on_keepalive_timeout(
        &mut self,
        moment: &EventContext<'_>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        if self.started() > 0 {
            return self.restart_keepalive(moment.now, moment.config);
        }
        let silent = moment
            .config
            .connect_timeout
            .saturating_mul(self.keepalive.probes);
        if self.keepalive.probes >= moment.config.retries && silent >= moment.config.patience {
            return self.fail(moment.local, EndReason::PeerTimeout, None, fx, out);
        }
        self.keepalive = Keepalive {
            next_probe: Some(moment.now + moment.config.connect_timeout),
            probes: self.keepalive.probes.saturating_add(1),
            due: true,
        };
    }

    /// The probe, if one is due.
    pub(super) fn probe_cell(&self, here: PortAddress) -> Option<Cell<'static>> {
        let peer = self.peer.filter(|_| self.keepalive.due)?;
        Some(Cell {
            route: self.way(here, peer),
            connected: true,
            packet: self.una.previous(),
            body: Body::Data(Data {
                position: CellPosition::SendFirst,
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
    pub(super) fn on_probe_sent(&mut self) {
        self.keepalive.due = false;
    }
}
