//! One end of a service connection: a session, its channels, and the execution of the session's outputs over them.
//! It keeps the contract of a carrier (docs/push.md): order, outputs before the next input, and descriptors for every credit. Whatever
//! the session or the port refuses without cause is an error.

mod outputs;
mod program;

pub(super) use program::Activity;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use verbena_cells::{ChannelKind, Port, WqpInit};
use verbena_mem::{Access, Buffer, Pd, Tpt};
use verbena_nic::qp::Limits;
use verbena_nic::wr::{ReceiveWr, Sge};
use verbena_nic::{Cq, Outbox, Status, Wc};
use verbena_push::{Arrangement, Channel, IndicationMode, Packet, Session, Settings};
use verbena_split_wire::cell::PacketSeq;
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use super::accounting::PacketAccounting;
use super::memory::Memory;
use super::service_id::ServiceId;
use crate::rng::Rng;

/// Limits of elements of one pool, and of pools at a time.
const ELEMENTS: u32 = 16;
const POOLS: usize = 3;
/// Limits of bytes of a message and of an element.
const FRAME: u32 = 128;
const SIZE: u32 = 1500;
/// Bytes of a place in the own buffers.
const SLOT_SIZE: usize = 2048;
/// Places for packets that are under way.
const SOURCES: usize = 48;
/// Descriptors for messages.
const MESSAGES: u32 = 12;
/// No queue needs more: what is lent limits what is under way.
const LIMITS: Limits = Limits {
    sends: 2 * (MESSAGES as usize + SOURCES),
    receives: MESSAGES as usize + POOLS * ELEMENTS as usize,
    max_sge: 1,
    inline: FRAME as usize,
};
/// Marks a message among the requests of the control channel.
const MESSAGE: u64 = 1 << 63;
/// Contents of the own memory where nothing is stored.
const EMPTY: u8 = 0xee;

/// The context of an end: its node and the time.
pub(super) struct EndContext<'a> {
    pub(super) port: &'a mut Port,
    pub(super) out: &'a mut Outbox,
    pub(super) accounting: &'a mut BTreeMap<u32, PacketAccounting>,
    pub(super) rng: &'a mut Rng,
    pub(super) now: Time,
}

/// A packet whose bytes the session uses.
#[derive(Debug, Clone, Copy)]
struct Source {
    slot: usize,
    number: u32,
}

/// One end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) id: ServiceId,
    at_unit: bool,
    session: Session,
    /// Its work queue pairs, control and data, and whether each is connected.
    pub(super) pairs: Vec<Qpn>,
    pub(super) connected: Vec<bool>,
    tpt: Arc<Tpt>,
    pd: Pd,
    sent: Arc<Cq>,
    received: Arc<Cq>,
    inbox: Buffer,
    /// Places of the inbox that are not posted, by channel.
    idle: [Vec<u64>; 2],
    posted: [usize; 2],
    /// Elements that are descriptors of the data channel (A), in order.
    elements: VecDeque<(u32, u32)>,
    outbox: Buffer,
    free: Vec<usize>,
    sources: BTreeMap<Packet, Source>,
    /// The message being handled.
    current: Vec<u8>,
    messages: u64,
    program: program::Program,
}

impl End {
    /// Creates an end with its channels, not connected yet.
    pub(super) fn new(
        name: ServiceId,
        at_unit: bool,
        (tpt, pd, pairs): (&Arc<Tpt>, Pd, Vec<Qpn>),
        here: &mut EndContext<'_>,
    ) -> Result<End, String> {
        let arrangement = name.arrangement;
        let mut settings = Settings::new(arrangement);
        settings.frame = FRAME;
        settings.messages = here.rng.range(8, u64::from(MESSAGES)) as u32;
        settings.low = here.rng.below(6) as u32;
        settings.indication = here.rng.pick(&[
            IndicationMode::Immediate,
            IndicationMode::Immediate,
            IndicationMode::Element,
            IndicationMode::Address,
        ]);
        settings.limits.pools = POOLS as u32 + 1;
        settings.limits.elements = (POOLS as u32 + 1) * ELEMENTS;
        settings.limits.transactions = 8;
        settings.limits.outputs = 1024;
        let session = Session::new(settings).map_err(|e| e.to_string())?;
        let buffer = |places: usize| {
            let buffer = Buffer::new(tpt, places * SLOT_SIZE, pd, Access::LOCAL_WRITE);
            buffer.map_err(|e| e.to_string())
        };
        let places = u64::from(MESSAGES + ELEMENTS);
        let data = places..places + u64::from(ELEMENTS);
        let cq = |number| Cq::new(number, 2048).map(Arc::new);
        let (sent, received) = (cq(0), cq(1));
        let (sent, received) = sent
            .and_then(|sent| Ok((sent, received?)))
            .map_err(|e| e.to_string())?;
        for number in &pairs {
            let made = here.port.create(WqpInit {
                number: *number,
                kind: ChannelKind {
                    acknowledged: arrangement != Arrangement::Sends,
                    connected: true,
                },
                pd,
                send_cq: sent.clone(),
                recv_cq: received.clone(),
                tpt: tpt.clone(),
                limits: LIMITS,
                first: PacketSeq::default(),
            });
            made.map_err(|e| e.to_string())?;
        }
        let mut end = End {
            id: name,
            at_unit,
            session,
            connected: vec![false; pairs.len()],
            pairs,
            tpt: tpt.clone(),
            pd,
            sent,
            received,
            inbox: buffer(data.end as usize)?,
            idle: [(0..places).collect(), data.collect()],
            posted: [0, 0],
            elements: VecDeque::new(),
            outbox: buffer(SOURCES)?,
            free: (0..SOURCES).collect(),
            sources: BTreeMap::new(),
            current: Vec::new(),
            messages: 0,
            program: program::Program::new(here),
        };
        for outgoing in [true, false] {
            let tag = end.tag(outgoing);
            let accounting = || PacketAccounting::new(tag, arrangement);
            here.accounting.entry(tag).or_insert_with(accounting);
        }
        end.post_receives(here)?;
        Ok(end)
    }

    fn tag(&self, outgoing: bool) -> u32 {
        self.id.number * 2 + u32::from(outgoing != self.at_unit)
    }

    fn accounting<'a>(
        &self,
        outgoing: bool,
        here: &'a mut EndContext<'_>,
    ) -> Result<&'a mut PacketAccounting, String> {
        let tag = self.tag(outgoing);
        here.accounting
            .get_mut(&tag)
            .ok_or("no packet accounting for this connection".to_owned())
    }

    /// Whether all its channels are connected.
    pub(super) fn is_open(&self) -> bool {
        self.connected.iter().all(|connected| *connected)
    }

    fn pair(&self, channel: Channel) -> Result<Qpn, String> {
        let pair = self.pairs.get(channel as usize).copied();
        pair.ok_or_else(|| format!("output for the {channel} channel, which does not exist"))
    }

    /// Posts a receive for everything that may arrive on each channel, and no more.
    fn post_receives(&mut self, here: &mut EndContext<'_>) -> Result<(), String> {
        let data = match self.id.arrangement {
            Arrangement::Sends => self.elements.len(),
            Arrangement::Writes => self.lent_elements(),
            Arrangement::Single => 0,
        };
        let wanted = [self.session.descriptors() as usize, data];
        for (channel, number) in self.pairs.clone().into_iter().enumerate() {
            while self.posted[channel] < wanted[channel] {
                // P7: immediate data needs a descriptor, and no memory.
                let bare = channel == 1 && self.id.arrangement == Arrangement::Writes;
                let place = match bare {
                    true => Some(0),
                    false => self.idle[channel].pop(),
                };
                let id = place.ok_or("more elements are lent than buffers exist")?;
                let piece = Sge {
                    addr: self.inbox.at() + id * SLOT_SIZE as u64,
                    len: SLOT_SIZE as u32,
                    stag: self.inbox.stag(),
                };
                let scatter: &[Sge] = if bare { &[] } else { &[piece] };
                let receive = ReceiveWr { id, scatter };
                let posted = here.port.post_receive(number, &receive);
                posted.map_err(|e| format!("a receive was refused: {e}"))?;
                self.posted[channel] += 1;
            }
            let rung = here.port.ring_receive(number, here.out);
            rung.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Polls completions and handles them.
    pub(super) fn serve(&mut self, here: &mut EndContext<'_>) -> Result<(), String> {
        if !self.is_open() || self.is_idle(here.now) {
            return Ok(());
        }
        let mut wcs = [Wc::default(); 16];
        loop {
            // One queue for both channels keeps the order between them.
            let count = self.received.poll(&mut wcs);
            for wc in wcs.iter().take(count) {
                self.receive(wc, here)?;
            }
            let more = self.sent.poll(&mut wcs);
            for wc in wcs.iter().take(more) {
                self.complete(wc, here)?;
            }
            if count + more == 0 {
                return Ok(());
            }
        }
    }

    fn receive(&mut self, wc: &Wc, here: &mut EndContext<'_>) -> Result<(), String> {
        let channel = match self.pairs.first().map(|q| q.get()) == Some(wc.qpn) {
            true => Channel::Control,
            false => Channel::Data,
        };
        self.posted[channel as usize] -= 1;
        if wc.status != Status::Success {
            // The channel has ended; its port reports why.
            return Ok(());
        }
        self.program.last_arrival = here.now;
        let bare = wc.immediate.is_some();
        let bytes = match bare {
            true => Vec::new(),
            false => self.inbox.read(wc.id as usize * SLOT_SIZE, wc.len as usize),
        };
        if !bare {
            self.idle[channel as usize].push(wc.id);
        }
        let judged = match (channel, wc.immediate) {
            (Channel::Control, None) => {
                self.current = bytes;
                self.post_receives(here)?;
                self.session.handle_message(channel, &self.current)
            }
            (Channel::Data, None) => match self.elements.pop_front() {
                Some(place) => return self.store_in_descriptor(place, &bytes, here),
                // It arrives after the flush that gave it up for lost.
                None => Ok(()),
            },
            (_, Some(word)) => {
                self.post_receives(here)?;
                self.session.handle_immediate(channel, word)
            }
        };
        match judged {
            // Loss can make the rest look invalid.
            Err(violation) if self.id.arrangement != Arrangement::Sends => {
                return Err(format!("{}: {violation}", self.id));
            }
            _ => {}
        }
        self.drain(here)
    }

    /// A packet is in the descriptor of an element (A). After a loss the session may refuse it.
    fn store_in_descriptor(
        &mut self,
        (pool, element): (u32, u32),
        bytes: &[u8],
        here: &mut EndContext<'_>,
    ) -> Result<(), String> {
        let size = self.memory(pool)?.pool.size;
        let fits = bytes.len() <= size as usize;
        if fits {
            self.memory(pool)?.store(element, bytes)?;
        } else {
            // These descriptors are longer than elements, so the check that an adapter makes is made here.
            let late = self.accounting(false, here)?.check_late(bytes, pool);
            late.map_err(|why| format!("{}: {why}, and has {size}", self.id))?;
        }
        let taken = self
            .session
            .handle_packet(Channel::Data, bytes.len() as u32);
        match taken {
            Ok(()) if !fits => return Err(format!("{}: a packet that is too long", self.id)),
            Err(_) if fits => self.memory(pool)?.wipe(element),
            _ => {}
        }
        self.drain(here)
    }

    fn complete(&mut self, wc: &Wc, here: &mut EndContext<'_>) -> Result<(), String> {
        if wc.status != Status::Success || wc.id & MESSAGE != 0 {
            return Ok(());
        }
        let written = self.session.handle_written(Packet(wc.id));
        written.map_err(|e| e.to_string())?;
        self.drain(here)
    }

    /// Executes all outputs of the session.
    fn drain(&mut self, here: &mut EndContext<'_>) -> Result<(), String> {
        while let Some(output) = self.session.poll() {
            self.perform(output, here)?;
        }
        self.post_receives(here)
    }

    /// The connection has ended: nothing arrives on its channels, and its memory is the program's again (P9).
    pub(super) fn close(mut self, here: &mut EndContext<'_>) -> Result<Vec<Memory>, String> {
        for number in &self.pairs {
            let view = here.port.view(*number);
            // Nothing may be sent for which the receiver has no place.
            let counters = view.map(|view| view.counters).unwrap_or_default();
            let refused = counters.no_buffer + counters.handle + counters.bounds + counters.right;
            if self.id.arrangement != Arrangement::Sends && refused > 0 {
                return Err(format!("{}: cells were refused: {counters:?}", self.id));
            }
            let destroyed = here.port.destroy(*number, here.out);
            destroyed.map_err(|e| e.to_string())?;
        }
        let graves = core::mem::take(&mut self.program.memories).into_values();
        let mut graves: Vec<Memory> = graves.collect();
        graves.iter_mut().try_for_each(Memory::end)?;
        Ok(graves)
    }
}
