//! Migration of a queue pair's connection to another function under traffic (V1): taken out, put in elsewhere, or put back.
//! A migration that fails leaves the connection where it was, in operation; the peer notices neither. Queue pairs that peers call by
//! number and channels of shared send queues cannot migrate.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::qp::Traits;
use verbena_nic::{Cq, NewQp, Outbox, Stays};

use super::{Manners, QueuePair};
use crate::connection::{Berth, Connection, Line, Moving, Slot};
use crate::core::Core;
use crate::engine::Engine;
use crate::error::Error;
use crate::queue::CompletionQueue;

/// Where a connection shall migrate to.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The engine of the function.
    pub engine: &'a Engine,
    /// A protection domain of that function.
    pub pd: Pd,
    /// Where sends complete from then on.
    pub send: &'a CompletionQueue,
    /// Where receives complete from then on.
    pub recv: &'a CompletionQueue,
    /// The shared receive queue, required if the queue pair uses one.
    pub srq: Option<u32>,
}

/// A queue pair that did not migrate, and why. Its connection is in operation.
#[derive(Debug)]
pub struct Unmoved {
    /// The queue pair.
    pub qp: QueuePair,
    /// Why.
    pub why: Error,
}

/// A connection between two queue pairs. No thread serves its sockets, and its peer waits.
#[derive(Debug)]
#[must_use = "its peer waits"]
pub struct Departed {
    /// The queue pair that it was taken out of.
    home: QueuePair,
    pub(crate) moving: Moving,
    pub(crate) line: Line,
}

impl QueuePair {
    /// Moves the connection to another queue pair, of another function or of the same. Outstanding requests and unpolled completions
    /// move too; memory stays where it is and remains accessible to the connection.
    pub fn migrate(self, to: Destination<'_>) -> Result<QueuePair, Box<Unmoved>> {
        // What can fail is checked before the stream is interrupted.
        if let Err(why) = self.check_fits(&to) {
            return Err(Box::new(Unmoved { qp: self, why }));
        }
        let departed = self.depart()?;
        match departed.settle(to) {
            Ok(qp) => Ok(qp),
            Err(failed) => {
                let (departed, why) = *failed;
                Err(Box::new(Unmoved {
                    qp: departed.come_back(),
                    why,
                }))
            }
        }
    }

    /// Unpolled completions must fit the queues they move to.
    fn check_fits(&self, to: &Destination<'_>) -> Result<(), Error> {
        to.engine.core.check()?;
        let init = self.qp.init();
        check_room(to.send.cq(), init.send_cq.len())?;
        check_room(to.recv.cq(), init.recv_cq.len())
    }

    /// Takes the connection out, for another process; see [`Departed::parcel`].
    pub fn depart(self) -> Result<Departed, Box<Unmoved>> {
        match self.take_out() {
            Ok((moving, line)) => Ok(Departed {
                home: self,
                moving,
                line,
            }),
            Err(why) => Err(Box::new(Unmoved { qp: self, why })),
        }
    }

    fn take_out(&self) -> Result<(Moving, Line), Error> {
        self.core.check()?;
        let number = self.number();
        let stays = |why| verbena_nic::Error::Stays { number, why };
        if self.callable.is_some() {
            return Err(stays(Stays::Called).into());
        }
        let connection = self.slot.get();
        let connection = connection.ok_or_else(|| stays(Stays::State(self.state())))?;
        let line = connection.duplicate_line()?;
        let mut out = Outbox::new();
        let moving = connection.depart(&mut out);
        if moving.is_err() {
            // Another thread may have queued a request meanwhile and left its transmission to this one.
            connection.send(&mut out);
        }
        self.core.deliver(&mut out);
        Ok((moving.map_err(stays)?, line))
    }

    /// A queue pair for a connection of another queue pair of this process (`from`), or of another process.
    pub(crate) fn expecting(
        to: &Destination<'_>,
        traits: Traits,
        from: Option<&QueuePair>,
        manners: Manners,
    ) -> Result<QueuePair, Error> {
        let core = &to.engine.core;
        core.check()?;
        core.check_own(to.send.0.core())?;
        core.check_own(to.recv.0.core())?;
        if traits.shared_receives != to.srq.is_some() {
            return Err(Error::Receives {
                shared: traits.shared_receives,
            });
        }
        let new = NewQp {
            name: None,
            pd: to.pd,
            personality: traits.personality,
            qp_type: traits.qp_type,
            send_cq: to.send.number(),
            recv_cq: to.recv.number(),
            srq: to.srq,
            limits: traits.limits,
            transfer: core.config.transfer(),
            registration: traits.registration,
        };
        let qp = match from {
            None => core.function.create_qp(new)?,
            Some(from) => {
                let function = &from.core.function;
                core.function.create_moved(new, function, from.number())?
            }
        };
        to.send.0.feed(&to.recv.0.group);
        Ok(QueuePair {
            core: core.clone(),
            qp,
            slot: Arc::new(Slot::new(manners.patience)),
            recv: to.recv.0.clone(),
            _send: to.send.0.clone(),
            manners: Arc::new(parking_lot::Mutex::new(manners)),
            callable: None,
        })
    }

    fn berth(&self) -> Berth {
        Berth {
            qp: self.qp.clone(),
            group: self.recv.group.clone(),
            slot: self.slot.clone(),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Departed {
    pub(crate) fn number(&self) -> u32 {
        self.home.number()
    }

    /// The attributes of the queue pair that it was taken out of.
    pub(crate) fn manners(&self) -> Manners {
        *self.home.manners.lock()
    }

    /// Puts the connection into a new queue pair.
    fn settle(self, to: Destination<'_>) -> Result<QueuePair, Box<(Departed, Error)>> {
        let traits = self.moving.image.traits();
        let made = QueuePair::expecting(&to, traits, Some(&self.home), self.manners())
            .and_then(|qp| Ok((qp, self.line.duplicate()?)))
            .and_then(|(qp, line)| {
                let connection = Connection::expect(qp.core(), line, self.moving.peer)?;
                Ok((qp, connection))
            });
        let (qp, connection) = match made {
            Ok(made) => made,
            Err(why) => return Err(Box::new((self, why))),
        };
        let Departed { home, moving, line } = self;
        match join(&qp, &connection, moving) {
            Ok(()) => Ok(qp),
            Err(moving) => {
                let moving = *moving;
                Err(Box::new((Departed { home, moving, line }, Error::Closed)))
            }
        }
    }

    /// Puts the connection back where it was.
    pub fn come_back(self) -> QueuePair {
        let Departed { home, moving, line } = self;
        // This fails only while the adapter shuts down; then the connection ends with it.
        if let Ok(connection) = Connection::expect(&home.core, line, moving.peer) {
            let _ = join(&home, &connection, moving);
        }
        home
    }
}

/// Checks that `needed` completions fit the queue.
pub(super) fn check_room(cq: &Cq, needed: usize) -> Result<(), Error> {
    let free = cq.capacity().saturating_sub(cq.len());
    if needed > free {
        let cq = cq.number();
        return Err(Error::NoRoom { cq, needed, free });
    }
    Ok(())
}

/// Resumes the stream in this queue pair.
pub(super) fn join(
    qp: &QueuePair,
    connection: &Arc<Connection>,
    moving: Moving,
) -> Result<(), Box<Moving>> {
    let mut out = Outbox::new();
    let joined = connection.arrive(moving, qp.berth(), &mut out);
    if joined.is_err() {
        connection.forgo();
    }
    qp.core.deliver(&mut out);
    joined
}
