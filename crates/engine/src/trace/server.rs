//! Attaching and detaching: a process of the same user, or root, sends one request and gets the rings ([`attach`]). While it stays connected the adapter is
//! traced. One trace at a time.

use std::os::fd::AsFd;
use std::sync::Arc;

use verbena_mem::{Mapping, WordPages};

use super::rings::Layout;
use super::tracer::Rings;
use super::{NAME, Request, Status};
use crate::capture::Tap;
use crate::error::Error;
use crate::notify::attach::{self, JoinAll, Service};
use crate::poll::shard::Shard;
use crate::sys::PacketChannel;

/// Opens the local socket of an adapter on this shard.
pub(crate) fn open(tap: Arc<Tap>, join_all: JoinAll, shard: &Arc<Shard>) -> Result<(), Error> {
    attach::open(NAME, Traces(tap), join_all, shard)
}

/// The service.
struct Traces(Arc<Tap>);

impl Service<{ Request::LEN }> for Traces {
    type Attached = Arc<Rings>;

    fn attach(&self, message: &[u8], channel: &PacketChannel) -> Option<Arc<Rings>> {
        let request = message.first_chunk().and_then(Request::parse);
        let begun = request.ok_or(Status::Invalid);
        match begun.and_then(|request| self.begin(request, channel)) {
            Ok(rings) => Some(rings),
            Err(status) => {
                // If it cannot be sent, the client still sees the end of the connection.
                let _ = channel.send(&[status as u8], &[]);
                None
            }
        }
    }

    fn detach(&self, rings: Arc<Rings>) {
        self.0.detach_trace();
        rings.end();
    }
}

impl Traces {
    /// Makes the rings, begins to trace into them, and sends them.
    fn begin(&self, request: Request, channel: &PacketChannel) -> Result<Arc<Rings>, Status> {
        let layout = Layout::new(request.events).ok_or(Status::Invalid)?;
        let mapping = Mapping::new(layout.len()).map_err(|_| Status::NoMemory)?;
        let fd = mapping.fd().try_clone_to_owned();
        let fd = fd.map_err(|_| Status::NoMemory)?;
        let rings = Rings::new(WordPages::new(mapping.into_pages()), layout);
        if !self.0.attach_trace(&rings, request.qp) {
            return Err(Status::Busy);
        }
        let answer = [Status::Attached as u8];
        match channel.send_with_fds(&answer, &[fd.as_fd()]) {
            Ok(true) => Ok(rings),
            Ok(false) | Err(_) => {
                self.detach(rings);
                Err(Status::NoMemory)
            }
        }
    }
}
