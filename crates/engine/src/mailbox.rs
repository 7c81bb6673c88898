//! A UDP socket where datagrams come in and leave, one for each port and address, or for a multicast group.
//! It promises that somebody reads it, a shard or a thread that polls, that what it drops is counted, and that a queue pair which
//! found no room is told when there is some. It refuses to keep datagrams: whoever has no receive for one loses it.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use verbena_nic::Outbox;
use verbena_nic::ud::{Arrival, Dropped, Posted, largest_packet};
use verbena_stream::Time;
use verbena_wire::roce::{Path, icrc_over_socket};

use crate::core::Core;
use crate::error::Error;
use crate::numbers::parts;
use crate::residents::Resident;
use crate::shard::{Served, Shard, next_token};
use crate::sys::{self, Datagrams, Interest, Ready};

/// Datagrams read in one go, before others on the shard have their turn.
const AT_ONCE: usize = 64;
/// Bytes that may wait to be read: as many datagrams as a usual receive queue has receives, and some.
const ROOM: usize = 4 << 20;
/// How long sending waits when the system has no room although the socket has.
const PAUSE: Duration = Duration::from_millis(1);

/// A datagram socket.
pub(crate) struct Mailbox {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    socket: Datagrams,
    at: SocketAddr,
    /// The group, if it is one for multicast.
    group: Option<IpAddr>,
    /// Who reads does so alone, into this.
    room: Mutex<Box<[u8]>>,
    /// How many completion queues' pollers read it.
    lenders: AtomicUsize,
    watch: Mutex<Watch>,
}

/// What the shard waits for.
#[derive(Default)]
struct Watch {
    /// The shard serves it.
    served: bool,
    closed: bool,
    /// Queue pairs that found no room, the first one first.
    blocked: Vec<Weak<Resident>>,
    /// The system has no room although the socket has: a timer runs.
    paused: bool,
}

impl Mailbox {
    /// Not served yet.
    pub(crate) fn new(
        core: &Arc<Core>,
        socket: Datagrams,
        group: Option<IpAddr>,
    ) -> Result<Arc<Mailbox>, Error> {
        let at = socket.local()?;
        Ok(Arc::new(Mailbox {
            core: core.clone(),
            shard: core.shards.pick()?,
            token: next_token(),
            socket,
            at,
            group,
            room: Mutex::new(Box::new([])),
            lenders: AtomicUsize::new(0),
            watch: Mutex::default(),
        }))
    }

    /// Its address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.at.ip()
    }

    /// Datagrams are wanted from now on.
    pub(crate) fn serve(self: &Arc<Self>) -> Result<(), Error> {
        if self.watch.lock().served {
            return Ok(());
        }
        // Without the lock, since asking for interfaces takes its time; done twice, it does no harm.
        self.socket.widen(ROOM);
        if self.group.is_none() {
            // Where that fails multicast is lost, and nothing else.
            let _ = self.socket.multicast_by(self.at.ip());
        }
        let mut watch = self.watch.lock();
        if watch.closed {
            return Err(Error::Closed);
        }
        if !watch.served {
            self.shard.serve(self.token, self.clone())?;
            let once = Interest::READ_ONCE;
            if let Err(error) = self.shard.watch(&self.socket, self.token, once) {
                self.shard.forget(self.token);
                return Err(error.into());
            }
            watch.served = true;
        }
        Ok(())
    }

    pub(crate) fn close(&self) {
        let mut watch = self.watch.lock();
        watch.closed = true;
        watch.blocked.clear();
        if core::mem::take(&mut watch.served) {
            self.shard.unwatch(&self.socket);
            drop(watch);
            self.shard.forget(self.token);
        }
    }

    /// A thread that polls reads it from now on.
    pub(crate) fn lend(&self) {
        self.lenders.fetch_add(1, Ordering::SeqCst);
    }

    /// The same thread does so no longer.
    pub(crate) fn take_back(&self) {
        if self.lenders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.listen();
        }
    }

    fn is_lent(&self) -> bool {
        self.lenders.load(Ordering::SeqCst) > 0
    }

    /// Has the shard told of what is needed, also if it is there already.
    fn listen(&self) {
        let watch = self.watch.lock();
        let interest = Interest {
            read: !self.is_lent(),
            write: !watch.blocked.is_empty() && !watch.paused,
            oneshot: true,
        };
        if watch.served && (interest.read || interest.write) {
            let _ = self.shard.arm(&self.socket, self.token, interest);
        }
    }

    /// Takes up to `times` datagrams and what follows from them; true if one came. False, too, if somebody else is at it.
    pub(crate) fn read(&self, times: usize, out: &mut Outbox) -> bool {
        let Some(mut room) = self.room.try_lock() else {
            return false;
        };
        if room.is_empty() {
            *room = vec![0; largest_packet()].into();
        }
        let mut any = false;
        for _ in 0..times {
            // What the system says of one datagram is not about the next; nothing of it can be mended here.
            let Ok(Some((len, from))) = self.socket.receive(&mut room) else {
                break;
            };
            any = true;
            if !self.core.access.admits(from.ip()) {
                continue;
            }
            if let Err(dropped) = self.take(&room, len, from, out) {
                self.core.residents.count(dropped);
            }
        }
        any
    }

    /// Gives a datagram to whom it is for.
    fn take(
        &self,
        room: &[u8],
        len: usize,
        from: SocketAddr,
        out: &mut Outbox,
    ) -> Result<(), Option<Dropped>> {
        let bytes = room.get(..len).ok_or(Some(Dropped::Giant))?;
        let path = Path {
            src: from.ip(),
            dst: self.at.ip(),
            src_port: from.port(),
            dst_port: self.at.port(),
        };
        let arrival = Arrival::parse(bytes, path).map_err(Some)?;
        let residents = &self.core.residents;
        let found = match self.group {
            Some(group) => {
                let own = self.core.addresses().unwrap_or_default();
                residents.deliver_all(group, own, &arrival, out)
            }
            None if parts(arrival.to()).0 == self.at.port() => residents.deliver(&arrival, out),
            None => false,
        };
        // Whoever was found counts what it drops itself.
        if found { Ok(()) } else { Err(None) }
    }

    /// Sends a packet, with the checksum over the addresses it will have.
    pub(crate) fn send(&self, to: SocketAddr, packet: &mut Vec<u8>) -> Posted {
        let path = Path {
            src: self.at.ip(),
            dst: to.ip(),
            src_port: self.at.port(),
            dst_port: to.port(),
        };
        let icrc = icrc_over_socket(path, packet);
        packet.extend_from_slice(&icrc);
        match self.socket.send(packet, to) {
            Ok(true) => Posted::Gone,
            Ok(false) => Posted::Full,
            // No route, no such host, a firewall: an unreliable datagram is lost, and nobody is to blame.
            Err(_) => Posted::Lost,
        }
    }

    /// A queue pair found no room: it goes on when there is some.
    pub(crate) fn want_room(&self, resident: &Arc<Resident>) {
        {
            let mut watch = self.watch.lock();
            let waits = |w: &Weak<Resident>| core::ptr::eq(w.as_ptr(), Arc::as_ptr(resident));
            if watch.closed || watch.blocked.iter().any(waits) {
                return;
            }
            watch.blocked.push(Arc::downgrade(resident));
        }
        self.listen();
    }

    /// There may be room: whoever waits for it goes on, in the order they came.
    fn room_is_there(&self, out: &mut Outbox) {
        let blocked = {
            let mut watch = self.watch.lock();
            watch.paused = false;
            core::mem::take(&mut watch.blocked)
        };
        let mut moved = blocked.is_empty();
        for resident in blocked.iter().filter_map(Weak::upgrade) {
            // One that is still blocked has asked for room again by now.
            moved |= resident.send(out);
        }
        if !moved {
            self.watch.lock().paused = true;
            self.shard.at(sys::now() + PAUSE, self.token);
        }
    }
}

impl Served for Mailbox {
    fn ready(self: Arc<Self>, ready: Ready) {
        let mut out = Outbox::new();
        if ready.writable {
            self.room_is_there(&mut out);
        }
        // Left to the thread that polls, if one does; it is taken back when that stays away.
        if !self.is_lent() {
            self.read(AT_ONCE, &mut out);
        }
        self.core.deliver(&mut out);
        self.listen();
    }

    fn expire(self: Arc<Self>, _: Time) {
        let mut out = Outbox::new();
        self.room_is_there(&mut out);
        self.core.deliver(&mut out);
        self.listen();
    }

    fn stop(self: Arc<Self>) {}
}

impl core::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mailbox")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
