//! Outgoing packets: an element is taken, the transfer requested from the carrier, and its completion reported. The indication goes
//! into the immediate data whenever it fits (P7). Packets are not queued: one without an element is refused.

use verbena_split_wire::push::{Body, Indication, Message};

use super::{ElementRequest, Session};
use crate::error::{Misuse, Refused};
use crate::output::{Event, Output, Packet, SEND_DATA_HEAD};
use crate::peer_pools::{PeerElementEvent, PeerElementState, Shortage};
use crate::settings::{Arrangement, IndicationMode};

/// A packet in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct InflightPacket {
    pool: u32,
    element: u32,
    len: u32,
}

impl Session {
    /// Sends a packet of `len` bytes; the number identifies it until [`Event::Sent`].
    pub fn send(&mut self, len: u32) -> Result<Packet, Refused> {
        let most = self.settings.limits.outputs;
        if self.is_backlogged() {
            return Err(Refused::Backlog { most });
        }
        let (pool, element) = match self.peer_pools.take(len) {
            Ok(taken) => taken,
            Err(shortage) => return Err(self.refuse(len, shortage)),
        };
        let packet = Packet(self.next_packet);
        self.next_packet += 1;
        let flight = InflightPacket { pool, element, len };
        let output = match self.settings.arrangement {
            Arrangement::Sends => Output::SendPacket { packet, len },
            Arrangement::Single => {
                self.counters.messages_out += 1;
                Output::SendData {
                    packet,
                    head: head(packet, len),
                    len,
                }
            }
            Arrangement::Writes => self.write(packet, flight),
        };
        self.inflight.insert(packet, flight);
        self.counters.packets_out += 1;
        self.outputs.push_back(output);
        self.request_if_low(len);
        Ok(packet)
    }

    /// The carrier is done with a packet's bytes. Where channels are acknowledged: the write was acknowledged, or everything sent on the
    /// control channel from now on arrives after it.
    pub fn handle_written(&mut self, packet: Packet) -> Result<(), Misuse> {
        let flight = self.inflight.remove(&packet);
        let InflightPacket { pool, element, len } =
            flight.ok_or(Misuse::UnknownPacket { packet })?;
        let step =
            |lent: &mut crate::peer_pools::PeerPool| lent.step(element, PeerElementEvent::Complete);
        if self.peer_pools.change(pool, step).flatten() == Some(PeerElementState::Written) {
            self.indications.push_back((pool, element, len));
        }
        self.event(Event::Sent { packet });
        self.settle_leases(pool);
        self.report_room();
        Ok(())
    }

    /// The output of an RDMA write (P7): indicated by 8, 8 and 16 bits of immediate data, or by a message once it has completed.
    fn write(&mut self, packet: Packet, flight: InflightPacket) -> Output {
        let InflightPacket { pool, element, len } = flight;
        let fits = Indication::fit(pool, element, len);
        let immediate = fits
            .filter(|_| self.settings.indication == IndicationMode::Immediate)
            .map(Indication::immediate);
        let begin = match immediate {
            Some(_) => PeerElementEvent::Push,
            None => PeerElementEvent::Write,
        };
        self.counters.immediates_out += u64::from(immediate.is_some());
        self.peer_pools
            .change(pool, |lent| lent.step(element, begin));
        let lent = self.peer_pools.get(pool);
        Output::Write {
            packet,
            handle: lent.map(|l| l.pool.handle).unwrap_or_default(),
            at: lent.map(|l| l.address(element)).unwrap_or_default(),
            len,
            immediate,
        }
    }

    fn refuse(&mut self, len: u32, shortage: Shortage) -> Refused {
        self.counters.full += 1;
        self.request_elements(len);
        let shortest = self.refused.map_or(len, |shortest| shortest.min(len));
        self.refused = Some(shortest);
        match shortage {
            Shortage::Full => Refused::Full { len },
            Shortage::TooLong { most } => Refused::TooLong { len, most },
        }
    }

    fn request_if_low(&mut self, len: u32) {
        if self.peer_pools.free() < u64::from(self.settings.low) {
            self.request_elements(len);
        }
    }

    /// Asks once (P6), and again only for a longer packet.
    fn request_elements(&mut self, len: u32) {
        let size = len.max(1);
        let due = match self.element_request {
            ElementRequest::No => true,
            ElementRequest::Due(asked) | ElementRequest::Sent(asked) => size > asked,
        };
        if due {
            self.element_request = ElementRequest::Due(size);
        }
    }
}

/// The bytes before the packet: a message without data, in which the size of the data is then set.
fn head(packet: Packet, len: u32) -> [u8; SEND_DATA_HEAD] {
    let message = Message {
        context: packet.0,
        body: Body::SendData(&[]),
    };
    let mut bytes = Vec::with_capacity(SEND_DATA_HEAD);
    message.emit(&mut bytes);
    let mut head = [0; SEND_DATA_HEAD];
    for (to, from) in head.iter_mut().zip(bytes) {
        *to = from;
    }
    if let Some(size) = head.last_chunk_mut::<4>() {
        *size = len.to_be_bytes();
    }
    head
}
