//! A service connection on a carrier: a session, its queue pairs, and the memory of both. It performs the session's outputs in their order
//! and never blocks. Packets are opaque but for TCP acknowledgements, of which one that a later one supersedes is not sent; a packet is
//! handed out in place, and in arrangement B the peer can still write to it (see [`Link::with_packet`]).
//!
//! Order of calls: [`Link::new`], connect or accept each [`pair`](Link::pair), [`connected`](Link::connected) for each; pass completions
//! to [`handle`](Link::handle); take packets and events; call [`drive`](Link::drive) after anything else, and [`tick`](Link::tick)
//! periodically.

mod channel_events;
mod inflight;
mod packets;
mod perform;
mod receive;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use verbena_nic::{Status, Wc};
use verbena_push::output::SEND_DATA_HEAD;
use verbena_push::{
    Arrangement, Channel, Counters, Event, IndicationMode, Misuse, Output, Packet, Refused,
    Session, Settings,
};
use verbena_split_wire::push::{Operation, Pool, Status as Answer};

use crate::capped_timer::CappedTimer;
use crate::carrier::{
    Carrier, CarrierError, Memory, MemoryAccess, Pair, PairOptions, no_datagrams,
};
use crate::channel_kinds::{ChannelKinds, InvalidKinds};
use crate::hello::channels;
use crate::slots::Slots;
use channel_events::ChannelReporter;
use inflight::Inflight;

/// The reference of our only pool.
const POOL_ID: u32 = 1;
/// How often state is repeated on a lossy carrier; the interval doubles while nothing comes, up to [`REFRESH_MOST`].
const REFRESH: Duration = Duration::from_millis(50);
const REFRESH_MOST: Duration = Duration::from_secs(1);
/// The shortest packets with which frames can pass: those of the least MTU of IPv4, with all headers.
const MIN_SIZE: u32 = 128;

/// Options of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkOptions {
    /// The arrangement (P5).
    pub arrangement: Arrangement,
    /// Packets in flight, in each direction.
    pub elements: u32,
    /// Bytes of the longest packet. On a connectionless data channel it is a cell at most.
    pub size: u32,
    /// The attributes of the channels (P2).
    pub kinds: ChannelKinds,
    /// How our packets are indicated in arrangement B (P7); the peer accepts every form.
    pub indication: IndicationMode,
}

impl LinkOptions {
    /// With the arrangement's own channels.
    pub const fn new(arrangement: Arrangement, elements: u32, size: u32) -> LinkOptions {
        LinkOptions {
            arrangement,
            elements,
            size,
            kinds: ChannelKinds::of(arrangement),
            indication: IndicationMode::Immediate,
        }
    }
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A request failed.
    #[error("{what} failed: {status:?}")]
    Failed {
        /// The kind of request.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// The carrier.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The arrangement cannot use such channels.
    #[error(transparent)]
    Kinds(#[from] InvalidKinds),
    /// The cells of a connectionless channel are too short for frames.
    #[error(
        "cells of {0} bytes are too short for connectionless packets, which need {MIN_SIZE}: see --cell"
    )]
    ShortCells(u32),
    /// The session rejected a call: a bug.
    #[error("the session: {0}")]
    Session(#[from] Misuse),
    /// The carrier and the session disagree: a bug.
    #[error("a completion for an unknown request: {0:#x}")]
    UnknownCompletion(u64),
}

/// An event of a link, besides packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// A request of the peer to the configuration service, which must be answered.
    Request {
        /// Identifies the request.
        context: u64,
        /// The operation.
        operation: Operation,
        /// Its data.
        data: Vec<u8>,
    },
    /// The answer to our request.
    Reply {
        /// Identifies the request.
        context: u64,
        /// The operation.
        operation: Operation,
        /// The result.
        status: Answer,
        /// The data of the answer.
        data: Vec<u8>,
    },
}

/// A service connection.
#[derive(Debug)]
pub struct Link {
    session: Session,
    options: LinkOptions,
    control: Pair,
    data: Option<Pair>,
    connected: [bool; 2],
    /// Completions that came before all channels were connected.
    early: Vec<Wc>,
    /// The elements that we lend, and whether the peer has stopped using them.
    pool: Box<dyn Memory>,
    is_freed: bool,
    is_recalled: bool,
    /// Buffers of the control channel's receives.
    receives: Slots,
    /// Messages in flight.
    messages: Slots,
    /// Packets in flight: room for a message's head, then the packet.
    packets: Slots,
    /// The packet in each used slot, and its length.
    slot_packets: Vec<Option<(Packet, u32)>>,
    inflight: Inflight,
    /// An acknowledgement that may be superseded by a later one, and how many were.
    held_ack: Option<packets::HeldAck>,
    superseded_acks: u64,
    /// Packets given to the session that it has not yet said how to send.
    queued: VecDeque<(Packet, u32)>,
    /// Outputs that wait for a message slot.
    blocked_outputs: VecDeque<Output>,
    /// The message that is being handled.
    current: Vec<u8>,
    arrived: VecDeque<(u32, u32)>,
    events: VecDeque<LinkEvent>,
    /// Time since the last sign of life of the peer.
    silence: CappedTimer,
    /// When state is repeated next on a lossy carrier, and the interval.
    refresh: Option<(Instant, Duration)>,
    /// Reports what happens on the channels, while it is observed.
    channel_reporter: ChannelReporter,
}

impl Link {
    /// A link whose channels are not connected yet; its receives are posted.
    pub fn new(
        carrier: &mut dyn Carrier,
        mut options: LinkOptions,
        now: Instant,
    ) -> Result<Link, LinkError> {
        options.kinds.check(options.arrangement)?;
        if options.kinds.connectionless {
            let cell = carrier.datagram_size();
            let cell = cell.ok_or_else(|| no_datagrams(carrier.name()))?;
            if cell < MIN_SIZE {
                return Err(LinkError::ShortCells(cell));
            }
            options.size = options.size.min(cell);
        }
        let LinkOptions {
            arrangement,
            elements,
            size,
            kinds: ChannelKinds { acknowledged, .. },
            indication,
        } = options;
        let settings = Settings {
            low: 0,
            indication,
            ..Settings::new(arrangement)
        };
        let session = Session::new(settings)?;
        let single = arrangement == Arrangement::Single;
        let (frames, longest) = if single {
            let longest = (size as usize + SEND_DATA_HEAD).max(settings.frame as usize);
            (elements, longest)
        } else {
            (0, settings.frame as usize)
        };
        let descriptors = settings.messages + frames;
        let reach = match arrangement {
            Arrangement::Writes => MemoryAccess::RemoteWrite,
            Arrangement::Sends | Arrangement::Single => MemoryAccess::Local,
        };
        // A host's queue pairs must not reach memory lent to another host, whatever STag they name.
        carrier.new_protection_domain()?;
        // If a later step fails, memory is freed by its drop; queue pairs belong to the carrier and are destroyed by `close`.
        let pool = carrier.register_memory(elements as usize * size as usize, reach)?;
        let receives = Slots::new(carrier, descriptors, longest)?;
        let messages = Slots::new(carrier, 2 * settings.messages, settings.frame as usize)?;
        let packets = Slots::new(carrier, elements, SEND_DATA_HEAD + size as usize)?;
        let control = carrier.create_pair(PairOptions {
            acknowledged,
            sends: (2 * settings.messages + frames) as usize,
            receives: descriptors as usize,
        })?;
        let lossy = carrier.is_lossy() && !acknowledged;
        let mut link = Link {
            session,
            options,
            control,
            data: None,
            connected: [false, channels(arrangement) == 1],
            early: Vec::new(),
            pool,
            is_freed: false,
            is_recalled: false,
            receives,
            messages,
            packets,
            slot_packets: vec![None; elements as usize],
            inflight: Inflight::default(),
            held_ack: None,
            superseded_acks: 0,
            queued: VecDeque::new(),
            blocked_outputs: VecDeque::new(),
            current: Vec::new(),
            arrived: VecDeque::new(),
            events: VecDeque::new(),
            silence: CappedTimer::new(now),
            refresh: lossy.then_some((now + REFRESH, REFRESH)),
            channel_reporter: ChannelReporter::default(),
        };
        match link.complete(carrier) {
            Ok(()) => Ok(link),
            Err(lost) => {
                link.close(carrier);
                Err(lost)
            }
        }
    }

    /// Creates the second channel, if there is one, and posts receives for both.
    fn complete(&mut self, carrier: &mut dyn Carrier) -> Result<(), LinkError> {
        if channels(self.options.arrangement) > 1 {
            let options = PairOptions {
                acknowledged: self.options.kinds.acknowledged,
                sends: self.options.elements as usize,
                receives: self.options.elements as usize,
            };
            self.data = Some(match self.options.kinds.connectionless {
                true => carrier.create_datagram_pair(options)?,
                false => carrier.create_pair(options)?,
            });
        }
        self.post_first(carrier)
    }

    /// The number of the data pair, which the peer must know, if the data channel is connectionless.
    pub fn datagram_pair(&self) -> Option<u32> {
        let data = self.data.filter(|_| self.options.kinds.connectionless);
        data.map(|pair| pair.0)
    }

    /// The peer's data pair has this number; to be called before [`connected`](Link::connected), when the carrier has connected or accepted
    /// the control channel.
    pub fn bind_datagrams(
        &mut self,
        carrier: &mut dyn Carrier,
        number: u32,
    ) -> Result<(), LinkError> {
        if let Some(data) = self.data.filter(|_| self.options.kinds.connectionless) {
            carrier.bind_datagrams(data, self.control, number)?;
            self.connected[1] = true;
        }
        Ok(())
    }

    /// The options that it was created with.
    pub fn options(&self) -> &LinkOptions {
        &self.options
    }

    /// The queue pair of a channel.
    pub fn pair(&self, channel: u8) -> Option<Pair> {
        match channel {
            0 => Some(self.control),
            1 => self.data,
            _ => None,
        }
    }

    /// Whether a queue pair belongs to it.
    pub fn owns(&self, pair: Pair) -> bool {
        self.control == pair || self.data == Some(pair)
    }

    /// Whether all channels are connected.
    pub fn is_open(&self) -> bool {
        self.connected == [true; 2]
    }

    /// A channel is connected; true if it was the last. From then on packets can be sent as the peer lends elements.
    pub fn connected(&mut self, carrier: &mut dyn Carrier, pair: Pair) -> Result<bool, LinkError> {
        if self.is_open() {
            return Ok(false);
        }
        self.connected[usize::from(self.data == Some(pair))] = true;
        if !self.is_open() {
            return Ok(false);
        }
        self.session.advertise(&[Pool {
            reference: POOL_ID,
            count: self.options.elements,
            size: self.options.size,
            handle: self.pool.stag(),
            at: self.pool.address(),
            context: 0,
        }])?;
        self.drive(carrier)?;
        for wc in core::mem::take(&mut self.early) {
            self.completed(carrier, &wc)?;
        }
        Ok(true)
    }

    /// Time since the last sign of life of the peer. A pause between two calls counts for half a second at most: a process that was suspended
    /// has neither sent nor received, and the silence may be its own.
    pub fn silence(&mut self, now: Instant) -> Duration {
        self.silence.advance(now)
    }

    /// Whether the peer is lost: silent for longer than `patience` although everything received was processed. If the carrier never becomes
    /// idle because of other connections, for twice as long.
    pub fn is_lost(&mut self, carrier: &mut dyn Carrier, now: Instant, patience: Duration) -> bool {
        let silent = self.silence(now);
        silent > patience && (silent > patience * 2 || carrier.prepare_sleep())
    }

    /// The session's counters.
    pub fn counters(&self) -> &Counters {
        self.session.counters()
    }

    /// Free elements of the peer.
    pub fn free(&self) -> u64 {
        self.session.free()
    }

    /// Acknowledgements not sent because a later one superseded them.
    pub fn superseded_acks(&self) -> u64 {
        self.superseded_acks
    }

    /// Whether a packet can be sent.
    pub fn has_room(&self) -> bool {
        let needed = u64::from(self.held_ack.is_some());
        let elements = self.packets.free() > 0 && self.session.free() > needed;
        self.is_open() && elements && self.inflight.has_room()
    }

    /// Whether no packet of ours is in flight and no output waits.
    pub fn is_idle(&self) -> bool {
        self.packets.free() == self.packets.count() as usize && self.blocked_outputs.is_empty()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// Sends a request to the peer's configuration service; the context identifies the answer.
    pub fn request(&mut self, operation: Operation, data: &[u8]) -> Result<u64, Misuse> {
        self.session.request(operation, data)
    }

    /// Requests without an answer.
    pub fn waiting(&self) -> usize {
        self.session.open_requests()
    }

    /// Answers a request of the peer.
    pub fn reply(&mut self, context: u64, status: Answer, data: &[u8]) -> Result<(), Misuse> {
        self.session.reply(context, status, data)
    }

    /// Recalls our pool (P6); [`is_freed`](Link::is_freed) when the peer has stopped using it.
    pub fn recall(&mut self) -> Result<(), Misuse> {
        self.is_recalled = true;
        self.session.flush(&[POOL_ID]).map(drop)
    }

    /// Whether the link continues without this pair. In arrangement A a recall ends the data channel to withdraw its receives, and that end
    /// may arrive before the peer's last messages on the control channel.
    pub fn outlives(&self, pair: Pair) -> bool {
        self.is_recalled && self.data == Some(pair)
    }

    /// Whether the peer has stopped using our pool.
    pub fn is_freed(&self) -> bool {
        self.is_freed
    }

    /// Repeats what a lossy carrier may have lost, when it is due.
    pub fn tick(&mut self, carrier: &mut dyn Carrier, now: Instant) -> Result<(), LinkError> {
        if let Some((at, wait)) = self.refresh
            && at <= now
            && self.is_open()
        {
            // The interval grows until something comes.
            let wait = (wait * 2).min(REFRESH_MOST);
            self.refresh = Some((now + wait, wait));
            self.session.refresh();
        }
        self.drive(carrier)
    }

    /// When [`tick`](Link::tick) is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.refresh.map(|(at, _)| at)
    }

    /// Ends it: destroys its queue pairs, so that its memory can be freed.
    pub fn close(self, carrier: &mut dyn Carrier) {
        carrier.destroy(self.control);
        if let Some(data) = self.data {
            carrier.destroy(data);
        }
    }

    /// Records a sign of life.
    fn note_alive(&mut self, now: Instant) {
        self.silence.restart(now);
        if let Some(refresh) = &mut self.refresh {
            // Sooner, but never later: a lost message must be repeated however much comes in the other direction.
            *refresh = (refresh.0.min(now + REFRESH), REFRESH);
        }
    }
}

#[cfg(test)]
mod tests;
