//! Moves a running connection to another queue pair under traffic (V1, docs/migration.md).
//! Only one side uses the descriptors at any time, unprocessed early bytes move along, and the peer sees only a pause. Only a
//! running stream can move.

use core::net::SocketAddr;
use std::sync::Arc;

use verbena_nic::{Image, MigrateRefusal, Outbox, Qp, QpState};
use verbena_sync::atomic::Ordering;

use super::transport::Transport;
use super::{Bound, Connection, Phase, Slot};
use crate::core::Core;
use crate::error::Error;
use crate::notify::failure_log;
use crate::oob::hello::OobHello;
use crate::poll::group::Group;
use crate::same_host::NoRings;
use crate::sys;

/// What moves: the state of the queue pair and of the connection.
#[derive(Debug)]
pub(crate) struct DetachedStream {
    pub(crate) image: Image,
    /// Bytes received with the startup that are not processed yet.
    pub(crate) early: Vec<u8>,
    pub(crate) peer: SocketAddr,
    /// When a peer that has sent nothing is sent a first message, in nanoseconds; 0 for never.
    pub(crate) nudge: u64,
    /// How the out-of-band connection began, if it is one: for the queue pair that it was taken out of.
    pub(crate) oob_hello: Option<OobHello>,
}

/// The queue pair to which a connection moves.
pub(crate) struct AttachPoint {
    pub(crate) qp: Arc<Qp>,
    pub(crate) group: Arc<Group>,
    pub(crate) slot: Arc<Slot>,
    /// The connection was taken out of it.
    pub(crate) is_origin: bool,
}

impl Connection {
    /// Duplicates the descriptors; the copies stay open when these are closed. Shared memory is not moved: the stream returns to its
    /// socket before.
    pub(crate) fn duplicate_transport(&self) -> Result<Transport, Error> {
        Ok(self.transport.duplicate()?)
    }

    /// Detaches the stream: this connection does not use the descriptors from now on.
    pub(crate) fn detach_stream(&self, out: &mut Outbox) -> Result<DetachedStream, MigrateRefusal> {
        let Some(bound) = self.bound.get() else {
            return Err(MigrateRefusal::State(QpState::Reset));
        };
        if self.transport.has_tls() {
            return Err(MigrateRefusal::Encrypted);
        }
        let (image, early) = {
            // Under the lock, so that early bytes are not processed after the image was taken.
            let mut phase = self.phase.lock();
            let Phase::Running { early } = &mut *phase else {
                return Err(MigrateRefusal::State(bound.qp.state()));
            };
            let image = bound.qp.export_image(|| self.transport.shut(), out)?;
            let early = core::mem::take(early);
            *phase = Phase::Closed;
            (image, early)
        };
        self.unwatch();
        self.shard.forget(self.token);
        self.core.routes.remove_connection(bound.qp.number(), self);
        failure_log::disconnected(&self.core, bound.qp.number());
        bound.slot.clear(self);
        Ok(DetachedStream {
            image,
            early,
            peer: self.peer,
            nudge: self.nudge.load(Ordering::Acquire),
            oob_hello: bound.oob_hello.clone(),
        })
    }

    /// A connection prepared for a stream that moves here; its descriptors are not used before [`attach_stream`](Connection::attach_stream).
    pub(crate) fn prepare_attach(
        core: &Arc<Core>,
        line: Transport,
        peer: SocketAddr,
    ) -> Result<Arc<Connection>, Error> {
        let early = Vec::new();
        let phase = Phase::Running { early };
        let connection = Connection::new(core, line, peer, phase, sys::now())?;
        connection.set_no_rings(NoRings::Returned);
        connection
            .shard
            .serve(connection.token, connection.clone())?;
        Ok(connection)
    }

    /// The move was cancelled.
    pub(crate) fn cancel_attach(&self) {
        *self.phase.lock() = Phase::Closed;
        self.shard.forget(self.token);
    }

    /// Continues the stream; returns it if the queue pair does not fit.
    pub(crate) fn attach_stream(
        self: &Arc<Self>,
        moving: DetachedStream,
        to: AttachPoint,
        out: &mut Outbox,
    ) -> Result<(), Box<DetachedStream>> {
        let DetachedStream {
            image,
            early,
            peer,
            nudge,
            oob_hello,
        } = moving;
        let AttachPoint {
            qp,
            group,
            slot,
            is_origin,
        } = to;
        let bound = {
            let mut phase = self.phase.lock();
            let binding = slot.clone();
            let _binding = binding.lock_binding();
            if let Err(image) = qp.import_image(image, out) {
                return Err(Box::new(DetachedStream {
                    image: *image,
                    early,
                    peer,
                    nudge,
                    oob_hello,
                }));
            }
            let bound = Bound {
                qp,
                group,
                slot,
                // Another queue pair has no part in the handshake that connected the first one.
                oob_hello: oob_hello.filter(|_| is_origin),
            };
            self.bind(&mut phase, bound, early).0
        };
        if nudge != 0 {
            self.nudge.store(nudge, Ordering::Release);
            self.shard
                .set_timer(verbena_stream::Time::from_nanos(nudge), self.token);
        }
        if self.watch_by_group(bound).is_err() {
            // Without a watch, input would not be noticed.
            self.abort(out);
        } else {
            self.full_turn(out);
        }
        Ok(())
    }
}
