//! The local socket of an engine, the connections that expect rings, and the local connections of peers that offer them.
//! A local connection sends one offer and gets one answer; anything else closes it. What a peer sends with the right secret and is wrong
//! fails the connection that the secret belongs to, and no other. No waiter is called under a lock.

use core::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use verbena_mem::Mapping;
use verbena_ring::{Layout, RingMemory};
use verbena_stream::Time;
use verbena_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use verbena_sync::locks::Mutex;

use super::message::{Kind, LEN, Message};
use super::{
    Folder, Limits, MAX_RING, NAME_PREFIX, NoRings, Rejections, RingEnds, RingWaiter, can_read,
    probe_word, rings_in, send, socket_name,
};
use crate::core::Core;
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{
    self, Doorbell, FolderListener, Interest, PacketChannel, PacketListener, Ready, SocketFolder,
};

/// Local connections accepted per turn on the shard.
const MAX_PER_TURN: usize = 16;

/// The local socket, and what is expected at it.
pub(super) struct Server {
    socket: u64,
    shard: Arc<Shard>,
    token: u64,
    listener: PacketListener,
    /// The same in the folder of the setting `same_host_path`.
    in_folder: Option<sys::Result<FolderListener>>,
    limits: Limits,
    expected: Mutex<Vec<Entry>>,
    /// Local connections that are open.
    clients: AtomicU32,
    wrong_secret: AtomicU64,
    too_many: AtomicU64,
    invalid: AtomicU64,
}

/// A connection that expects an offer.
struct Entry {
    secret: u64,
    waiter: Weak<dyn RingWaiter>,
    /// The secret of the peer's token, once its CAPS arrived.
    peer: Option<u64>,
    offer: Offer,
}

enum Offer {
    None,
    /// Arrived before the peer's CAPS.
    Held(Arc<Client>, Offered),
    /// Taken: a further one is invalid.
    Taken,
}

/// A valid offer.
struct Offered {
    rings: (RingMemory, RingMemory),
    doorbell_out: Doorbell,
    peer_pid: Option<u32>,
    reads_peer: bool,
}

impl Server {
    pub(super) fn start(core: &Core, limits: Limits, folder: Folder) -> Result<Arc<Server>, Error> {
        let shard = core.shards.pick()?;
        let socket = sys::random_u64()?;
        let name = socket_name(socket);
        let bind = |folder: Arc<SocketFolder>| {
            folder.remove_stale(NAME_PREFIX)?;
            folder.bind(&name)
        };
        // Without it, the abstract name still serves processes in this network namespace.
        let in_folder = folder.map(|folder| folder.and_then(bind));
        let server = Arc::new(Server {
            socket,
            shard: shard.clone(),
            token: next_token(),
            listener: PacketListener::bind(&name)?,
            in_folder,
            limits,
            expected: Mutex::default(),
            clients: AtomicU32::new(0),
            wrong_secret: AtomicU64::new(0),
            too_many: AtomicU64::new(0),
            invalid: AtomicU64::new(0),
        });
        shard.serve_watched(
            server.token,
            server.clone(),
            &server.listener,
            Interest::READ,
        )?;
        if let Some(Ok(other)) = &server.in_folder {
            shard.watch(&other.listener, server.token, Interest::READ)?;
        }
        Ok(server)
    }

    pub(super) fn socket(&self) -> u64 {
        self.socket
    }

    /// Why there is no socket in the folder of the setting `same_host_path`.
    pub(super) fn folder_error(&self) -> Option<sys::Error> {
        self.in_folder.as_ref()?.as_ref().err().copied()
    }

    /// Adds a connection, and returns its secret.
    pub(super) fn add(&self, waiter: Weak<dyn RingWaiter>) -> Result<u64, sys::Error> {
        let secret = sys::random_u64()?;
        let mut expected = self.expected.lock();
        expected.push(Entry {
            secret,
            waiter,
            peer: None,
            offer: Offer::None,
        });
        Ok(secret)
    }

    /// Removes a connection; an offer that it held is closed.
    pub(super) fn remove(&self, secret: u64) {
        let removed = {
            let mut expected = self.expected.lock();
            let at = expected.iter().position(|entry| entry.secret == secret);
            at.map(|at| expected.swap_remove(at))
        };
        if let Some(Entry {
            offer: Offer::Held(client, _),
            ..
        }) = removed
        {
            client.end();
        }
    }

    /// Removes a connection unless an offer for it is being accepted, or was; true if it is removed.
    pub(super) fn cancel(&self, secret: u64) -> bool {
        let taken = {
            let mut expected = self.expected.lock();
            find(&mut expected, secret).is_some_and(|entry| matches!(entry.offer, Offer::Taken))
        };
        if !taken {
            self.remove(secret);
        }
        !taken
    }

    /// The peer's CAPS of a connection arrived. An offer that waits for it is answered by the shard: the caller may hold locks.
    pub(super) fn set_peer(&self, secret: u64, peer: u64) {
        let mut expected = self.expected.lock();
        let Some(entry) = find(&mut expected, secret) else {
            return;
        };
        entry.peer = Some(peer);
        if let Offer::Held(client, _) = &entry.offer {
            self.shard.set_timer(sys::now(), client.token);
        }
    }

    /// Local connections that are open, and offers that wait for the peer's CAPS.
    #[cfg(test)]
    pub(super) fn open(&self) -> (u32, usize) {
        let held = |entry: &&Entry| matches!(entry.offer, Offer::Held(..));
        let held = self.expected.lock().iter().filter(held).count();
        (self.clients.load(Ordering::Relaxed), held)
    }

    pub(super) fn rejections(&self) -> Rejections {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Rejections {
            wrong_secret: read(&self.wrong_secret),
            too_many: read(&self.too_many),
            invalid: read(&self.invalid),
        }
    }

    fn accept(self: &Arc<Server>, channel: PacketChannel) {
        let more = |n: u32| (n < self.limits.clients).then_some(n + 1);
        let order = Ordering::Relaxed;
        if self.clients.fetch_update(order, order, more).is_err() {
            self.too_many.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let client = Arc::new(Client {
            server: self.clone(),
            token: next_token(),
            channel,
            deadline: sys::now() + self.limits.time,
            progress: AtomicU32::new(Progress::Silent as u32),
        });
        let (token, read) = (client.token, Interest::READ);
        // If the shard ends, the drop closes it.
        if self
            .shard
            .serve_watched(token, client.clone(), &client.channel, read)
            .is_ok()
        {
            self.shard.set_timer(client.deadline, token);
        }
    }
}

/// The entry with this secret. All are compared, each by one comparison of two words, so that the time does not tell how near a wrong one is.
fn find(expected: &mut [Entry], secret: u64) -> Option<&mut Entry> {
    let mut found = None;
    for entry in expected {
        if entry.secret == secret {
            found = Some(entry);
        }
    }
    found
}

impl ShardTask for Server {
    fn ready(self: Arc<Self>, _: Ready) {
        let in_folder = self
            .in_folder
            .as_ref()
            .and_then(|other| other.as_ref().ok());
        for listener in [Some(&self.listener), in_folder.map(|other| &other.listener)]
            .into_iter()
            .flatten()
        {
            for _ in 0..MAX_PER_TURN {
                // An error is reported again with the next readiness: out of descriptors, for which peers wait in the backlog.
                let Ok(Some(channel)) = listener.accept() else {
                    break;
                };
                self.accept(channel);
            }
        }
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// How far a local connection has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Silent = 0,
    /// Its offer is valid and waits for the peer's CAPS.
    Held = 1,
    Ended = 2,
}

/// The local connection of a peer.
struct Client {
    server: Arc<Server>,
    token: u64,
    channel: PacketChannel,
    deadline: Time,
    progress: AtomicU32,
}

impl Client {
    /// Reads the offer. An error is the peer's.
    fn receive(self: &Arc<Client>) -> Result<(), NoRings> {
        let mut bytes = [0; LEN];
        let received = self.channel.receive_with_fds(&mut bytes);
        let Some(fds) = received.map_err(|_| NoRings::Closed)? else {
            return Ok(());
        };
        if self.progress.load(Ordering::Relaxed) != Progress::Silent as u32 {
            return Err(NoRings::Malformed);
        }
        let message = Message::parse(&bytes).ok_or(NoRings::Malformed)?;
        let Kind::Offer(capacity) = message.kind else {
            return Err(NoRings::Malformed);
        };
        // Taken before the descriptors are looked at: only a peer with a secret has anything mapped.
        let waiter = {
            let mut expected = self.server.expected.lock();
            let entry = find(&mut expected, message.secret).ok_or(NoRings::WrongSecret)?;
            if !matches!(entry.offer, Offer::None) {
                return Err(NoRings::Malformed);
            }
            entry.offer = Offer::Taken;
            entry.waiter.clone()
        };
        match self.check(fds, capacity, message.probe) {
            Ok(offered) => self.hold(message.secret, offered),
            Err(why) => {
                self.server.invalid.fetch_add(1, Ordering::Relaxed);
                self.end();
                if let Some(waiter) = waiter.upgrade() {
                    waiter.rings_failed(why);
                }
            }
        }
        Ok(())
    }

    /// Maps the rings that the peer offers.
    fn check(
        &self,
        fds: Vec<OwnedFd>,
        capacity: u64,
        probe: (u64, u64),
    ) -> Result<Offered, NoRings> {
        let size = usize::try_from(capacity)
            .ok()
            .filter(|size| *size <= MAX_RING);
        let layout = size.and_then(Layout::new).ok_or(NoRings::Size(capacity))?;
        let Ok([memfd, doorbell]) = <[OwnedFd; 2]>::try_from(fds) else {
            return Err(NoRings::Malformed);
        };
        let doorbell_out = Doorbell::adopt(doorbell)?;
        let mapping = Mapping::adopt(memfd, layout.pair_len())?;
        let peer_pid = self.channel.peer_process();
        Ok(Offered {
            rings: rings_in(mapping, layout)?,
            doorbell_out,
            peer_pid,
            reads_peer: can_read(peer_pid, probe),
        })
    }

    /// Answers, or waits for the peer's CAPS.
    fn hold(self: &Arc<Client>, secret: u64, offered: Offered) {
        let mut expected = self.server.expected.lock();
        // The connection has ended meanwhile.
        let Some(entry) = find(&mut expected, secret) else {
            drop(expected);
            return self.end();
        };
        match entry.peer {
            Some(peer) => {
                let waiter = entry.waiter.clone();
                drop(expected);
                self.answer(offered, peer, &waiter);
            }
            None => {
                self.progress
                    .store(Progress::Held as u32, Ordering::Relaxed);
                entry.offer = Offer::Held(self.clone(), offered);
            }
        }
    }

    /// Gives the rings to their connection, and proves by the secret of the peer's token that its CAPS arrived.
    fn answer(&self, offered: Offered, peer: u64, waiter: &Weak<dyn RingWaiter>) {
        if let Some(waiter) = waiter.upgrade()
            && let Err(why) = self.give_rings(offered, peer, &waiter)
        {
            waiter.rings_failed(why);
        }
        self.end();
    }

    fn give_rings(
        &self,
        offered: Offered,
        secret: u64,
        waiter: &Arc<dyn RingWaiter>,
    ) -> Result<(), NoRings> {
        let doorbell_in = Doorbell::new()?;
        let doorbell = doorbell_in.duplicate()?;
        let (rx, tx) = offered.rings;
        let taken = waiter.clone().rings_ready(RingEnds {
            tx: tx.into_producer(),
            rx: rx.into_consumer(),
            doorbell_in,
            doorbell_out: offered.doorbell_out,
            peer_pid: offered.peer_pid,
            reads_peer: offered.reads_peer,
        });
        if !taken {
            return Ok(());
        }
        let answer = Message {
            kind: Kind::Answer,
            secret,
            probe: probe_word(),
        };
        send(&self.channel, &answer, &[doorbell.as_fd()])
    }

    /// Closes the local connection; what was sent is still delivered.
    fn end(&self) {
        let ended = Progress::Ended as u32;
        if self.progress.swap(ended, Ordering::Relaxed) != ended {
            self.server.clients.fetch_sub(1, Ordering::Relaxed);
            let shard = &self.server.shard;
            shard.unwatch(&self.channel);
            shard.cancel_timer(self.deadline, self.token);
            shard.forget(self.token);
        }
    }

    /// Ends a local connection whose peer is at fault.
    fn reject(&self, why: NoRings) {
        let counter = match why {
            NoRings::WrongSecret => &self.server.wrong_secret,
            _ => &self.server.invalid,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.fail(why);
    }

    /// Ends the local connection, and tells the connection whose offer it is, if that was not answered.
    fn fail(&self, why: NoRings) {
        let held = self.take_held(|_| true);
        self.end();
        if let Some(waiter) = held.and_then(|(_, _, waiter)| waiter.upgrade()) {
            waiter.rings_failed(why);
        }
    }

    /// Takes this connection's offer from the entry that holds it, if that is `wanted`; with the secret of the peer's token.
    fn take_held(
        &self,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Option<(Offered, Option<u64>, Weak<dyn RingWaiter>)> {
        if self.progress.load(Ordering::Relaxed) != Progress::Held as u32 {
            return None;
        }
        let holds = |entry: &Entry| match &entry.offer {
            Offer::Held(client, _) => client.token == self.token && wanted(entry),
            Offer::None | Offer::Taken => false,
        };
        let mut expected = self.server.expected.lock();
        let entry = expected.iter_mut().find(|entry| holds(entry))?;
        match core::mem::replace(&mut entry.offer, Offer::Taken) {
            Offer::Held(_, offered) => Some((offered, entry.peer, entry.waiter.clone())),
            Offer::None | Offer::Taken => None,
        }
    }
}

impl ShardTask for Client {
    fn ready(self: Arc<Self>, _: Ready) {
        if let Err(why) = self.receive() {
            self.reject(why);
        }
    }

    fn expire(self: Arc<Self>, now: Time) {
        if now >= self.deadline {
            self.reject(NoRings::TimedOut);
        } else if let Some((offered, Some(peer), waiter)) =
            self.take_held(|entry| entry.peer.is_some())
        {
            self.answer(offered, peer, &waiter);
        }
    }

    fn stop(self: Arc<Self>) {
        self.fail(NoRings::Stopped);
    }
}
