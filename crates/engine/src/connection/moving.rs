//! A connection that goes elsewhere under traffic, and one that comes (V1, DESIGN §9).
//! It promises that the descriptor is touched by one of them at any time, that bytes which came early go along, and that the
//! peer sees nothing but a pause. It refuses to move what is not a stream yet, or no longer.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbena_nic::{Image, Outbox, Qp, QpState, Stays};

use super::line::Line;
use super::{Bound, Connection, Phase, Slot};
use crate::core::Core;
use crate::error::Error;
use crate::group::Group;
use crate::sys;

/// What moves: the queue pair's part, and the connection's.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) image: Image,
    /// Bytes that came along with the startup and are not read yet.
    pub(crate) early: Vec<u8>,
    pub(crate) peer: SocketAddr,
    /// When a peer that has said nothing gets its nudge, in nanoseconds; 0 if it gets none.
    pub(crate) nudge: u64,
}

/// Where a connection comes to.
pub(crate) struct Berth {
    pub(crate) qp: Arc<Qp>,
    pub(crate) group: Arc<Group>,
    pub(crate) slot: Arc<Slot>,
}

impl Connection {
    /// Another name for its descriptors, which stay open when this one's are closed.
    pub(crate) fn duplicate_line(&self) -> Result<Line, Error> {
        Ok(self.line.duplicate()?)
    }

    /// Lets go of the stream: nobody here touches the descriptors from now on.
    pub(crate) fn depart(&self, out: &mut Outbox) -> Result<Moving, Stays> {
        let Some(bound) = self.bound.get() else {
            return Err(Stays::State(QpState::Reset));
        };
        if bound.introduction.is_some() {
            // Its peer knows it by a number that stays here, and may call it again.
            return Err(Stays::Called);
        }
        if self.line.has_tls() {
            return Err(Stays::Encrypted);
        }
        let (image, early) = {
            // Early bytes must not be read between the image and them.
            let mut phase = self.phase.lock();
            let Phase::Running { early } = &mut *phase else {
                return Err(Stays::State(bound.qp.state()));
            };
            let image = bound.qp.depart(|| self.line.shut(), out)?;
            let early = core::mem::take(early);
            *phase = Phase::Closed;
            (image, early)
        };
        self.watch_no_more();
        self.shard.forget(self.token);
        self.core.parted(bound.qp.number(), self);
        bound.slot.clear(self);
        Ok(Moving {
            image,
            early,
            peer: self.peer,
            nudge: self.nudge.load(Ordering::Acquire),
        })
    }

    /// A connection that is not there yet: nothing of its descriptors is touched before [`arrive`](Connection::arrive).
    pub(crate) fn expect(
        core: &Arc<Core>,
        line: Line,
        peer: SocketAddr,
    ) -> Result<Arc<Connection>, Error> {
        let early = Vec::new();
        let phase = Phase::Running { early };
        let connection = Connection::new(core, line, peer, phase, sys::now())?;
        connection
            .shard
            .serve(connection.token, connection.clone())?;
        Ok(connection)
    }

    /// It does not come after all.
    pub(crate) fn forgo(&self) {
        *self.phase.lock() = Phase::Closed;
        self.shard.forget(self.token);
    }

    /// Goes on with the stream; what moved is given back if the queue pair does not fit it.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        moving: Moving,
        berth: Berth,
        out: &mut Outbox,
    ) -> Result<(), Box<Moving>> {
        let Moving {
            image,
            early,
            peer,
            nudge,
        } = moving;
        let Berth { qp, group, slot } = berth;
        let bound = {
            let mut phase = self.phase.lock();
            if let Err(image) = qp.arrive(image, out) {
                return Err(Box::new(Moving {
                    image: *image,
                    early,
                    peer,
                    nudge,
                }));
            }
            let bound = Bound {
                qp,
                group,
                slot,
                introduction: None,
            };
            self.bind(&mut phase, bound, early).0
        };
        if nudge != 0 {
            self.nudge.store(nudge, Ordering::Release);
            self.shard
                .at(verbena_stream::Time::from_nanos(nudge), self.token);
        }
        if self.watch_by_group(bound).is_err() {
            // Nobody would hear the peer.
            self.abort(out);
        } else {
            self.full_turn(out);
        }
        Ok(())
    }
}
