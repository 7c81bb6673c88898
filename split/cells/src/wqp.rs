//! A work queue pair: its two queues and the state of its channel. Descriptors complete in posting order, each once. Of a packet in
//! flight only its destination and progress are kept, not its bytes.

mod answer;
mod complete;
mod duplicates;
mod handshake;
mod keepalive;
mod place;
mod post;
mod reassemble;
mod rtt;
mod step;
mod transmit;

pub(crate) use answer::EventContext;
pub(crate) use transmit::{DatagramBuilder, Emitted};

use std::collections::VecDeque;
use std::sync::Arc;

use verbena_mem::{Pd, Tpt};
use verbena_nic::qp::Limits;
use verbena_nic::receive::Receive;
use verbena_nic::wc::{Status, WcOp};
use verbena_nic::wr::{Flags, RemoteAddr};
use verbena_nic::{Cq, Outbox};
use verbena_split_wire::cell::{CellRoute, DisconnectReason, NakReason, PacketSeq, PortAddress};
use verbena_stream::Time;
use verbena_wire::crc::Crc32c;
use verbena_wire::number::Qpn;

use crate::config::Config;
use crate::counters::{Counters, Refused};
use crate::descriptor::{Payload, Peer};
use crate::notice::{Effects, EndReason, Notice, StrayAnswer, StrayBody};
use crate::state::{Event, State};
use duplicates::DuplicateFilter;
use step::Reassembly;

/// A NoChannel is accepted for packets up to this many numbers before the oldest one in flight.
const RECENT: u32 = 1024;

/// The two attributes of a channel (P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelKind {
    /// A descriptor completes when its packet is acknowledged; otherwise when its last cell was passed to the carrier.
    pub acknowledged: bool,
    /// It has one peer; otherwise each descriptor names its destination, and a packet is one cell.
    pub connected: bool,
}

/// The attributes of a work queue pair, fixed at creation.
#[derive(Debug, Clone)]
pub struct WqpInit {
    /// Its number at its port, which completions contain.
    pub number: Qpn,
    /// Its channel's attributes.
    pub kind: ChannelKind,
    /// Its protection domain.
    pub pd: Pd,
    /// The completion queue of its sends.
    pub send_cq: Arc<Cq>,
    /// The completion queue of its receives.
    pub recv_cq: Arc<Cq>,
    /// The table of its memory; memory handles are STags of this table.
    pub tpt: Arc<Tpt>,
    /// Its limits.
    pub limits: Limits,
    /// The number of its first connectionless packet, preferably random. Connections have numbers of their own.
    pub first: PacketSeq,
}

/// The current state of a work queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Its state.
    pub state: State,
    /// The peer that it is connected to.
    pub peer: Option<Peer>,
    /// Most payload of its cells.
    pub cell: u16,
    /// Descriptors of the send queue that have not completed.
    pub sends: usize,
    /// Descriptors of the receive queue that have not completed.
    pub receives: usize,
    /// Its counters.
    pub counters: Counters,
    /// The reason of the last rejected cell.
    pub refused: Option<Refused>,
}

/// Progress of a send descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendState {
    /// To be sent, for the first time or again.
    Waiting,
    /// In flight, with this timeout; of connectionless packets only.
    Sent(Time),
    /// To be sent again at this time, because the peer had no receive or the memory is not registered yet.
    Held(Time),
    /// Finished; completes after those before it.
    Done(Status),
}

/// A send descriptor.
#[derive(Debug)]
struct Queued {
    id: u64,
    op: WcOp,
    flags: Flags,
    immediate: Option<u32>,
    remote: Option<RemoteAddr>,
    destination: Option<Peer>,
    payload: Payload,
    len: u32,
    state: SendState,
    tries: u32,
    busy: u32,
}

/// The position of the next cell.
#[derive(Debug, Default)]
struct Cursor {
    /// Index of the descriptor, from the front.
    at: usize,
    /// Number of the cell in its packet.
    cell: u16,
    /// The packet's checksum so far.
    crc: Option<Crc32c>,
}

/// The work queue pair.
#[derive(Debug)]
pub(crate) struct Wqp {
    pub(crate) init: WqpInit,
    pub(crate) state: State,
    pub(crate) peer: Option<Peer>,
    /// The only source of which a connectionless kind accepts packets; `None`: any.
    pub(crate) source: Option<Peer>,
    /// It is in the port's list of ready work queue pairs.
    pub(crate) queued: bool,
    /// Payload of the channel's cells.
    cell: u16,
    /// The Connect or Accept, while it may still be sent.
    handshake: Option<handshake::Handshake>,
    /// The first packet numbers of this connection, each way.
    first_tx: PacketSeq,
    first_rx: PacketSeq,

    sends: VecDeque<Queued>,
    /// Descriptors at the front for which the doorbell was rung.
    rung_sends: usize,
    /// The packet number of the descriptor at the front.
    una: PacketSeq,
    cursor: Cursor,
    /// Descriptors at the front that were sent in full at least once.
    fully_sent: usize,
    /// The current window, and the packets acknowledged since it changed.
    window: usize,
    credit: usize,
    /// The retransmission timeout.
    timer: Option<Time>,
    /// Nothing is sent before this time.
    hold: Option<Time>,
    tries: u32,
    /// When the first of the current retries was due.
    silent_since: Option<Time>,
    busy: u32,
    naks: u32,
    rtt: rtt::RttEstimator,
    keepalive: keepalive::Keepalive,

    receives: VecDeque<Receive>,
    rung_receives: usize,
    /// The next packet in order.
    expected: PacketSeq,
    partial: Option<Reassembly>,
    /// A gap was reported, and no cell in order has arrived since.
    nak_sent: bool,
    /// The peer waits for a receive.
    starved: bool,
    pending_ack: bool,
    pending_nak: Option<NakReason>,
    /// Answers to connectionless packets.
    pending_answers: VecDeque<(Peer, PacketSeq, Option<NakReason>)>,
    duplicates: DuplicateFilter,
    /// Sources of connectionless packets, by the receive that they completed.
    sources: VecDeque<(u64, Peer)>,
    counters: Counters,
    refused: Option<Refused>,
}

impl Wqp {
    pub(crate) fn new(init: WqpInit, config: &Config) -> Wqp {
        let state = if init.kind.connected {
            State::Idle
        } else {
            State::Open
        };
        Wqp {
            state,
            peer: None,
            source: None,
            queued: false,
            cell: config.cell,
            handshake: None,
            first_tx: init.first,
            first_rx: PacketSeq::default(),
            sends: VecDeque::new(),
            rung_sends: 0,
            una: init.first,
            cursor: Cursor::default(),
            fully_sent: 0,
            window: config.window,
            credit: 0,
            timer: None,
            hold: None,
            tries: 0,
            silent_since: None,
            busy: 0,
            naks: 0,
            rtt: rtt::RttEstimator::default(),
            keepalive: keepalive::Keepalive::default(),
            receives: VecDeque::new(),
            rung_receives: 0,
            expected: PacketSeq::default(),
            partial: None,
            nak_sent: false,
            starved: false,
            pending_ack: false,
            pending_nak: None,
            pending_answers: VecDeque::new(),
            duplicates: DuplicateFilter::default(),
            sources: VecDeque::new(),
            counters: Counters::default(),
            refused: None,
            init,
        }
    }

    pub(crate) fn view(&self) -> View {
        View {
            state: self.state,
            peer: self.peer,
            cell: self.cell,
            sends: self.sends.len(),
            receives: self.receives.len() + usize::from(self.holds_receive()),
            counters: self.counters,
            refused: self.refused,
        }
    }

    /// The addressing of a cell to a peer.
    fn way(&self, here: PortAddress, to: Peer) -> CellRoute {
        CellRoute {
            to: to.port,
            from: here,
            to_wqp: to.wqp,
            from_wqp: self.init.number,
        }
    }

    pub(crate) fn refuse(&mut self, why: Refused) {
        self.refused = Some(why);
        self.counters.refuse(why);
    }

    /// When `on_timeout` must be called next.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let loose = self.sends.iter().filter_map(|queued| match queued.state {
            SendState::Sent(until) | SendState::Held(until) => Some(until),
            SendState::Waiting | SendState::Done(_) => None,
        });
        let own = self.timer.into_iter().chain(self.hold);
        let own = own.chain(self.keepalive.next_probe);
        if self.init.kind.connected {
            own.min()
        } else {
            own.chain(loose).min()
        }
    }

    /// Ends a connection or an attempt: the peer is told if `tell` says so, and in state Ended everything flushes in posting order.
    pub(crate) fn end(
        &mut self,
        here: PortAddress,
        event: Event,
        tell: Option<DisconnectReason>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) -> bool {
        let Some(next) = self.state.next(event) else {
            return false;
        };
        if let (State::Connected, Some(peer), Some(ending)) = (self.state, self.peer, tell) {
            fx.queue_stray(StrayAnswer {
                way: self.way(here, peer),
                packet: self.first_tx,
                body: StrayBody::Disconnect(ending),
            });
        }
        self.state = next;
        self.handshake = None;
        self.timer = None;
        self.hold = None;
        self.keepalive = keepalive::Keepalive::default();
        self.pending_answers.clear();
        (self.pending_ack, self.pending_nak) = (false, None);
        if next == State::Ended {
            self.flush(out);
        }
        true
    }

    /// Fails the channel: the descriptor at the front completes with the status in `struck`, if any, and all others flush.
    pub(crate) fn fail(
        &mut self,
        here: PortAddress,
        why: EndReason,
        struck: Option<Status>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        if self.state == State::Ended {
            return;
        }
        if let Some(status) = struck {
            self.fail_front(status, out);
        }
        let number = self.init.number;
        if self.end(here, Event::Failed, Some(DisconnectReason::Failed), fx, out) {
            out.push(verbena_nic::Event::QpFatal { qp: number.get() });
            fx.notices.push_back(Notice::Ended {
                wqp: number,
                reason: why,
            });
        }
    }

    /// The peer has ended the connection.
    pub(crate) fn on_peer_disconnect(
        &mut self,
        ending: DisconnectReason,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        let number = self.init.number;
        let nowhere = PortAddress::default();
        if self.end(nowhere, Event::PeerDisconnected, None, fx, out) {
            out.push(verbena_nic::Event::Disconnected { qp: number.get() });
            let why = EndReason::Peer(ending);
            fx.notices.push_back(Notice::Ended {
                wqp: number,
                reason: why,
            });
        }
    }

    /// This Disconnect is for the current connection.
    pub(crate) fn is_ended_by(
        &self,
        from: Peer,
        packet: PacketSeq,
        ending: DisconnectReason,
    ) -> bool {
        let ours = self.state == State::Connected && self.peer == Some(from);
        let numbered = match ending {
            // It repeats a packet number of this side: in flight, the next one, or a recent one.
            DisconnectReason::NoChannel => {
                let oldest = PacketSeq::new(self.una.get().wrapping_sub(RECENT));
                packet.minus(oldest) as usize <= RECENT as usize + self.started()
            }
            _ => packet == self.first_rx,
        };
        ours && numbered
    }

    /// Returns to the initial state, except for the counters and the packet number.
    pub(crate) fn reset(&mut self, config: &Config) -> bool {
        let event = if self.init.kind.connected {
            Event::Reset
        } else {
            Event::Reopen
        };
        if self.state.next(event).is_none() {
            return false;
        }
        let counters = self.counters;
        let first = self.una;
        let queued = self.queued;
        let source = self.source;
        *self = Wqp::new(
            WqpInit {
                first,
                ..self.init.clone()
            },
            config,
        );
        self.counters = counters;
        self.queued = queued;
        self.source = source;
        true
    }

    /// The source of the connectionless packet that completed this receive; returned once.
    pub(crate) fn take_source(&mut self, id: u64) -> Option<Peer> {
        let at = self
            .sources
            .iter()
            .position(|(receive, _)| *receive == id)?;
        self.sources.remove(at).map(|(_, peer)| peer)
    }
}
