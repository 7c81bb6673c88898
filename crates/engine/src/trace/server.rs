//! Attaching and detaching: a process of the same user, or root, connects to a local socket of the adapter, sends one request, and gets the rings. While it
//! stays connected the adapter is traced. One trace at a time; a client that sends anything else is disconnected.

use core::time::Duration;
use std::os::fd::AsFd;
use std::sync::Arc;

use verbena_mem::{Mapping, WordPages};
use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use super::rings::Layout;
use super::tracer::Rings;
use super::{NAME, Request, Status};
use crate::capture::{JoinAll, Tap};
use crate::error::Error;
use crate::notify::local_server::{ClientPermit, LocalServer};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, PacketChannel, PacketListener, Ready};

/// Clients at once; one of them traces.
const MAX_CLIENTS: u32 = 4;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the local socket of an adapter on this shard.
pub(crate) fn open(tap: Arc<Tap>, join_all: JoinAll, shard: &Arc<Shard>) -> Result<(), Error> {
    let start = move |shard: &Arc<Shard>, channel, permit| {
        Client::start((&tap, &join_all), shard, channel, permit)
    };
    LocalServer::<PacketListener>::open(NAME, MAX_CLIENTS, Box::new(start), shard)
}

#[derive(Debug)]
enum Phase {
    /// It has sent nothing.
    Silent,
    /// It traces.
    Attached(Arc<Rings>),
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
        // Anything but one request is an error.
        let Phase::Silent = *phase else {
            return false;
        };
        let request = bytes.first_chunk().and_then(Request::parse);
        let attached = request.ok_or(Status::Invalid).and_then(|r| self.attach(r));
        match attached {
            Ok(rings) => {
                *phase = Phase::Attached(rings);
                drop(phase);
                (self.join_all)();
                true
            }
            Err(status) => {
                // If it cannot be sent, the client still sees the end of the connection.
                let _ = self.channel.send(&[status as u8], &[]);
                false
            }
        }
    }

    /// Makes the rings, begins to trace into them, and sends them.
    fn attach(&self, request: Request) -> Result<Arc<Rings>, Status> {
        let layout = Layout::new(request.events).ok_or(Status::Invalid)?;
        let mapping = Mapping::new(layout.len()).map_err(|_| Status::NoMemory)?;
        let fd = mapping.fd().try_clone_to_owned();
        let fd = fd.map_err(|_| Status::NoMemory)?;
        let rings = Rings::new(WordPages::new(mapping.into_pages()), layout);
        if !self.tap.attach_trace(&rings, request.qp) {
            return Err(Status::Busy);
        }
        let answer = [Status::Attached as u8];
        match self.channel.send_with_fds(&answer, &[fd.as_fd()]) {
            Ok(true) => Ok(rings),
            Ok(false) | Err(_) => {
                self.tap.detach_trace();
                rings.end();
                Err(Status::NoMemory)
            }
        }
    }

    fn detach(&self) {
        let before = core::mem::replace(&mut *self.phase.lock(), Phase::Ended);
        if let Phase::Attached(rings) = before {
            self.tap.detach_trace();
            rings.end();
        }
    }

    fn end(&self) {
        self.detach();
        self.shard.unwatch(&self.channel);
        self.shard.forget(self.token);
    }
}

impl Drop for Client {
    /// The adapter is closed while it is traced.
    fn drop(&mut self) {
        self.detach();
    }
}

impl ShardTask for Client {
    fn ready(self: Arc<Self>, _: Ready) {
        if !self.receive() {
            self.end();
        }
    }

    fn expire(self: Arc<Self>, _: Time) {
        let is_silent = matches!(*self.phase.lock(), Phase::Silent);
        if is_silent {
            self.end();
        }
    }

    fn stop(self: Arc<Self>) {}
}
