//! Migration of a queue pair's connection to another function under traffic (V1): taken out, put in elsewhere, or put back.
//! A migration that fails leaves the connection where it was, in operation; the peer notices neither. Queue pairs that peers call by
//! number and channels of shared send queues cannot migrate.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::qp::Traits;
use verbena_nic::{Cq, MigrateRefusal, NewQp, Outbox};

use super::{QpAttr, QueuePair};
use crate::connection::{AttachPoint, Connection, DetachedStream, Slot, Transport};
use crate::core::Core;
use crate::engine::Engine;
use crate::error::Error;
use crate::poll::queue::CompletionQueue;

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
pub struct MigrateError {
    /// The queue pair.
    pub qp: QueuePair,
    /// Why.
    pub source: Error,
}

/// A connection between two queue pairs. No thread serves its sockets, and its peer waits.
#[derive(Debug)]
#[must_use = "the peer waits until the connection is served again"]
pub struct ExportedConnection {
    /// The queue pair that it was taken out of.
    origin: QueuePair,
    pub(crate) stream: DetachedStream,
    pub(crate) transport: Transport,
}

impl QueuePair {
    /// Moves the connection to another queue pair, of another function or of the same. Outstanding requests and unpolled completions
    /// move too; memory stays where it is and remains accessible to the connection.
    pub fn migrate(self, to: Destination<'_>) -> Result<QueuePair, Box<MigrateError>> {
        // What can fail is checked before the stream is interrupted.
        if let Err(why) = self.check_fits(&to) {
            return Err(Box::new(MigrateError {
                qp: self,
                source: why,
            }));
        }
        let departed = self.export()?;
        match departed.import_into(to) {
            Ok(qp) => Ok(qp),
            Err(failed) => {
                let (departed, why) = *failed;
                Err(Box::new(MigrateError {
                    qp: departed.restore(),
                    source: why,
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

    /// Takes the connection out, for another process; see [`ExportedConnection::migration_state`].
    pub fn export(self) -> Result<ExportedConnection, Box<MigrateError>> {
        match self.export_stream() {
            Ok((moving, line)) => Ok(ExportedConnection {
                origin: self,
                stream: moving,
                transport: line,
            }),
            Err(why) => Err(Box::new(MigrateError {
                qp: self,
                source: why,
            })),
        }
    }

    fn export_stream(&self) -> Result<(DetachedStream, Transport), Error> {
        self.core.check()?;
        let number = self.number();
        let stays = |why| verbena_nic::Error::NotMigratable { number, why };
        if self.oob.is_some() {
            return Err(stays(MigrateRefusal::ConnectedByNumber).into());
        }
        let connection = self.slot.get();
        let connection = connection.ok_or_else(|| stays(MigrateRefusal::State(self.state())))?;
        let line = connection.duplicate_transport()?;
        let mut out = Outbox::new();
        let moving = connection.detach_stream(&mut out);
        if moving.is_err() {
            // Another thread may have queued a request meanwhile and left its transmission to this one.
            connection.send(&mut out);
        }
        self.core.deliver(&mut out);
        Ok((moving.map_err(stays)?, line))
    }

    /// A queue pair for a connection of another queue pair of this process (`from`), or of another process.
    pub(crate) fn create_for_import(
        to: &Destination<'_>,
        traits: Traits,
        from: Option<&QueuePair>,
        attrs: QpAttr,
    ) -> Result<QueuePair, Error> {
        let core = &to.engine.core;
        core.check()?;
        core.check_own(to.send.0.core())?;
        core.check_own(to.recv.0.core())?;
        if traits.shared_receives != to.srq.is_some() {
            return Err(Error::ReceiveQueueMismatch {
                shared: traits.shared_receives,
            });
        }
        let new = NewQp {
            wc_qpn: None,
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
        to.send.0.add_send_group(&to.recv.0.group);
        Ok(QueuePair {
            core: core.clone(),
            qp,
            slot: Arc::new(Slot::new(attrs.peer_timeout)),
            recv: to.recv.0.clone(),
            _send: to.send.0.clone(),
            _xrcd: None,
            attr: Arc::new(verbena_sync::locks::Mutex::new(attrs)),
            oob: None,
        })
    }

    fn import_target(&self) -> AttachPoint {
        AttachPoint {
            qp: self.qp.clone(),
            group: self.recv.group.clone(),
            slot: self.slot.clone(),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl ExportedConnection {
    pub(crate) fn number(&self) -> u32 {
        self.origin.number()
    }

    /// The attributes of the queue pair that it was taken out of.
    pub(crate) fn attr(&self) -> QpAttr {
        *self.origin.attr.lock()
    }

    /// Puts the connection into a new queue pair.
    fn import_into(
        self,
        to: Destination<'_>,
    ) -> Result<QueuePair, Box<(ExportedConnection, Error)>> {
        let traits = self.stream.image.traits();
        let made = QueuePair::create_for_import(&to, traits, Some(&self.origin), self.attr())
            .and_then(|qp| Ok((qp, self.transport.duplicate()?)))
            .and_then(|(qp, line)| {
                let connection = Connection::prepare_attach(qp.core(), line, self.stream.peer)?;
                Ok((qp, connection))
            });
        let (qp, connection) = match made {
            Ok(made) => made,
            Err(why) => return Err(Box::new((self, why))),
        };
        let ExportedConnection {
            origin: home,
            stream: moving,
            transport: line,
        } = self;
        match import_stream(&qp, &connection, moving) {
            Ok(()) => Ok(qp),
            Err(moving) => {
                let moving = *moving;
                Err(Box::new((
                    ExportedConnection {
                        origin: home,
                        stream: moving,
                        transport: line,
                    },
                    Error::Closed,
                )))
            }
        }
    }

    /// Puts the connection back where it was.
    pub fn restore(self) -> QueuePair {
        let ExportedConnection {
            origin: home,
            stream: moving,
            transport: line,
        } = self;
        // This fails only while the adapter shuts down; then the connection ends with it.
        if let Ok(connection) = Connection::prepare_attach(&home.core, line, moving.peer) {
            let _ = import_stream(&home, &connection, moving);
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
pub(super) fn import_stream(
    qp: &QueuePair,
    connection: &Arc<Connection>,
    moving: DetachedStream,
) -> Result<(), Box<DetachedStream>> {
    let mut out = Outbox::new();
    let joined = connection.attach_stream(moving, qp.import_target(), &mut out);
    if joined.is_err() {
        connection.cancel_attach();
    }
    qp.core.deliver(&mut out);
    joined
}
