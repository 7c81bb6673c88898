//! One end of a service connection: a control and a data channel, memory, and pending events. Packets are pushed by a session, and requests
//! and announcements of the other models use the same message formats, so that all models indicate a transfer in the same way (P7).

mod wire;

use std::collections::VecDeque;

use verbena::low::{Cq, Limits, Qp, QpOptions, QpState, Sge};
use verbena::{Access, Device, Memory};
use verbena_push::{Arrangement, Event, Output, Packet, Refused, Session, Settings};
use verbena_split_wire::push::{Element, Indication, Message, Pool, Range};

use super::{Error, TransferMode};

/// Elements lent for pushing.
const ELEMENTS: u32 = 64;
/// Receives on each channel.
const RECEIVES: usize = 128;
/// Bytes of the longest message.
const MESSAGE: usize = 512;
/// The reference of the pool, and of the buffer named in a request.
const POOL: u32 = 1;

/// Where a packet arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketLocation {
    /// In this element of the pool.
    Element(u32),
    /// In the named buffer, or the destination of a read.
    Sink,
}

/// One end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) control: Qp,
    pub(super) data: Qp,
    cq: Cq,
    session: Session,
    pub(super) outward: TransferMode,
    pub(super) inward: TransferMode,
    size: u32,
    /// The lent pool, the named buffer, the source of packets, and buffers of received messages.
    pool: Memory,
    sink: Memory,
    source: Memory,
    message_buffers: Memory,
    /// Packets pushed and not completed.
    pushed: VecDeque<Packet>,
    /// A packet arrived.
    pub(super) arrived: Option<PacketLocation>,
    /// The peer requested a packet.
    pub(super) requested: Option<Pool>,
    /// The peer announced a packet.
    pub(super) announced: Option<Pool>,
    /// The peer has read our packet, so its memory can be reused.
    released: bool,
    /// Completed reads.
    pub(super) reads: u64,
}

impl End {
    pub(super) fn new(
        device: &Device,
        outward: TransferMode,
        inward: TransferMode,
        size: u32,
    ) -> Result<End, Error> {
        let pd = device.pd()?;
        let limits = Limits {
            sends: 64,
            receives: RECEIVES,
            max_sge: 1,
            inline: MESSAGE,
        };
        let cq = device.cq(2 * (limits.sends + limits.receives))?;
        let options = QpOptions::default().limits(limits);
        let [control, data] = [(); 2].map(|()| Qp::new(&pd, &cq, &cq, options));
        let len = size as usize;
        let settings = Settings {
            // No requests for more elements: the pool does not grow.
            low: 0,
            frame: MESSAGE as u32,
            ..Settings::new(Arrangement::Writes)
        };
        let end = End {
            control: control?,
            data: data?,
            cq,
            session: Session::new(settings)?,
            outward,
            inward,
            size,
            pool: pd.memory(ELEMENTS as usize * len, Access::ALL)?,
            sink: pd.memory(len, Access::ALL)?,
            source: pd.memory(len, Access::ALL)?,
            message_buffers: pd.memory(RECEIVES * MESSAGE, Access::ALL)?,
            pushed: VecDeque::new(),
            arrived: None,
            requested: None,
            announced: None,
            released: true,
            reads: 0,
        };
        end.control.modify(QpState::Init)?;
        end.data.modify(QpState::Init)?;
        for slot in 0..RECEIVES {
            end.post_message_recv(slot)?;
            end.post_immediate()?;
        }
        Ok(end)
    }

    /// Lends its pool, if packets are pushed to it.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        if self.inward == TransferMode::Push {
            let lent = describe_pool(&self.pool, ELEMENTS, self.size)?;
            self.session.advertise(&[lent])?;
            self.drive()?;
        }
        Ok(())
    }

    /// Whether the last packet's memory can be reused.
    pub(super) fn can_send(&self) -> bool {
        self.outward != TransferMode::Read || self.released
    }

    /// Builds the packet of this turn.
    pub(super) fn fill(&self, turn: u64) -> Result<(), Error> {
        self.source.put(0, &turn)?;
        let last = self.size as usize - 8;
        Ok(self.source.put(last, &turn)?)
    }

    /// Checks both ends of the packet that arrived.
    pub(super) fn check_packet(&self, place: PacketLocation, turn: u64) -> Result<(), Error> {
        let (memory, at) = match place {
            PacketLocation::Element(element) => (&self.pool, element as usize * self.size as usize),
            PacketLocation::Sink => (&self.sink, 0),
        };
        let last = at + self.size as usize - 8;
        let got: [u64; 2] = [memory.get(at)?, memory.get(last)?];
        if got != [turn; 2] {
            let sentence = format!("packet {turn} arrived with the contents {got:?}");
            return Err(Error::Failed(sentence));
        }
        Ok(())
    }

    /// Pushes the packet; false if no element is free.
    pub(super) fn push(&mut self) -> Result<bool, Error> {
        match self.session.send(self.size) {
            Ok(packet) => self.pushed.push_back(packet),
            Err(Refused::Full { .. }) => return Ok(false),
            Err(refused) => return Err(Error::Failed(refused.to_string())),
        }
        self.drive()?;
        Ok(true)
    }

    /// Requests a packet, and names a buffer for it.
    pub(super) fn request(&mut self) -> Result<(), Error> {
        let buffer = describe_pool(&self.sink, 1, self.size)?;
        let mut bytes = Vec::new();
        Message::emit_pools(0, &[buffer], &mut bytes);
        self.send_message(&bytes)
    }

    /// Writes the packet to the buffer that the peer named.
    pub(super) fn answer(&mut self) -> Result<(), Error> {
        let Some(buffer) = self.requested.take() else {
            return Ok(());
        };
        let immediate = Indication::fit(POOL, 0, self.size).map(Indication::immediate);
        self.post_write(wire::ANSWER, (buffer.handle, buffer.at), immediate)
    }

    /// The answer was written: sends the indication, if the packet is too long for immediate data.
    fn answer_written(&mut self) -> Result<(), Error> {
        if Indication::fit(POOL, 0, self.size).is_some() {
            return Ok(());
        }
        let written = Element::Index {
            pool: POOL,
            element: 0,
            length: self.size,
        };
        let mut bytes = Vec::new();
        Message::emit_elements(0, &[written], &mut bytes);
        self.send_message(&bytes)
    }

    /// Announces the packet's address.
    pub(super) fn announce(&mut self) -> Result<(), Error> {
        self.released = false;
        let buffer = describe_pool(&self.source, 1, self.size)?;
        let mut bytes = Vec::new();
        Message::emit_pools(0, &[buffer], &mut bytes);
        self.send_message(&bytes)
    }

    /// Reads the packet that the peer announced.
    pub(super) fn read(&mut self) -> Result<(), Error> {
        match self.announced.take() {
            Some(buffer) => self.post_read((buffer.handle, buffer.at)),
            None => Ok(()),
        }
    }

    /// The packet was checked: releases its memory.
    pub(super) fn release(&mut self, place: PacketLocation) -> Result<(), Error> {
        match place {
            PacketLocation::Element(element) => {
                self.session.give_back(POOL, element)?;
                self.drive()
            }
            PacketLocation::Sink if self.inward == TransferMode::Read => {
                let free = Range {
                    pool: POOL,
                    first: 0,
                    count: 1,
                };
                let mut bytes = Vec::new();
                Message::emit_ranges(0, &[free], &mut bytes);
                self.send_message(&bytes)
            }
            PacketLocation::Sink => Ok(()),
        }
    }

    /// Performs the session's outputs.
    fn drive(&mut self) -> Result<(), Error> {
        while let Some(output) = self.session.poll() {
            match output {
                Output::Send(bytes) => self.send_message(&bytes)?,
                Output::Write {
                    handle,
                    at,
                    immediate,
                    ..
                } => self.post_write(wire::PUSH, (handle, at), immediate)?,
                Output::Event(Event::Arrived { element, .. }) => {
                    self.arrived = Some(PacketLocation::Element(element));
                }
                // Room is not waited for here, and outputs of the other arrangements do not occur.
                _ => {}
            }
        }
        Ok(())
    }

    fn source(&self) -> Result<Sge, Error> {
        Ok(self.source.sge(0, self.size as usize)?)
    }
}

/// The description of memory that is sent to the peer.
fn describe_pool(memory: &Memory, count: u32, size: u32) -> Result<Pool, Error> {
    let start = memory.remote_addr(0)?;
    Ok(Pool {
        reference: POOL,
        count,
        size,
        handle: start.stag,
        at: start.to,
        context: 0,
    })
}
