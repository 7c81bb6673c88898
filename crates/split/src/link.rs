//! A service connection on a carrier: one session of messages, its queue pairs, and the memory that both need.
//! It promises to do everything that the session says, in its order, and that a packet is out of the peer's reach before
//! anybody looks at it. It refuses to wait, and to know what packets are, but for acknowledgements that a later one outdates.
//!
//! In which order to call: [`Link::new`], connect or accept each [`pair`](Link::pair), [`connected`](Link::connected) for each;
//! hand in completions; take packets and events; call [`drive`](Link::drive) after anything else, and [`tick`](Link::tick) now
//! and then.

mod flight;
mod packets;
mod perform;
mod receive;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use verbena_nic::{Status, Wc};
use verbena_push::session::SEND_DATA_HEAD;
use verbena_push::{
    Arrangement, Channel, Counters, Event, Misuse, Output, Packet, Refused, Session, Settings,
};
use verbena_wire::push::{Operation, Pool, Status as Answer};

use crate::awake::Awake;
use crate::carrier::{Carrier, CarrierError, Memory, Pair, PairOptions, Reach};
use crate::hello::channels;
use crate::slots::Slots;
use flight::Flight;

/// Our only pool.
const POOL: u32 = 1;
/// How often a lossy carrier is told again what it may have lost; rarer while nothing comes, up to [`REFRESH_MOST`].
const REFRESH: Duration = Duration::from_millis(50);
const REFRESH_MOST: Duration = Duration::from_secs(1);

/// What a link shall be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkOptions {
    /// What runs on it (P5).
    pub arrangement: Arrangement,
    /// Packets that the peer may have on the way to us, and we to it.
    pub elements: u32,
    /// Bytes of the longest packet.
    pub size: u32,
}

/// Why a link is no more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// A request failed.
    #[error("{what} failed: {status:?}")]
    Failed {
        /// Of what kind.
        what: &'static str,
        /// How.
        status: Status,
    },
    /// The carrier.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The session refuses what it was told to do: a fault of ours.
    #[error("the session: {0}")]
    Session(#[from] Misuse),
    /// The carrier and the session do not agree: a fault of ours.
    #[error("a completion that belongs to no request: {0:#x}")]
    Stray(u64),
}

/// Something about a link, but for packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// The peer asks the configuration service, and must be answered.
    Asked {
        /// Names the request.
        context: u64,
        /// What for.
        operation: Operation,
        /// Its data.
        data: Vec<u8>,
    },
    /// The answer to a request of ours.
    Answered {
        /// Names the request.
        context: u64,
        /// What for.
        operation: Operation,
        /// How it went.
        status: Answer,
        /// What it gives.
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
    /// Completions that came before all channels were there.
    early: Vec<Wc>,
    /// The elements that we lend, and whether the peer may still use them.
    pool: Box<dyn Memory>,
    is_freed: bool,
    is_recalled: bool,
    /// Where receives of the control channel land.
    receives: Slots,
    /// Messages on their way.
    messages: Slots,
    /// Packets on their way: room for a message's head, then the packet.
    packets: Slots,
    /// The packet in each slot that is out, and its length.
    carried: Vec<Option<(Packet, u32)>>,
    flight: Flight,
    /// An acknowledgement that waits for a later one, and how many were outdated by one.
    kept: Option<packets::Kept>,
    outdated: u64,
    /// Packets that the session knows of, and has not said yet how to send.
    queued: VecDeque<(Packet, u32)>,
    /// What waits for a message slot.
    held: VecDeque<Output>,
    /// The message that is being handled.
    current: Vec<u8>,
    arrived: VecDeque<(u32, u32)>,
    events: VecDeque<LinkEvent>,
    /// How long the peer is silent.
    silent: Awake,
    /// When a lossy carrier is asked again.
    refresh: Option<(Instant, Duration)>,
}

impl Link {
    /// A link whose channels are not connected yet; receives are posted, so that they may be.
    pub fn new(
        carrier: &mut dyn Carrier,
        options: LinkOptions,
        now: Instant,
    ) -> Result<Link, Lost> {
        let LinkOptions {
            arrangement,
            elements,
            size,
        } = options;
        let settings = Settings {
            low: 0,
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
            Arrangement::Writes => Reach::RemoteWrite,
            Arrangement::Sends | Arrangement::Single => Reach::Local,
        };
        // P5: only A is unacknowledged.
        let acknowledged = arrangement != Arrangement::Sends;
        // One host's pairs must not reach what was lent to another, whatever handle they name.
        carrier.separate()?;
        // Memory goes by itself if something after it fails; pairs are the carrier's, and are taken back.
        let pool = carrier.memory(elements as usize * size as usize, reach)?;
        let receives = Slots::new(carrier, descriptors, longest)?;
        let messages = Slots::new(carrier, 2 * settings.messages, settings.frame as usize)?;
        let packets = Slots::new(carrier, elements, SEND_DATA_HEAD + size as usize)?;
        let control = carrier.create(PairOptions {
            acknowledged,
            sends: (2 * settings.messages + frames) as usize,
            receives: descriptors as usize,
        })?;
        let lossy = carrier.can_lose() && !acknowledged;
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
            carried: vec![None; elements as usize],
            flight: Flight::default(),
            kept: None,
            outdated: 0,
            queued: VecDeque::new(),
            held: VecDeque::new(),
            current: Vec::new(),
            arrived: VecDeque::new(),
            events: VecDeque::new(),
            silent: Awake::new(now),
            refresh: lossy.then_some((now + REFRESH, REFRESH)),
        };
        match link.complete(carrier, acknowledged) {
            Ok(()) => Ok(link),
            Err(lost) => {
                link.close(carrier);
                Err(lost)
            }
        }
    }

    /// The second channel, if there is one, and receives for both.
    fn complete(&mut self, carrier: &mut dyn Carrier, acknowledged: bool) -> Result<(), Lost> {
        if channels(self.options.arrangement) > 1 {
            self.data = Some(carrier.create(PairOptions {
                acknowledged,
                sends: self.options.elements as usize,
                receives: self.options.elements as usize,
            })?);
        }
        self.post_first(carrier)
    }

    /// What it was made of.
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

    /// Whether a queue pair is one of its.
    pub fn has(&self, pair: Pair) -> bool {
        self.control == pair || self.data == Some(pair)
    }

    /// All channels are connected.
    pub fn is_open(&self) -> bool {
        self.connected == [true; 2]
    }

    /// A channel is connected; true if it was the last. From then on packets may be sent as the peer lends room.
    pub fn connected(&mut self, carrier: &mut dyn Carrier, pair: Pair) -> Result<bool, Lost> {
        if self.is_open() {
            return Ok(false);
        }
        self.connected[usize::from(self.data == Some(pair))] = true;
        if !self.is_open() {
            return Ok(false);
        }
        self.session.advertise(&[Pool {
            reference: POOL,
            count: self.options.elements,
            size: self.options.size,
            handle: self.pool.handle(),
            at: self.pool.at(),
            context: 0,
        }])?;
        self.drive(carrier)?;
        for wc in core::mem::take(&mut self.early) {
            self.completed(carrier, &wc)?;
        }
        Ok(true)
    }

    /// How long the peer has given no sign of life. A pause in which nobody looked counts for half a second at most: who was
    /// held up has neither asked nor listened, and the silence may be his own.
    pub fn silent(&mut self, now: Instant) -> Duration {
        self.silent.look(now)
    }

    /// The peer is gone: silent for longer than `patience`, although everything that came was looked at. A carrier that never comes
    /// to its end, because others keep it busy, makes that twice as long.
    pub fn is_lost(&mut self, carrier: &mut dyn Carrier, now: Instant, patience: Duration) -> bool {
        let silent = self.silent(now);
        silent > patience && (silent > patience * 2 || carrier.doze())
    }

    /// What the session counted.
    pub fn counters(&self) -> &Counters {
        self.session.counters()
    }

    /// Elements of the peer's that are free.
    pub fn free(&self) -> u64 {
        self.session.free()
    }

    /// Acknowledgements that were not sent, since a later one said the same and more.
    pub fn outdated(&self) -> u64 {
        self.outdated
    }

    /// A packet can be sent.
    pub fn has_room(&self) -> bool {
        let needed = u64::from(self.kept.is_some());
        let elements = self.packets.free() > 0 && self.session.free() > needed;
        self.is_open() && elements && self.flight.has_room()
    }

    /// Nothing of ours is on its way any more.
    pub fn is_still(&self) -> bool {
        self.packets.free() == self.packets.count() as usize && self.held.is_empty()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// Asks the peer's configuration service; the context names the answer.
    pub fn request(&mut self, operation: Operation, data: &[u8]) -> Result<u64, Misuse> {
        self.session.request(operation, data)
    }

    /// Requests that wait for their answers.
    pub fn waiting(&self) -> usize {
        self.session.waiting()
    }

    /// Answers the peer.
    pub fn reply(&mut self, context: u64, status: Answer, data: &[u8]) -> Result<(), Misuse> {
        self.session.reply(context, status, data)
    }

    /// Asks for our pool back (P6); [`is_freed`](Link::is_freed) when the peer has stopped.
    pub fn recall(&mut self) -> Result<(), Misuse> {
        self.is_recalled = true;
        self.session.flush(&[POOL]).map(drop)
    }

    /// It goes on without this pair. In arrangement A the peer takes its receives back with the data channel, whose end may
    /// come before what the peer said on the other one.
    pub fn outlives(&self, pair: Pair) -> bool {
        self.is_recalled && self.data == Some(pair)
    }

    /// The peer has stopped using our pool.
    pub fn is_freed(&self) -> bool {
        self.is_freed
    }

    /// Time has passed: says again what a carrier may have lost.
    pub fn tick(&mut self, carrier: &mut dyn Carrier, now: Instant) -> Result<(), Lost> {
        if let Some((at, wait)) = self.refresh
            && at <= now
            && self.is_open()
        {
            // Ever more rarely, until something comes.
            let wait = (wait * 2).min(REFRESH_MOST);
            self.refresh = Some((now + wait, wait));
            self.session.refresh();
        }
        self.drive(carrier)
    }

    /// When [`tick`](Link::tick) wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.refresh.map(|(at, _)| at)
    }

    /// Ends it: nothing reaches its memory any more, which goes with it.
    pub fn close(self, carrier: &mut dyn Carrier) {
        carrier.destroy(self.control);
        if let Some(data) = self.data {
            carrier.destroy(data);
        }
    }

    /// A sign of life came.
    fn hear(&mut self, now: Instant) {
        self.silent.begin(now);
        if let Some(refresh) = &mut self.refresh {
            // Sooner again, but never later: what was lost stays lost, however much comes the other way.
            *refresh = (refresh.0.min(now + REFRESH), REFRESH);
        }
    }
}

#[cfg(test)]
mod tests;
