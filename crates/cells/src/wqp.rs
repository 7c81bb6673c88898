//! A work queue pair: its two queues, the channel between them and a peer, and where both stand.
//! It promises that descriptors complete in posting order, each once, and that of a packet under way nothing is kept but where
//! it goes and how far it came. It refuses to know other work queue pairs and the carrier.

mod alive;
mod answer;
mod complete;
mod hello;
mod pace;
mod place;
mod post;
mod reassemble;
mod seen;
mod step;
mod transmit;

pub(crate) use answer::Moment;
pub(crate) use transmit::{Emitted, Turn};

use std::collections::VecDeque;
use std::sync::Arc;

use verbena_mem::{Pd, Tpt};
use verbena_nic::qp::Limits;
use verbena_nic::receive::Receive;
use verbena_nic::wc::{Status, WcOp};
use verbena_nic::wr::{Flags, Remote};
use verbena_nic::{Cq, Outbox};
use verbena_stream::Time;
use verbena_wire::cell::{Ending, NakReason, PacketSeq, PortAddress, Way};
use verbena_wire::crc::Crc32c;
use verbena_wire::number::Qpn;

use crate::config::Config;
use crate::counters::{Counters, Refused};
use crate::descriptor::{Payload, Peer};
use crate::notice::{Effects, Notice, Says, Stray, Why};
use crate::state::{Event, State};
use seen::Seen;
use step::Reassembly;

/// Packets that left so many numbers ago may still be answered.
const RECENT: u32 = 1024;

/// The two attributes of a channel (P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelKind {
    /// A descriptor completes when its packet is acknowledged; otherwise when it is on the wire.
    pub acknowledged: bool,
    /// Bound to one peer; otherwise each descriptor names its destination, and a packet is one cell.
    pub connected: bool,
}

/// What a work queue pair is made of; fixed at creation.
#[derive(Debug, Clone)]
pub struct WqpInit {
    /// Its number at its port, by which completions name it.
    pub number: Qpn,
    /// Its channel's attributes.
    pub kind: ChannelKind,
    /// Its protection domain.
    pub pd: Pd,
    /// Where its sends complete.
    pub send_cq: Arc<Cq>,
    /// Where its receives complete.
    pub recv_cq: Arc<Cq>,
    /// The memory it works on; memory handles are STags of this table.
    pub tpt: Arc<Tpt>,
    /// Its limits.
    pub limits: Limits,
    /// The number of its first connectionless packet; best a random one. Connections have numbers of their own.
    pub first: PacketSeq,
}

/// What of a work queue pair changes, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Where it stands.
    pub state: State,
    /// Whom it is connected to.
    pub peer: Option<Peer>,
    /// Most payload of its cells.
    pub cell: u16,
    /// Descriptors of the send queue that have not completed.
    pub sends: usize,
    /// Descriptors of the receive queue that have not completed.
    pub receives: usize,
    /// What it has done.
    pub counters: Counters,
    /// Why it refused a cell last.
    pub refused: Option<Refused>,
}

/// How far a descriptor of the send queue has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Not sent yet, or to be sent again.
    Waiting,
    /// On its way until this moment; connectionless packets have their own.
    Sent(Time),
    /// To be sent again at this moment, because the peer had no receive.
    Held(Time),
    /// Done, and completes when those before it have.
    Done(Status),
}

/// A descriptor of the send queue.
#[derive(Debug)]
struct Queued {
    id: u64,
    op: WcOp,
    flags: Flags,
    immediate: Option<u32>,
    remote: Option<Remote>,
    destination: Option<Peer>,
    payload: Payload,
    len: u32,
    fate: Fate,
    tries: u32,
    busy: u32,
}

/// Where the next cell is cut from.
#[derive(Debug, Default)]
struct Cursor {
    /// Which descriptor, from the front.
    at: usize,
    /// Which of its cells.
    cell: u16,
    /// The packet's checksum so far, once it has one.
    crc: Option<Crc32c>,
}

/// The work queue pair.
#[derive(Debug)]
pub(crate) struct Wqp {
    pub(crate) init: WqpInit,
    pub(crate) state: State,
    pub(crate) peer: Option<Peer>,
    /// It waits for its turn to transmit.
    pub(crate) queued: bool,
    /// Payload of the cells of this channel.
    cell: u16,
    /// What is said to the peer while connecting.
    hello: Option<hello::Hello>,
    /// The first numbers of this connection, each way.
    first_tx: PacketSeq,
    first_rx: PacketSeq,

    sends: VecDeque<Queued>,
    /// Descriptors at the front that the doorbell was rung for.
    rung_sends: usize,
    /// The number of the descriptor at the front.
    una: PacketSeq,
    cursor: Cursor,
    /// Descriptors at the front that were sent in full at least once.
    whole: usize,
    /// Packets that may be under way now, and those acknowledged since that changed.
    window: usize,
    credit: usize,
    /// When something must have come.
    timer: Option<Time>,
    /// Nothing is sent before.
    hold: Option<Time>,
    tries: u32,
    /// When the first of these tries was over.
    silent_since: Option<Time>,
    busy: u32,
    naks: u32,
    pace: pace::Pace,
    alive: alive::Alive,

    receives: VecDeque<Receive>,
    rung_receives: usize,
    /// The packet whose turn it is.
    expected: PacketSeq,
    partial: Option<Reassembly>,
    /// The gap was told, and nothing has come in its turn since.
    nak_told: bool,
    /// The peer waits for a receive.
    starved: bool,
    owed_ack: bool,
    owed_nak: Option<NakReason>,
    /// Answers to connectionless packets.
    owed: VecDeque<(Peer, PacketSeq, Option<NakReason>)>,
    seen: Seen,
    /// Where connectionless packets came from, by the receive that took them.
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
            queued: false,
            cell: config.cell,
            hello: None,
            first_tx: init.first,
            first_rx: PacketSeq::default(),
            sends: VecDeque::new(),
            rung_sends: 0,
            una: init.first,
            cursor: Cursor::default(),
            whole: 0,
            window: config.window,
            credit: 0,
            timer: None,
            hold: None,
            tries: 0,
            silent_since: None,
            busy: 0,
            naks: 0,
            pace: pace::Pace::default(),
            alive: alive::Alive::default(),
            receives: VecDeque::new(),
            rung_receives: 0,
            expected: PacketSeq::default(),
            partial: None,
            nak_told: false,
            starved: false,
            owed_ack: false,
            owed_nak: None,
            owed: VecDeque::new(),
            seen: Seen::default(),
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

    /// The way to a peer.
    fn way(&self, here: PortAddress, to: Peer) -> Way {
        Way {
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

    /// When it wants to be looked at next.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let loose = self.sends.iter().filter_map(|queued| match queued.fate {
            Fate::Sent(until) | Fate::Held(until) => Some(until),
            Fate::Waiting | Fate::Done(_) => None,
        });
        let own = self.timer.into_iter().chain(self.hold);
        let own = own.chain(self.alive.until);
        if self.init.kind.connected {
            own.min()
        } else {
            own.chain(loose).min()
        }
    }

    /// Leaves the working states: the peer is told if `tell` says so, and everything flushes in posting order.
    pub(crate) fn end(
        &mut self,
        here: PortAddress,
        event: Event,
        tell: Option<Ending>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) -> bool {
        let Some(next) = self.state.next(event) else {
            return false;
        };
        if let (State::Connected, Some(peer), Some(ending)) = (self.state, self.peer, tell) {
            fx.stray(Stray {
                way: self.way(here, peer),
                packet: self.first_tx,
                says: Says::Disconnect(ending),
            });
        }
        self.state = next;
        self.hello = None;
        self.timer = None;
        self.hold = None;
        self.alive = alive::Alive::default();
        self.owed.clear();
        (self.owed_ack, self.owed_nak) = (false, None);
        if next == State::Ended {
            self.flush(out);
        }
        true
    }

    /// The channel fails: the descriptor at the front ends with `status` if it is what failed, all others flush.
    pub(crate) fn fail(
        &mut self,
        here: PortAddress,
        why: Why,
        struck: Option<Status>,
        fx: &mut Effects,
        out: &mut Outbox,
    ) {
        if self.state == State::Ended {
            return;
        }
        if let Some(status) = struck {
            self.strike_front(status, out);
        }
        let number = self.init.number;
        if self.end(here, Event::Failed, Some(Ending::Failed), fx, out) {
            out.push(verbena_nic::Event::QpFatal { qp: number.get() });
            fx.notices.push_back(Notice::Ended { wqp: number, why });
        }
    }

    /// The peer is gone.
    pub(crate) fn peer_gone(&mut self, ending: Ending, fx: &mut Effects, out: &mut Outbox) {
        let number = self.init.number;
        let nowhere = PortAddress::default();
        if self.end(nowhere, Event::PeerGone, None, fx, out) {
            out.push(verbena_nic::Event::Disconnected { qp: number.get() });
            let why = Why::Peer(ending);
            fx.notices.push_back(Notice::Ended { wqp: number, why });
        }
    }

    /// Does this Disconnect mean this connection?
    pub(crate) fn is_ended_by(&self, from: Peer, packet: PacketSeq, ending: Ending) -> bool {
        let ours = self.state == State::Connected && self.peer == Some(from);
        let numbered = match ending {
            // It repeats a number of ours: one that is under way, the next, or one that left a short while ago.
            Ending::NoChannel => {
                let oldest = PacketSeq::new(self.una.get().wrapping_sub(RECENT));
                packet.minus(oldest) as usize <= RECENT as usize + self.begun()
            }
            _ => packet == self.first_rx,
        };
        ours && numbered
    }

    /// As it was at first, but for its counters.
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
        *self = Wqp::new(
            WqpInit {
                first,
                ..self.init.clone()
            },
            config,
        );
        self.counters = counters;
        self.queued = queued;
        true
    }

    /// Where a connectionless packet came from that this receive took; told once.
    pub(crate) fn take_source(&mut self, id: u64) -> Option<Peer> {
        let at = self
            .sources
            .iter()
            .position(|(receive, _)| *receive == id)?;
        self.sources.remove(at).map(|(_, peer)| peer)
    }
}
