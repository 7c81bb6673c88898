//! Executes the outputs of a session over its channels: the carrier of the simulation.
//! Each message and packet is one request of a channel, from memory that is not changed until it completes. A full queue is an error:
//! credit was exceeded.

use verbena_cells::{AddressSegment, ControlSegment, Descriptor, Operation};
use verbena_nic::wr::{Data, Flags, RemoteAddr, Sge};
use verbena_push::output::SEND_DATA_HEAD;
use verbena_push::{Channel, Output, Packet};

use super::super::accounting::Indication;
use super::{End, EndContext, MESSAGE, SLOT_SIZE, Source};

impl End {
    pub(super) fn perform(
        &mut self,
        output: Output,
        here: &mut EndContext<'_>,
    ) -> Result<(), String> {
        let head = SEND_DATA_HEAD;
        match output {
            Output::Send(bytes) => {
                self.messages += 1;
                let id = MESSAGE | self.messages;
                let request = (id, None, None);
                self.post(Channel::Control, request, Data::Inline(&bytes), here)
            }
            Output::SendData {
                packet,
                head: bytes,
                len,
            } => {
                let place = self.record_sent(packet, Indication::WithData, here)?;
                self.outbox.write(place * SLOT_SIZE, &bytes);
                let piece = self.sge(place, 0, head as u32 + len);
                let request = (packet.0, None, None);
                self.post(Channel::Control, request, Data::Gather(&[piece]), here)
            }
            Output::SendPacket { packet, len } => {
                let place = self.record_sent(packet, Indication::WithData, here)?;
                let piece = self.sge(place, head, len);
                let request = (packet.0, None, None);
                self.post(Channel::Data, request, Data::Gather(&[piece]), here)
            }
            Output::Write {
                packet,
                handle,
                at,
                len,
                immediate,
            } => {
                let form = match immediate {
                    Some(_) => Indication::WithData,
                    None => Indication::Separate,
                };
                let place = self.record_sent(packet, form, here)?;
                let piece = self.sge(place, head, len);
                let remote = RemoteAddr {
                    stag: handle,
                    to: at,
                };
                let request = (packet.0, Some(remote), immediate);
                self.post(Channel::Data, request, Data::Gather(&[piece]), here)
            }
            Output::Post { pool, first, count } => {
                let elements = (first..first + count).map(|element| (pool, element));
                self.elements.extend(elements);
                Ok(())
            }
            Output::Store {
                pool,
                element,
                from,
                len,
            } => {
                let bytes = self.current.get(from..from + len as usize);
                let bytes = bytes.ok_or("a packet reaches beyond its message")?.to_vec();
                self.memory(pool)?.store(element, &bytes)
            }
            Output::Withdraw { pool } => {
                self.elements.retain(|(of, _)| *of != pool);
                Ok(())
            }
            Output::Event(event) => self.handle_event(event, here),
        }
    }

    /// Records that a packet is handed to its channel; returns the place of its bytes.
    fn record_sent(
        &mut self,
        packet: Packet,
        form: Indication,
        here: &mut EndContext<'_>,
    ) -> Result<usize, String> {
        let source = self.sources.get(&packet).copied();
        let Source {
            slot: place,
            number,
        } = source.ok_or_else(|| format!("no packet {packet}"))?;
        let pool = self.lent_pool();
        self.accounting(true, here)?.record_sent(number, form, pool);
        Ok(place)
    }

    fn sge(&self, place: usize, from: usize, len: u32) -> Sge {
        Sge {
            addr: self.outbox.at() + (place * SLOT_SIZE + from) as u64,
            len,
            stag: self.outbox.stag(),
        }
    }

    fn post(
        &mut self,
        channel: Channel,
        (id, remote, immediate): (u64, Option<RemoteAddr>, Option<u32>),
        data: Data<'_>,
        here: &mut EndContext<'_>,
    ) -> Result<(), String> {
        let number = self.pair(channel)?;
        let descriptor = Descriptor {
            control: ControlSegment {
                id,
                operation: remote.map_or(Operation::Send, |_| Operation::Write),
                immediate,
                flags: Flags::SIGNALED,
            },
            address: remote.map(|remote| AddressSegment {
                remote: Some(remote),
                destination: None,
            }),
            data,
        };
        let posted = here.port.post_send(number, &descriptor);
        posted.map_err(|e| format!("{}: a request was refused: {e}", self.id))?;
        let rung = here.port.ring_send(number, here.out);
        rung.map_err(|e| e.to_string())
    }
}
