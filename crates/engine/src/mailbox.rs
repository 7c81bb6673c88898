//! A UDP socket of the adapter, one for each port and address, or for a multicast group.
//! A shard reads it, or the threads that poll the completion queues it is lent to. Datagrams are not queued here: one without a posted
//! receive is dropped and counted. A queue pair that found the send buffer full is resumed when there is room.

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

/// Datagrams read per turn on a shard.
const AT_ONCE: usize = 64;
/// Receive buffer size: as many datagrams as a usual receive queue has receives, and some more.
const ROOM: usize = 4 << 20;
/// The retry interval when a send fails for lack of room although the socket polls writable.
const PAUSE: Duration = Duration::from_millis(1);

/// A datagram socket.
pub(crate) struct Mailbox {
    core: Arc<Core>,
    shard: Arc<Shard>,
    token: u64,
    socket: Datagrams,
    at: SocketAddr,
    /// The multicast group, if it is bound to one.
    group: Option<IpAddr>,
    /// The receive buffer; its lock admits one reader at a time.
    room: Mutex<Box<[u8]>>,
    /// The number of completion queues whose pollers read it.
    lenders: AtomicUsize,
    watch: Mutex<Watch>,
}

/// The readiness that the shard waits for.
#[derive(Default)]
struct Watch {
    /// The shard serves the socket.
    served: bool,
    closed: bool,
    /// Queue pairs that found no room, in order of arrival.
    blocked: Vec<Weak<Resident>>,
    /// The socket polls writable but sends find no room: a timer runs.
    paused: bool,
}

impl Mailbox {
    /// A socket that no shard serves yet.
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

    /// Has a shard serve it, if none does.
    pub(crate) fn serve(self: &Arc<Self>) -> Result<(), Error> {
        if self.watch.lock().served {
            return Ok(());
        }
        // Without the lock, since listing interfaces takes time; doing it twice does no harm.
        self.socket.widen(ROOM);
        if self.group.is_none() {
            // If this fails, only multicast is lost.
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

    /// A polling thread reads it from now on.
    pub(crate) fn lend(&self) {
        self.lenders.fetch_add(1, Ordering::SeqCst);
    }

    /// That thread reads it no longer; after the last one, the shard does.
    pub(crate) fn take_back(&self) {
        if self.lenders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.listen();
        }
    }

    fn is_lent(&self) -> bool {
        self.lenders.load(Ordering::SeqCst) > 0
    }

    /// Arms the shard's one-shot interest for what is needed now; readiness that exists already is reported too.
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

    /// Takes up to `times` datagrams and processes them; true if one came. False, too, if another thread is reading.
    pub(crate) fn read(&self, times: usize, out: &mut Outbox) -> bool {
        let Some(mut room) = self.room.try_lock() else {
            return false;
        };
        if room.is_empty() {
            *room = vec![0; largest_packet()].into();
        }
        let mut any = false;
        for _ in 0..times {
            // A socket error belongs to an earlier datagram; there is nothing to do about it here.
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

    /// Delivers a datagram to the queue pairs it is for.
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
        // A queue pair counts its own drops.
        if found { Ok(()) } else { Err(None) }
    }

    /// Sends a packet, with the ICRC over the addresses it will have.
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
            // No route, no such host, a firewall: the loss of an unreliable datagram is no error.
            Err(_) => Posted::Lost,
        }
    }

    /// Resumes the queue pair when there is room.
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

    /// There may be room: resumes the blocked queue pairs in order of arrival.
    fn room_is_there(&self, out: &mut Outbox) {
        let blocked = {
            let mut watch = self.watch.lock();
            watch.paused = false;
            core::mem::take(&mut watch.blocked)
        };
        let mut moved = blocked.is_empty();
        for resident in blocked.iter().filter_map(Weak::upgrade) {
            // One that is still blocked is in the list again.
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
        // A polling thread reads it if it is lent; the group takes it back when that thread stops polling.
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
