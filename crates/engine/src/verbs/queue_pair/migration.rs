//! Migration of a queue pair's connection to another function under traffic (V1): taken out, put in elsewhere, or put back.
//! A migration that fails leaves the connection where it was, in operation; the peer notices neither. A queue pair that was connected by
//! number keeps the number in its completions. A channel migrates when its shared send queue has no requests for it (V6).

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::{Cq, Image, MigrateRefusal, NewQp, Outbox};
use verbena_sync::locks::Mutex;
use verbena_wire::number::Qpn;

use super::oob::{MovedNumber, RoceNumber};
use super::{QpAttr, QueuePair};
use crate::connection::{AttachPoint, Connection, DetachedStream, Slot, Transport};
use crate::core::Core;
use crate::engine::Engine;
use crate::error::Error;
use crate::poll::queue::CompletionQueue;
use crate::verbs::shared_send_queue::SendQueue;

/// Where a connection shall migrate to.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The engine of the function.
    pub engine: &'a Engine,
    /// A protection domain of that function.
    pub pd: Pd,
    /// Where sends complete from then on, or the shared send queue that they are posted to (V6).
    pub send: SendQueue<'a>,
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
        if let SendQueue::Own(send) = to.send {
            check_room(send.cq(), init.send_cq.len())?;
        }
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
        let function = &self.core.function;
        function.check_channel_idle(number)?;
        let limits = function.query_qp(number)?.init_attr.limits;
        let connection = self.slot.get();
        let connection = connection.ok_or_else(|| {
            stays(match self.slot.roce() {
                Some(_) => MigrateRefusal::Roce,
                None => MigrateRefusal::State(self.state()),
            })
        })?;
        connection.leave_rings().map_err(stays)?;
        let line = connection.duplicate_transport()?;
        let mut out = Outbox::new();
        let moving = connection.detach_stream(&mut out);
        if moving.is_err() {
            // Another thread may have queued a request meanwhile and left its transmission to this one.
            connection.send(&mut out);
        }
        self.core.deliver(&mut out);
        let mut moving = moving.map_err(stays)?;
        // The limit of a channel is in its shared send queue (V6).
        moving.image.set_send_limit(limits.sends);
        Ok((moving, line))
    }

    /// A queue pair for a connection of another queue pair of this process (`from`), or of another process, with its attributes and
    /// its number for out-of-band connections.
    pub(crate) fn create_for_import(
        to: &Destination<'_>,
        image: &Image,
        from: Option<&QueuePair>,
        (attrs, number): (QpAttr, Option<Qpn>),
    ) -> Result<QueuePair, Error> {
        let core = &to.engine.core;
        core.check()?;
        let sends = to.send.queue();
        core.check_own(sends.core())?;
        core.check_own(to.recv.0.core())?;
        let traits = image.traits();
        if traits.shared_receives != to.srq.is_some() {
            return Err(Error::ReceiveQueueMismatch {
                shared: traits.shared_receives,
            });
        }
        let ssq = match to.send {
            SendQueue::Own(_) => None,
            SendQueue::Shared(_) if image.sends() > 0 => {
                let requests = image.sends();
                return Err(Error::SendsOutstanding { requests });
            }
            SendQueue::Shared(ssq) => Some(ssq.number()),
        };
        let moved_number = number.map(|number| MovedNumber::reserve(core, number, from));
        let moved_number = moved_number.transpose()?;
        let new = NewQp {
            wc_qpn: number.map(Qpn::get),
            pd: to.pd,
            personality: traits.personality,
            qp_type: traits.qp_type,
            send_cq: sends.cq.number(),
            recv_cq: to.recv.number(),
            srq: to.srq,
            limits: traits.limits,
            transfer: core.config.transfer(),
            registration: traits.registration,
        };
        let qp = match (from, ssq) {
            (None, None) => core.function.create_qp(new)?,
            (None, Some(ssq)) => core.function.create_channel(ssq, new)?,
            (Some(from), ssq) => {
                let (function, number) = (&from.core.function, from.number());
                core.function.create_moved(new, ssq, function, number)?
            }
        };
        sends.add_send_group(&to.recv.0.group);
        let attr = Arc::new(Mutex::new(attrs));
        core.routes.add_attr(qp.number(), &attr);
        Ok(QueuePair {
            core: core.clone(),
            qp,
            slot: Arc::new(Slot::new(attrs.peer_timeout)),
            recv: to.recv.0.clone(),
            _send: sends.clone(),
            _xrcd: None,
            attr,
            oob: None,
            roce_number: RoceNumber::default(),
            moved_number,
        })
    }

    /// Resumes a stream in this queue pair; `is_origin` if it was taken out of it.
    pub(super) fn resume_stream(
        &self,
        connection: &Arc<Connection>,
        moving: DetachedStream,
        is_origin: bool,
    ) -> Result<(), Box<DetachedStream>> {
        let to = AttachPoint {
            qp: self.qp.clone(),
            group: self.recv.group.clone(),
            slot: self.slot.clone(),
            is_origin,
        };
        let mut out = Outbox::new();
        let joined = connection.attach_stream(moving, to, &mut out);
        if joined.is_err() {
            connection.cancel_attach();
        }
        self.core.deliver(&mut out);
        joined
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

    /// The number for out-of-band connections of the queue pair that it was taken out of.
    pub(crate) fn oob_qpn(&self) -> Option<Qpn> {
        self.origin.oob_qpn()
    }

    /// Puts the connection into a new queue pair.
    fn import_into(
        self,
        to: Destination<'_>,
    ) -> Result<QueuePair, Box<(ExportedConnection, Error)>> {
        let (image, attrs) = (&self.stream.image, (self.attr(), self.oob_qpn()));
        let made = QueuePair::create_for_import(&to, image, Some(&self.origin), attrs)
            .and_then(|qp| Ok((qp, self.transport.duplicate()?)))
            .and_then(|(qp, line)| {
                let connection = Connection::prepare_attach(qp.core(), line, self.stream.peer)?;
                Ok((qp, connection))
            });
        let (mut qp, connection) = match made {
            Ok(made) => made,
            Err(why) => return Err(Box::new((self, why))),
        };
        let ExportedConnection {
            origin: mut home,
            stream: moving,
            transport: line,
        } = self;
        match qp.resume_stream(&connection, moving, false) {
            Ok(()) => {
                // Its completions may have the same number, and be in the same queue.
                home.qp.set_moved();
                if let Some(number) = &mut qp.moved_number {
                    number.take_from(&mut home);
                }
                Ok(qp)
            }
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
            let _ = home.resume_stream(&connection, moving, true);
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
