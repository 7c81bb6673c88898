//! A connection on its way to another process of the machine (V1): plain data, and descriptors that go with it.
//! It promises that nothing of the descriptors is touched before [`QueuePair::start`], so that a parcel can be unpacked while it
//! is not known yet who will own the connection. It refuses what the queue pair's image refuses.

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

/// What goes to the other process, besides descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Parcel {
    /// The queue pair, which has a form and a sum of its own.
    image: Vec<u8>,
    early: Vec<u8>,
    peer: SocketAddr,
    nudge: u64,
    manners: Manners,
    /// Descriptors that go along.
    descriptors: usize,
}

impl Parcel {
    /// How many descriptors go along.
    pub fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// Who is at the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl Departed {
    /// What goes to the other process.
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

    /// And what goes along, in this order.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let (socket, other) = (self.line.socket(), self.line.other());
        core::iter::once(socket)
            .chain(other)
            .map(AsFd::as_fd)
            .collect()
    }
}

/// A connection that came and is not begun: its queue pair is in `Reset`.
#[derive(Debug)]
pub struct Arriving {
    connection: Arc<Connection>,
    moving: Moving,
}

impl QueuePair {
    /// A queue pair for what another process sent.
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

    /// All of these can begin: their queue pairs are as they were made, and completions that wait fit their queues. Asked
    /// before it is decided who owns them, while they can still be given back.
    pub fn check_start(all: &[(&QueuePair, &Arriving)]) -> Result<(), Error> {
        // Several may go to one queue.
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

    /// What came begins: this process owns the connection from here on.
    pub fn start(&self, arriving: Arriving) -> Result<(), Error> {
        let Arriving { connection, moving } = arriving;
        join(self, &connection, moving).map_err(|_| Error::NotConnectable {
            qp: self.number(),
            state: self.state(),
        })
    }
}

impl Arriving {
    /// It belongs to another process after all; nothing of it was touched.
    pub fn forgo(self) {
        self.connection.forgo();
    }
}
