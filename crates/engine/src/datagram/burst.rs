//! Packets of RoCEv2 to one destination that leave together: one system call sends up to 64 packets of one length and a shorter last one
//! (UDP_SEGMENT), and where the system cannot do that they are sent one by one. The ICRC of each packet is added here, over the IPv4
//! identification that the kernel will give it: the number of the packet in its call.
//!
//! What finds no room in the socket is kept and sent first when there is room; until then a burst takes no further packets.

use core::net::SocketAddr;
use std::collections::VecDeque;

use verbena_nic::PacketSender;
use verbena_nic::ud::SendOutcome;
use verbena_sync::atomic::{AtomicBool, Ordering};
use verbena_sync::locks::Mutex;
use verbena_wire::roce::{ICRC_LEN, Path, icrc_of_segment};

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
    buffers: Mutex<Vec<Box<[u8]>>>,
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
    /// Empty before the first packet.
    buffer: Box<[u8]>,
    /// Bytes used.
    len: usize,
    /// Bytes of the first packet, and of all but the last.
    segment: usize,
    count: usize,
    /// The packets before this one have been sent, one by one.
    sent: usize,
}

impl Default for BurstSender {
    fn default() -> BurstSender {
        BurstSender {
            segments: AtomicBool::new(true),
            full: AtomicBool::new(false),
            pending: Mutex::default(),
            buffers: Mutex::default(),
        }
    }
}

impl BurstSender {
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
        if packets.count > 1 && packets.sent == 0 && self.segments.load(Ordering::Relaxed) {
            packets.seal(path, |number| number);
            let bytes = &packets.buffer[..packets.len];
            match socket.send_segments(bytes, packets.segment, to) {
                Ok(SegmentsOutcome::Sent) => return SendOutcome::Sent,
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
        packets.seal(path, |_| 0);
        let mut outcome = SendOutcome::Sent;
        while packets.sent < packets.count {
            match socket.send(&packets.buffer[packets.range(packets.sent)], to) {
                Ok(true) => {}
                Ok(false) => return SendOutcome::Full,
                Err(_) => outcome = SendOutcome::Lost,
            }
            packets.sent += 1;
        }
        outcome
    }

    fn buffer(&self) -> Box<[u8]> {
        let kept = self.buffers.lock().pop();
        kept.unwrap_or_else(|| vec![0; MAX_SEGMENTS_LEN].into())
    }

    fn recycle(&self, packets: Packets) {
        let mut buffers = self.buffers.lock();
        if !packets.buffer.is_empty() && buffers.len() < MAX_BUFFERS {
            buffers.push(packets.buffer);
        }
    }
}

impl Packets {
    /// A packet of `size` bytes can be appended.
    fn fits(&self, size: usize) -> bool {
        let room = self.count < MAX_SEGMENTS && self.len + size <= MAX_SEGMENTS_LEN;
        let ended = self.len < self.count * self.segment;
        self.count == 0 || room && !ended && size <= self.segment
    }

    /// Where a packet of `size` bytes with its ICRC goes.
    fn push(&mut self, size: usize) -> &mut [u8] {
        if self.count == 0 {
            self.segment = size;
        }
        let at = self.len;
        self.len += size;
        self.count += 1;
        &mut self.buffer[at..at + size]
    }

    /// The bytes of a packet with its ICRC.
    fn range(&self, number: usize) -> core::ops::Range<usize> {
        let at = number * self.segment;
        at..(at + self.segment).min(self.len)
    }

    /// Sets the ICRC of the packets that have not been sent, given the IPv4 identification of each number.
    fn seal(&mut self, path: Path, identification: impl Fn(u16) -> u16) {
        for number in self.sent..self.count {
            let range = self.range(number);
            let packet = &mut self.buffer[range];
            if let Some((bytes, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() {
                // There are at most 64.
                *icrc = icrc_of_segment(path, identification(number as u16), bytes);
            }
        }
    }

    fn clear(&mut self) {
        (self.len, self.segment, self.count, self.sent) = (0, 0, 0, 0);
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

impl<S: PacketSocket> PacketSender for Burst<'_, S> {
    /// The caller writes all bytes. `None`: it waits with
    /// [`resume_packets_when_writable`](super::udp_port::UdpPort::resume_packets_when_writable).
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let size = len.checked_add(ICRC_LEN)?;
        if size > MAX_SEGMENTS_LEN || !self.sender.send_pending(self.socket) {
            return None;
        }
        if !self.packets.fits(size) && self.flush() == SendOutcome::Full {
            return None;
        }
        if self.packets.buffer.is_empty() {
            self.packets.buffer = self.sender.buffer();
        }
        self.packets.push(size).get_mut(..len)
    }
}

impl<S: PacketSocket> Drop for Burst<'_, S> {
    fn drop(&mut self) {
        self.sender.recycle(core::mem::take(&mut self.packets));
    }
}

#[cfg(test)]
mod tests;
