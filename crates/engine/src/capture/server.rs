//! Attaching and detaching: a process of the same user, or root, connects to a local socket of the adapter, sends one request, and gets a ring. While it stays
//! connected the adapter is captured. One capture at a time; a client that sends anything else is disconnected.

use core::time::Duration;
use std::os::fd::AsFd;
use std::sync::Arc;

use verbena_mem::Mapping;
use verbena_ring::{Layout, Producer, RingMemory};
use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use super::{Answer, NAME, Request, STOP, Status, Tap, Totals};
use crate::error::Error;
use crate::notify::local_server::{ClientPermit, LocalListener, LocalServer};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, PacketChannel, PacketListener, Ready};

/// Clients at once; one of them captures.
const MAX_CLIENTS: u32 = 4;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets the running connections of an adapter join a capture that has begun.
pub(crate) type JoinAll = Arc<dyn Fn() + Send + Sync>;

/// Opens the local socket of an adapter on this shard.
pub(crate) fn open(tap: Arc<Tap>, join_all: JoinAll, shard: &Arc<Shard>) -> Result<(), Error> {
    let start = move |shard: &Arc<Shard>, channel, permit| {
        Client::start((&tap, &join_all), shard, channel, permit)
    };
    LocalServer::<PacketListener>::open(NAME, MAX_CLIENTS, Box::new(start), shard)
}

impl LocalListener for PacketListener {
    type Client = PacketChannel;

    fn bind(name: &str) -> Result<PacketListener, sys::Error> {
        PacketListener::bind(name)
    }

    fn accept(&self) -> Result<Option<PacketChannel>, sys::Error> {
        self.accept_user_or_root()
    }

    /// Those of other users were disconnected.
    fn admits(_: &PacketChannel) -> bool {
        true
    }

    fn refuse_surplus(channel: &PacketChannel) {
        answer(channel, Status::Busy, Totals::default());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has sent nothing.
    Silent,
    /// It captures.
    Attached,
    Ended,
}

/// A process that is connected.
struct Client {
    tap: Arc<Tap>,
    join_all: JoinAll,
    shard: Arc<Shard>,
    token: u64,
    channel: PacketChannel,
    phase: Mutex<Phase>,
    _permit: ClientPermit,
}

impl Client {
    fn start(
        (tap, join_all): (&Arc<Tap>, &JoinAll),
        shard: &Arc<Shard>,
        channel: PacketChannel,
        permit: ClientPermit,
    ) -> Result<(), Error> {
        let client = Arc::new(Client {
            tap: tap.clone(),
            join_all: join_all.clone(),
            shard: shard.clone(),
            token: next_token(),
            channel,
            phase: Mutex::new(Phase::Silent),
            _permit: permit,
        });
        shard.serve_watched(
            client.token,
            client.clone(),
            &client.channel,
            Interest::READ,
        )?;
        shard.set_timer(sys::now() + REQUEST_TIMEOUT, client.token);
        Ok(())
    }

    /// Handles what it has sent; false if it is to be disconnected.
    fn receive(&self) -> bool {
        let mut room = [0; Request::LEN];
        let bytes = match self.channel.receive(&mut room) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let mut phase = self.phase.lock();
        match *phase {
            Phase::Silent => {
                let request = bytes.first_chunk().and_then(Request::parse);
                let status = match request {
                    Some(request) => self.attach(request),
                    None => Status::Invalid,
                };
                let attached = status == Status::Attached;
                if attached {
                    *phase = Phase::Attached;
                    drop(phase);
                    (self.join_all)();
                } else {
                    answer(&self.channel, status, Totals::default());
                }
                attached
            }
            Phase::Attached if bytes == STOP => {
                *phase = Phase::Ended;
                let totals = self.tap.detach();
                answer(&self.channel, Status::Ended, totals);
                true
            }
            Phase::Attached | Phase::Ended => false,
        }
    }

    /// Makes a ring, begins to capture into it, and sends it.
    fn attach(&self, request: Request) -> Status {
        let Some(layout) = Layout::new(request.ring as usize) else {
            return Status::Invalid;
        };
        let Ok(mapping) = Mapping::new(layout.pair_len()) else {
            return Status::NoMemory;
        };
        let Ok(fd) = mapping.fd().try_clone_to_owned() else {
            return Status::NoMemory;
        };
        let Some(producer) = producer(mapping, layout) else {
            return Status::NoMemory;
        };
        let wanted = (request.snap_len, request.qp);
        if !self.tap.attach(producer, u64::from(request.ring), wanted) {
            return Status::Busy;
        }
        let attached = Answer {
            status: Status::Attached,
            totals: Totals::default(),
        };
        match self.channel.send_with_fds(&attached.emit(), &[fd.as_fd()]) {
            Ok(true) => Status::Attached,
            Ok(false) | Err(_) => {
                self.tap.detach();
                Status::NoMemory
            }
        }
    }

    fn detach(&self) {
        let before = core::mem::replace(&mut *self.phase.lock(), Phase::Ended);
        if before == Phase::Attached {
            self.tap.detach();
        }
    }

    fn end(&self) {
        self.detach();
        self.shard.unwatch(&self.channel);
        self.shard.forget(self.token);
    }
}

impl Drop for Client {
    /// The adapter is closed while it is captured.
    fn drop(&mut self) {
        self.detach();
    }
}

/// The writing side of the first ring of a pair; the second one is not used, and its pages are never allocated.
fn producer(mapping: Mapping, layout: Layout) -> Option<Producer> {
    let (ring, _) = RingMemory::pair(mapping.into_pages(), layout).ok()?;
    Some(ring.into_producer())
}

/// If it cannot be sent, the client still sees the end of the connection.
fn answer(channel: &PacketChannel, status: Status, totals: Totals) {
    let _ = channel.send(&Answer { status, totals }.emit(), &[]);
}

impl ShardTask for Client {
    fn ready(self: Arc<Self>, _: Ready) {
        if !self.receive() {
            self.end();
        }
    }

    fn expire(self: Arc<Self>, _: Time) {
        if *self.phase.lock() == Phase::Silent {
            self.end();
        }
    }

    fn stop(self: Arc<Self>) {}
}
