//! A connection on its way to another process of the host (V1): plain data, and descriptors that accompany it.
//! The descriptors are not used before [`QueuePair::start`], so that a parcel can be unpacked while the ownership of the connection is
//! not decided yet.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use verbena_nic::{Cq, Image, QpState};

use super::moving::{check_room, join};
use super::{Departed, Destination, Manners, QueuePair};
use crate::connection::{Connection, Line, Moving};
use crate::error::Error;
use crate::sys::Socket;

/// The state that goes to the other process, besides descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Parcel {
    /// The queue pair's image, in its own format with a checksum.
    image: Vec<u8>,
    early: Vec<u8>,
    peer: SocketAddr,
    nudge: u64,
    manners: Manners,
    /// The number of descriptors.
    descriptors: usize,
}

impl Parcel {
    /// The number of descriptors that accompany it.
    pub fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl Departed {
    /// The state that goes to the other process.
    pub fn parcel(&self) -> Result<Parcel, Error> {
        let number = self.number();
        let stays = |why| verbena_nic::Error::Stays { number, why };
        Ok(Parcel {
            image: self.moving.image.encode().map_err(stays)?,
            early: self.moving.early.clone(),
            peer: self.moving.peer,
            nudge: self.moving.nudge,
            manners: self.manners(),
            descriptors: self.descriptors().len(),
        })
    }

    /// The descriptors that accompany it, in this order.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let (socket, other) = (self.line.socket(), self.line.other());
        core::iter::once(socket)
            .chain(other)
            .map(AsFd::as_fd)
            .collect()
    }
}

/// A connection that was received and is not started: its queue pair is in `Reset`.
#[derive(Debug)]
pub struct Arriving {
    connection: Arc<Connection>,
    moving: Moving,
}

impl QueuePair {
    /// Makes a queue pair for a connection that another process sent.
    pub fn unpack(
        to: &Destination<'_>,
        parcel: Parcel,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(QueuePair, Arriving), Error> {
        let image = Image::decode(&parcel.image).map_err(Error::Image)?;
        let (got, expected) = (descriptors.len(), parcel.descriptors);
        let mut sockets = descriptors.into_iter().map(Socket::arrived);
        let (Some(socket), true) = (sockets.next(), got == expected && got <= 2) else {
            return Err(Error::Descriptors { got, expected });
        };
        let other = sockets.next().transpose()?;
        let qp = QueuePair::expecting(to, image.traits(), None, parcel.manners)?;
        let line = Line::new(socket?, other);
        let connection = Connection::expect(qp.core(), line, parcel.peer)?;
        let moving = Moving {
            image,
            early: parcel.early,
            peer: parcel.peer,
            nudge: parcel.nudge,
        };
        Ok((qp, Arriving { connection, moving }))
    }

    /// Checks that all of these can start: their queue pairs are unchanged, and their unpolled completions fit the queues. Called
    /// before the ownership is decided, while they can still be returned.
    pub fn check_start(all: &[(&QueuePair, &Arriving)]) -> Result<(), Error> {
        // Several may use one queue.
        let mut needs: Vec<(&Arc<Cq>, usize)> = Vec::new();
        for (qp, arriving) in all {
            qp.core.check()?;
            let (number, state) = (qp.number(), qp.state());
            if state != QpState::Reset {
                return Err(Error::NotConnectable { qp: number, state });
            }
            let (sends, receives) = arriving.moving.image.completions_by_queue();
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
    pub fn start(&self, arriving: Arriving) -> Result<(), Error> {
        let Arriving { connection, moving } = arriving;
        join(self, &connection, moving).map_err(|_| Error::NotConnectable {
            qp: self.number(),
            state: self.state(),
        })
    }
}

impl Arriving {
    /// Drops the connection unused: another process owns it.
    pub fn forgo(self) {
        self.connection.forgo();
    }
}
