//! Hands packets of RoCEv2 over between processes of one user that share port 4791, over local sockets with abstract names.
//! A process claims the ports in the numbers of its queue pairs, and its services, by listening at their names, so every process finds the
//! owner of a packet without a table. The user at both ends is checked; the packet travels with its source address and is checked
//! once more, and it is not handed over a second time. Nothing is queued beyond the buffer of a local socket.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use verbena_nic::Outbox;
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicU64, Ordering};
use verbena_sync::locks::Mutex;

use crate::core::Core;
use crate::datagram::udp_port::UdpPort;
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Arrival, Interest, PacketChannel, PacketListener, Ready};

/// Packets read per turn from one channel.
const MAX_PER_TURN: usize = 64;
/// Channels that one listener accepts per turn.
const MAX_ACCEPTS: usize = 16;
/// The source address before each packet: 16 bytes of address, 2 of port.
const HEAD: usize = 18;
/// The longest packet with its head.
const LONGEST: usize = HEAD + 8192;
/// How long an owner that was not found is not looked for again.
const ABSENCE: Duration = Duration::from_millis(100);
/// Owners that are remembered, found or not.
const MAX_OWNERS: usize = 1024;

/// What a process owns at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
    /// The queue pairs whose numbers contain this port. Communication identifiers that contain it in their upper 16 bits belong to the
    /// same process.
    Port(u16),
    /// A service of the connection manager.
    Service(u64),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Port(port) => write!(f, "port/{port}"),
            Claim::Service(id) => write!(f, "service/{id:016x}"),
        }
    }
}

/// The abstract name of a claim.
fn name(local: IpAddr, claim: Claim) -> String {
    format!("verbena-roce/{}/{local}/{claim}", sys::effective_uid())
}

/// Packets handed over between processes that share port 4791.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketHandovers {
    /// Packets that arrived here and were handed to another process.
    pub sent: u64,
    /// Packets that another process handed over.
    pub received: u64,
    /// Packets that the other process could not take.
    pub lost: u64,
}

/// The claims of an engine, and its channels to other processes.
#[derive(Debug, Default)]
pub(crate) struct PacketHandover {
    claims: Mutex<HashMap<(IpAddr, Claim), Arc<ClaimListener>>>,
    owners: Mutex<HashMap<(IpAddr, Claim), Owner>>,
    sent: AtomicU64,
    received: AtomicU64,
    lost: AtomicU64,
}

/// The process that owns a claim.
#[derive(Debug, Clone)]
enum Owner {
    Connected(Arc<PacketChannel>),
    /// There was none; looked for again at this time.
    Absent(Time),
}

impl PacketHandover {
    /// Claims packets that arrive at this port for us: other members of the group hand them over.
    pub(crate) fn claim(
        &self,
        core: &Arc<Core>,
        port: &Arc<UdpPort>,
        claim: Claim,
    ) -> Result<(), Error> {
        // Local sockets are not simulated.
        if cfg!(shuttle) {
            return Ok(());
        }
        let mut claims = self.claims.lock();
        let key = (port.ip(), claim);
        if claims.contains_key(&key) {
            return Ok(());
        }
        let listener = ClaimListener {
            core: core.clone(),
            port: port.clone(),
            shard: core.shards.pick()?,
            token: next_token(),
            listener: PacketListener::bind(&name(port.ip(), claim))?,
        };
        let listener = Arc::new(listener);
        listener.shard.serve_watched(
            listener.token,
            listener.clone(),
            &listener.listener,
            Interest::READ,
        )?;
        claims.insert(key, listener);
        Ok(())
    }

    /// Gives up a claim.
    pub(crate) fn release(&self, local: IpAddr, claim: Claim) {
        let released = self.claims.lock().remove(&(local, claim));
        if let Some(listener) = released {
            listener.close();
        }
    }

    /// Hands a packet to the process that owns it; false if there is none. A packet that the other process cannot take now is lost and
    /// counted here.
    pub(crate) fn hand_over(
        &self,
        local: IpAddr,
        claim: Claim,
        from: SocketAddr,
        bytes: &[u8],
    ) -> bool {
        let Some(channel) = self.channel(local, claim) else {
            return false;
        };
        match channel.send(&head(from), bytes) {
            Ok(true) => self.sent.fetch_add(1, Ordering::Relaxed),
            Ok(false) => self.lost.fetch_add(1, Ordering::Relaxed),
            // The other process has ended; the next packet looks for another one.
            Err(_) => {
                self.owners.lock().remove(&(local, claim));
                return false;
            }
        };
        true
    }

    fn channel(&self, local: IpAddr, claim: Claim) -> Option<Arc<PacketChannel>> {
        if cfg!(shuttle) {
            return None;
        }
        let key = (local, claim);
        let mut owners = self.owners.lock();
        match owners.get(&key) {
            Some(Owner::Connected(channel)) => return Some(channel.clone()),
            Some(Owner::Absent(until)) if sys::now() < *until => return None,
            Some(Owner::Absent(_)) | None => {}
        }
        if self.claims.lock().contains_key(&key) {
            return None;
        }
        if owners.len() >= MAX_OWNERS {
            owners.clear();
        }
        match PacketChannel::connect(&name(local, claim)) {
            Ok(channel) => {
                let channel = Arc::new(channel);
                owners.insert(key, Owner::Connected(channel.clone()));
                Some(channel)
            }
            // None, or another user's.
            Err(_) => {
                owners.insert(key, Owner::Absent(sys::now() + ABSENCE));
                None
            }
        }
    }

    pub(crate) fn counters(&self) -> PacketHandovers {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PacketHandovers {
            sent: read(&self.sent),
            received: read(&self.received),
            lost: read(&self.lost),
        }
    }

    /// Gives up all claims.
    pub(super) fn close(&self) {
        let claims = core::mem::take(&mut *self.claims.lock());
        claims.values().for_each(|listener| listener.close());
        self.owners.lock().clear();
    }
}

/// The source address as it precedes a packet.
fn head(from: SocketAddr) -> [u8; HEAD] {
    let ip = match from.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut head = [0; HEAD];
    head[..16].copy_from_slice(&ip.octets());
    head[16..].copy_from_slice(&from.port().to_be_bytes());
    head
}

/// A packet and its source.
fn parse(record: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (head, bytes) = record.split_first_chunk::<HEAD>()?;
    let (ip, port) = head.split_last_chunk::<2>()?;
    let ip = Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?);
    // A mapped address stands for the IPv4 address: no packet has it as its source.
    let from = SocketAddr::new(IpAddr::V6(ip).to_canonical(), u16::from_be_bytes(*port));
    Some((from, bytes))
}

/// Accepts channels of other processes for one claim.
struct ClaimListener {
    core: Arc<Core>,
    port: Arc<UdpPort>,
    shard: Arc<Shard>,
    token: u64,
    listener: PacketListener,
}

impl ClaimListener {
    fn close(&self) {
        self.shard.unwatch(&self.listener);
        self.shard.forget(self.token);
    }
}

impl ShardTask for ClaimListener {
    fn ready(self: Arc<Self>, _: Ready) {
        for _ in 0..MAX_ACCEPTS {
            let Ok(Some(channel)) = self.listener.accept() else {
                break;
            };
            let reader = Arc::new(HandoverReader {
                core: self.core.clone(),
                port: self.port.clone(),
                shard: self.shard.clone(),
                token: next_token(),
                channel,
            });
            // If it cannot be served it is closed, and the other process connects again.
            let _ = reader.shard.serve_watched(
                reader.token,
                reader.clone(),
                &reader.channel,
                Interest::READ,
            );
        }
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}

impl fmt::Debug for ClaimListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimListener").finish_non_exhaustive()
    }
}

/// Reads the packets of one channel.
struct HandoverReader {
    core: Arc<Core>,
    port: Arc<UdpPort>,
    shard: Arc<Shard>,
    token: u64,
    channel: PacketChannel,
}

impl ShardTask for HandoverReader {
    fn ready(self: Arc<Self>, _: Ready) {
        let mut out = Outbox::new();
        let mut room = [0; LONGEST];
        let mut batch = self.port.handed_over();
        for _ in 0..MAX_PER_TURN {
            match self.channel.receive(&mut room) {
                Ok(Some(record)) => {
                    let handover = &self.core.roce_ports.handover;
                    handover.received.fetch_add(1, Ordering::Relaxed);
                    if let Some((from, bytes)) = parse(record) {
                        let truncated = false;
                        let arrival = Arrival {
                            from,
                            bytes,
                            number: 0,
                            truncated,
                        };
                        batch.process(&arrival, &mut out);
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    self.shard.unwatch(&self.channel);
                    self.shard.forget(self.token);
                    break;
                }
            }
        }
        batch.end(&mut out);
        self.core.deliver(&mut out);
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}

#[cfg(test)]
mod tests;
