//! Packets of RoCEv2 to one destination that leave together: one system call sends up to 64 packets of one length and a shorter last one
//! (UDP_SEGMENT), and where the system cannot do that they are sent one by one. The ICRC of each packet is added here, while its bytes are in
//! the cache, over the IPv4 identification that the kernel will give it: the number of the packet in its call.
//!
//! What finds no room in the socket is kept and sent first when there is room; until then a burst takes no further packets.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use verbena_nic::PacketSender;
use verbena_nic::ud::SendOutcome;
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::Mutex;
use verbena_wire::roce::{ICRC_LEN, Packet, Path, icrc_of_segment};

use crate::capture::{self, Tap};
use crate::sys::segments::{MAX_SEGMENTS, MAX_SEGMENTS_LEN};
use crate::sys::{self, DatagramSocket, SegmentsOutcome};

/// Bursts that wait for room, at most: as many threads may find the socket full at the same moment. Further ones are lost.
const MAX_PENDING: usize = 16;
/// Buffers that are kept for later bursts.
const MAX_BUFFERS: usize = 16;

/// What bursts need of a socket.
pub(crate) trait PacketSocket {
    /// Sends a packet; false if there is no room now.
    fn send(&self, bytes: &[u8], to: SocketAddr) -> sys::Result<bool>;

    /// Sends the bytes as packets of `segment` bytes, the last of which may be shorter.
    fn send_segments(
        &self,
        bytes: &[u8],
        segment: usize,
        to: SocketAddr,
    ) -> sys::Result<SegmentsOutcome>;
}

impl PacketSocket for DatagramSocket {
    fn send(&self, bytes: &[u8], to: SocketAddr) -> sys::Result<bool> {
        DatagramSocket::send(self, bytes, to)
    }

    fn send_segments(
        &self,
        bytes: &[u8],
        segment: usize,
        to: SocketAddr,
    ) -> sys::Result<SegmentsOutcome> {
        DatagramSocket::send_segments(self, bytes, segment, to)
    }
}

/// The sending side of a port of RoCEv2, shared by all bursts.
#[derive(Debug)]
pub(super) struct BurstSender {
    /// The system cuts buffers into packets.
    segments: AtomicBool,
    /// There are pending bursts.
    full: AtomicBool,
    pending: Mutex<VecDeque<Pending>>,
    /// Buffers of earlier bursts.
    buffers: Mutex<Vec<Vec<u8>>>,
    tap: Arc<Tap>,
}

/// A burst, or the rest of one, that found no room.
#[derive(Debug)]
struct Pending {
    path: Path,
    to: SocketAddr,
    packets: Packets,
}

/// Packets behind each other, each with its ICRC. All have the length of the first; the last may be shorter.
#[derive(Debug, Default)]
struct Packets {
    /// Without memory before the first packet.
    buffer: Vec<u8>,
    /// Bytes of the first packet, and of all but the last.
    segment: usize,
    count: usize,
    /// The packets before this one have been sent, one by one.
    sent: usize,
    /// They are to be sent one by one, and have the ICRC for that.
    is_single: bool,
}

impl Default for BurstSender {
    fn default() -> BurstSender {
        BurstSender {
            segments: AtomicBool::new(true),
            full: AtomicBool::new(false),
            pending: Mutex::default(),
            buffers: Mutex::default(),
            tap: Arc::default(),
        }
    }
}

impl BurstSender {
    /// Packets that are sent can be captured by this tap.
    pub(super) fn with_tap(tap: &Arc<Tap>) -> BurstSender {
        BurstSender {
            tap: tap.clone(),
            ..BurstSender::default()
        }
    }

    #[cold]
    fn capture(&self, path: Path, packets: &Packets, range: core::ops::Range<usize>) {
        let ends = (
            SocketAddr::new(path.src, path.src_port),
            SocketAddr::new(path.dst, path.dst_port),
        );
        for number in range {
            // There are at most 64.
            let identification = if packets.is_single { 0 } else { number as u16 };
            let bytes = &packets.buffer[packets.range(number)];
            self.tap.put_packet(true, ends, identification, bytes);
        }
    }

    /// Bursts wait for room in the socket.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Sends what waits for room; false if some still does.
    pub(super) fn send_pending(&self, socket: &impl PacketSocket) -> bool {
        if !self.is_full() {
            return true;
        }
        let mut pending = self.pending.lock();
        while let Some(mut next) = pending.pop_front() {
            if self.send(socket, next.path, next.to, &mut next.packets) == SendOutcome::Full {
                pending.push_front(next);
                return false;
            }
            self.recycle(next.packets);
        }
        self.full.store(false, Ordering::Release);
        true
    }

    /// Drops what waits for room, when the port is closed.
    pub(super) fn clear(&self) {
        let mut pending = self.pending.lock();
        pending.clear();
        self.full.store(false, Ordering::Release);
    }

    /// Keeps a burst that found no room.
    fn keep(&self, path: Path, to: SocketAddr, packets: Packets) {
        let mut pending = self.pending.lock();
        if pending.len() < MAX_PENDING {
            pending.push_back(Pending { path, to, packets });
        }
        self.full.store(true, Ordering::Release);
    }

    fn send(
        &self,
        socket: &impl PacketSocket,
        path: Path,
        to: SocketAddr,
        packets: &mut Packets,
    ) -> SendOutcome {
        if packets.count > 1 && !packets.is_single && self.segments.load(Ordering::Relaxed) {
            match socket.send_segments(&packets.buffer, packets.segment, to) {
                Ok(SegmentsOutcome::Sent) => {
                    if capture::is_attached() {
                        self.capture(path, packets, 0..packets.count);
                    }
                    return SendOutcome::Sent;
                }
                Ok(SegmentsOutcome::Full) => return SendOutcome::Full,
                // No route, a firewall: the loss of packets is no error.
                Err(_) => return SendOutcome::Lost,
                Ok(SegmentsOutcome::Unsupported) => {}
            }
            let outcome = self.send_singly(socket, path, to, packets);
            if outcome == SendOutcome::Sent {
                // The length was not the reason.
                self.segments.store(false, Ordering::Relaxed);
            }
            return outcome;
        }
        self.send_singly(socket, path, to, packets)
    }

    fn send_singly(
        &self,
        socket: &impl PacketSocket,
        path: Path,
        to: SocketAddr,
        packets: &mut Packets,
    ) -> SendOutcome {
        packets.number_singly(path);
        let mut outcome = SendOutcome::Sent;
        while packets.sent < packets.count {
            match socket.send(&packets.buffer[packets.range(packets.sent)], to) {
                Ok(true) => {
                    if capture::is_attached() {
                        self.capture(path, packets, packets.sent..packets.sent + 1);
                    }
                }
                Ok(false) => return SendOutcome::Full,
                Err(_) => outcome = SendOutcome::Lost,
            }
            packets.sent += 1;
        }
        outcome
    }

    fn buffer(&self) -> Vec<u8> {
        let kept = self.buffers.lock().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(MAX_SEGMENTS_LEN))
    }

    fn recycle(&self, mut packets: Packets) {
        if packets.buffer.capacity() == 0 {
            return;
        }
        packets.buffer.clear();
        let mut buffers = self.buffers.lock();
        if buffers.len() < MAX_BUFFERS {
            buffers.push(packets.buffer);
        }
    }
}

impl Packets {
    /// A packet of `size` bytes can be appended.
    fn fits(&self, size: usize) -> bool {
        let room = self.count < MAX_SEGMENTS && self.buffer.len() + size <= MAX_SEGMENTS_LEN;
        let ended = self.buffer.len() < self.count * self.segment;
        self.count == 0 || room && !ended && size <= self.segment
    }

    /// Appends the packet that `write` appends, of `len` bytes, and its ICRC, with the identification of its number; nothing if `write` fails.
    fn push<E>(
        &mut self,
        path: Path,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = self.buffer.len();
        if let Err(error) = write(&mut self.buffer) {
            self.buffer.truncate(at);
            return Err(error);
        }
        debug_assert_eq!(self.buffer.len() - at, len, "a packet of another length");
        if self.count == 0 {
            self.segment = len + ICRC_LEN;
        }
        // There are at most 64.
        let icrc = icrc_of_segment(path, self.count as u16, &self.buffer[at..]);
        self.buffer.extend_from_slice(&icrc);
        self.count += 1;
        Ok(())
    }

    /// The bytes of a packet with its ICRC.
    fn range(&self, number: usize) -> core::ops::Range<usize> {
        let at = number * self.segment;
        at..(at + self.segment).min(self.buffer.len())
    }

    /// Sets the ICRC of all to that of single packets, whose identification is 0.
    fn number_singly(&mut self, path: Path) {
        if core::mem::replace(&mut self.is_single, true) {
            return;
        }
        // The first has that number already.
        for number in 1..self.count {
            let range = self.range(number);
            let packet = &mut self.buffer[range];
            if let Some((bytes, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() {
                *icrc = icrc_of_segment(path, 0, bytes);
            }
        }
    }

    fn clear(&mut self) {
        self.buffer.clear();
        (self.segment, self.count, self.sent) = (0, 0, 0);
        self.is_single = false;
    }
}

/// Packets to one destination. Those that were not flushed are lost when it is dropped.
pub(crate) struct Burst<'a, S: PacketSocket = DatagramSocket> {
    sender: &'a BurstSender,
    socket: &'a S,
    path: Path,
    to: SocketAddr,
    packets: Packets,
}

impl<'a, S: PacketSocket> Burst<'a, S> {
    pub(super) fn new(
        sender: &'a BurstSender,
        socket: &'a S,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Burst<'a, S> {
        let path = Path {
            src: from.ip(),
            dst: to.ip(),
            src_port: from.port(),
            dst_port: to.port(),
        };
        Burst {
            sender,
            socket,
            path,
            to,
            packets: Packets::default(),
        }
    }

    /// Sends what it holds. `Full`: there was no room, and it is sent when there is; the caller waits with
    /// [`resume_packets_when_writable`](super::udp_port::UdpPort::resume_packets_when_writable). `Lost`: some could not be sent for a
    /// reason outside the adapter, as if they were lost on the wire.
    pub(crate) fn flush(&mut self) -> SendOutcome {
        if self.packets.count == 0 {
            return SendOutcome::Sent;
        }
        let outcome = if self.sender.send_pending(self.socket) {
            self.sender
                .send(self.socket, self.path, self.to, &mut self.packets)
        } else {
            SendOutcome::Full
        };
        if outcome == SendOutcome::Full {
            let packets = core::mem::take(&mut self.packets);
            self.sender.keep(self.path, self.to, packets);
        } else {
            self.packets.clear();
        }
        outcome
    }
}

impl<S: PacketSocket> Burst<'_, S> {
    /// Takes a packet without its ICRC; false if there is no room.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) -> bool {
        let write = |packet: &mut Vec<u8>| {
            packet.extend_from_slice(bytes);
            Ok::<(), core::convert::Infallible>(())
        };
        self.put(bytes.len(), write).is_some()
    }

    /// Takes a packet that is not one of a queue pair's requests; false if there is no room.
    pub(crate) fn put_packet(&mut self, packet: &Packet<'_>) -> bool {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        self.put_bytes(&bytes)
    }

    /// Makes room for a packet of `size` bytes with its ICRC.
    fn make_room(&mut self, size: usize) -> bool {
        if size > MAX_SEGMENTS_LEN || !self.sender.send_pending(self.socket) {
            return false;
        }
        if !self.packets.fits(size) && self.flush() == SendOutcome::Full {
            return false;
        }
        if self.packets.buffer.capacity() == 0 {
            self.packets.buffer = self.sender.buffer();
        }
        true
    }
}

impl<S: PacketSocket> PacketSender for Burst<'_, S> {
    /// `None`: the caller waits with
    /// [`resume_packets_when_writable`](super::udp_port::UdpPort::resume_packets_when_writable).
    fn put<E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let size = len.checked_add(ICRC_LEN)?;
        let path = self.path;
        self.make_room(size)
            .then(|| self.packets.push(path, len, write))
    }
}

impl<S: PacketSocket> Drop for Burst<'_, S> {
    fn drop(&mut self) {
        self.sender.recycle(core::mem::take(&mut self.packets));
    }
}

#[cfg(test)]
mod tests;
