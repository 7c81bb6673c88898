//! The connections of a group, in a list and by name.
//! It promises that finding, adding and removing one takes no longer the more there are.
//! It refuses to keep an order: who leaves is replaced by the last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{FEW, Group};
use crate::connection::Connection;
use crate::shard::ByToken;
use crate::sys::{self, Interest, Socket};

#[derive(Default)]
pub(super) struct Members {
    pub(super) list: Vec<Arc<Connection>>,
    /// Where each one is in the list: there may be thousands, and they come and go.
    places: ByToken<usize>,
}

impl Members {
    pub(super) fn add(&mut self, connection: &Arc<Connection>) {
        self.places.insert(connection.token(), self.list.len());
        self.list.push(connection.clone());
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Arc<Connection>> {
        let at = self.places.remove(&token)?;
        let gone = self.list.swap_remove(at);
        if let Some(moved) = self.list.get(at) {
            self.places.insert(moved.token(), at);
        }
        Some(gone)
    }

    pub(super) fn find(&self, token: u64) -> Option<Arc<Connection>> {
        let at = *self.places.get(&token)?;
        self.list.get(at).cloned()
    }
}

impl Group {
    /// A connection joins; it is not watched yet.
    pub(crate) fn join(&self, connection: &Arc<Connection>) {
        let mut members = self.members.write();
        members.add(connection);
        self.note_crowd(&members);
    }

    /// A member is watched for this from now on; `again` if it was watched before.
    pub(crate) fn watch(
        &self,
        connection: &Connection,
        interest: Interest,
        again: bool,
    ) -> sys::Result<()> {
        let (line, token) = (connection.line(), connection.token());
        let watch = |socket: &Socket, interest| {
            if again {
                self.poller.arm(socket, token, interest)
            } else {
                self.poller.add(socket, token, interest)
            }
        };
        match line.other() {
            None => watch(line.socket(), interest),
            Some(other) => {
                // Each end for what it is there for.
                watch(
                    other,
                    Interest {
                        write: false,
                        ..interest
                    },
                )?;
                watch(
                    line.socket(),
                    Interest {
                        read: false,
                        ..interest
                    },
                )
            }
        }
    }

    /// A connection is not watched for now: nothing that could be told of it would be news.
    pub(crate) fn set_aside(&self, connection: &Connection) {
        let line = connection.line();
        for socket in [Some(line.socket()), line.other()].into_iter().flatten() {
            let _ = self.poller.remove(socket);
        }
    }

    pub(crate) fn leave(&self, connection: &Connection) {
        self.set_aside(connection);
        let gone = {
            let mut members = self.members.write();
            let gone = members.remove(connection.token());
            self.note_crowd(&members);
            gone
        };
        drop(gone);
    }

    fn note_crowd(&self, members: &Members) {
        self.crowded
            .store(members.list.len() > FEW, Ordering::Relaxed);
    }
}
