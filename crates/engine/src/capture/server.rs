//! Attaching and detaching: a process of the same user, or root, sends one request and gets a ring ([`attach`]). While it stays connected the adapter is
//! captured. One capture at a time.

use std::os::fd::AsFd;
use std::sync::Arc;

use verbena_mem::Mapping;
use verbena_ring::{Layout, Producer, RingMemory};

use super::{Answer, NAME, Request, STOP, Status, Tap, Totals};
use crate::error::Error;
use crate::notify::attach::{self, JoinAll, Service};
use crate::notify::local_server::LocalListener;
use crate::poll::shard::Shard;
use crate::sys::{self, PacketChannel, PacketListener};

/// Opens the local socket of an adapter on this shard.
pub(crate) fn open(tap: Arc<Tap>, join_all: JoinAll, shard: &Arc<Shard>) -> Result<(), Error> {
    attach::open(NAME, Captures(tap), join_all, shard)
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

/// The service.
struct Captures(Arc<Tap>);

impl Service<{ Request::LEN }> for Captures {
    type Attached = ();

    fn attach(&self, message: &[u8], channel: &PacketChannel) -> Option<()> {
        let request = message.first_chunk().and_then(Request::parse);
        let status = match request {
            Some(request) => self.begin(request, channel),
            None => Status::Invalid,
        };
        if status != Status::Attached {
            answer(channel, status, Totals::default());
        }
        (status == Status::Attached).then_some(())
    }

    fn stop(&self, message: &[u8], channel: &PacketChannel) -> bool {
        let ends = message == STOP;
        if ends {
            let totals = self.0.detach();
            answer(channel, Status::Ended, totals);
        }
        ends
    }

    fn detach(&self, (): ()) {
        self.0.detach();
    }
}

impl Captures {
    /// Makes a ring, begins to capture into it, and sends it.
    fn begin(&self, request: Request, channel: &PacketChannel) -> Status {
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
        if !self.0.attach(producer, u64::from(request.ring), wanted) {
            return Status::Busy;
        }
        let attached = Answer {
            status: Status::Attached,
            totals: Totals::default(),
        };
        match channel.send_with_fds(&attached.emit(), &[fd.as_fd()]) {
            Ok(true) => Status::Attached,
            Ok(false) | Err(_) => {
                self.0.detach();
                Status::NoMemory
            }
        }
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
