//! A connection on its way to another process of the host (V1): plain data, and descriptors that accompany it.
//! The descriptors are not used before [`QueuePair::start`], so that the state can be unpacked while the ownership of the connection is
//! not decided yet.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use verbena_nic::{Cq, Image, ImageError, QpState};
use verbena_wire::number::Qpn;

use super::migration::check_room;
use super::{Destination, ExportedConnection, QpAttr, QueuePair};
use crate::connection::{Connection, DetachedStream, Transport};
use crate::error::Error;
use crate::sys::Socket;

/// The state that goes to the other process, besides descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MigrationState {
    /// The queue pair's image, in its own format with a checksum.
    image: Vec<u8>,
    early: Vec<u8>,
    peer: SocketAddr,
    nudge: u64,
    attrs: QpAttr,
    /// Its number for out-of-band connections, if it has one.
    oob_qpn: Option<u32>,
    /// The number of descriptors.
    descriptors: usize,
}

impl MigrationState {
    /// The number of descriptors that accompany it.
    pub fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Its number for out-of-band connections, if it has one.
    fn oob_qpn(&self) -> Result<Option<Qpn>, Error> {
        let number = |number| Qpn::new(number).ok_or(Error::Image(ImageError::Invalid));
        self.oob_qpn.map(number).transpose()
    }
}

impl ExportedConnection {
    /// The state that goes to the other process.
    pub fn migration_state(&self) -> Result<MigrationState, Error> {
        let number = self.number();
        let stays = |why| verbena_nic::Error::NotMigratable { number, why };
        Ok(MigrationState {
            image: self.stream.image.encode().map_err(stays)?,
            early: self.stream.early.clone(),
            peer: self.stream.peer,
            nudge: self.stream.nudge,
            attrs: self.attr(),
            oob_qpn: self.oob_qpn().map(Qpn::get),
            descriptors: self.descriptors().len(),
        })
    }

    /// The descriptors that accompany it, in this order.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let (socket, other) = (self.transport.socket(), self.transport.separate_reader());
        core::iter::once(socket)
            .chain(other)
            .map(AsFd::as_fd)
            .collect()
    }
}

/// A connection that was received and is not started: its queue pair is in `Reset`.
#[derive(Debug)]
pub struct ImportedConnection {
    connection: Arc<Connection>,
    stream: DetachedStream,
}

impl QueuePair {
    /// Makes a queue pair for a connection that another process sent.
    pub fn import(
        to: &Destination<'_>,
        moved: MigrationState,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(QueuePair, ImportedConnection), Error> {
        let image = Image::decode(&moved.image).map_err(Error::Image)?;
        let (got, expected) = (descriptors.len(), moved.descriptors);
        let mut sockets = descriptors.into_iter().map(Socket::from_passed_fd);
        let (Some(socket), true) = (sockets.next(), got == expected && got <= 2) else {
            return Err(Error::Descriptors { got, expected });
        };
        let other = sockets.next().transpose()?;
        let number = moved.oob_qpn()?;
        let qp = QueuePair::create_for_import(to, &image, None, (moved.attrs, number))?;
        let line = Transport::new(socket?, other);
        let connection = Connection::prepare_attach(qp.core(), line, moved.peer)?;
        let moving = DetachedStream {
            image,
            early: moved.early,
            peer: moved.peer,
            nudge: moved.nudge,
            oob_hello: None,
        };
        Ok((
            qp,
            ImportedConnection {
                connection,
                stream: moving,
            },
        ))
    }

    /// Checks that all of these can start: their queue pairs are unchanged, and their unpolled completions fit the queues. Called
    /// before the ownership is decided, while they can still be returned.
    pub fn check_start(all: &[(&QueuePair, &ImportedConnection)]) -> Result<(), Error> {
        // Several may use one queue.
        let mut needs: Vec<(&Arc<Cq>, usize)> = Vec::new();
        for (qp, arriving) in all {
            qp.core.check()?;
            let (number, state) = (qp.number(), qp.state());
            if state != QpState::Reset {
                return Err(Error::NotConnectable { qp: number, state });
            }
            let (sends, receives) = arriving.stream.image.completions_by_queue();
            let init = qp.qp.init();
            for (cq, more) in [(&init.send_cq, sends), (&init.recv_cq, receives)] {
                match needs.iter_mut().find(|(known, _)| Arc::ptr_eq(known, cq)) {
                    Some((_, needed)) => *needed += more,
                    None => needs.push((cq, more)),
                }
            }
        }
        needs
            .into_iter()
            .try_for_each(|(cq, needed)| check_room(cq, needed))
    }

    /// Starts the connection: this process owns it from now on.
    pub fn start(&self, arriving: ImportedConnection) -> Result<(), Error> {
        let ImportedConnection {
            connection,
            stream: moving,
        } = arriving;
        let started = self.resume_stream(&connection, moving, false);
        started.map_err(|_| Error::NotConnectable {
            qp: self.number(),
            state: self.state(),
        })
    }
}

impl ImportedConnection {
    /// Drops the connection unused: another process owns it.
    pub fn cancel_import(self) {
        self.connection.cancel_attach();
    }
}

#[cfg(test)]
mod tests;
