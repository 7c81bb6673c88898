//! What is said on a connection that is followed: MPA or iSCSI, each by its own observer.
//! It promises that a flow need not know which. It refuses to tell them apart itself; the flow does, by first bytes and ports.

use super::iscsi::Exchange;
use super::record::Dir;
use super::stream::{Out, Stream};
use super::summary::Summary;

/// A connection under observation.
#[derive(Debug)]
pub enum Talk {
    /// FPDUs behind startup frames.
    Mpa(Box<Stream>),
    /// PDUs behind a login.
    Iscsi(Box<Exchange>),
}

impl Talk {
    /// Takes the next bytes of a direction.
    pub fn feed(&mut self, dir: Dir, bytes: &[u8], out: &mut Out<'_>) {
        match self {
            Talk::Mpa(stream) => stream.feed(dir, bytes, out),
            Talk::Iscsi(exchange) => exchange.feed(dir, bytes, out),
        }
    }

    /// The sender of this direction is done.
    pub fn fin(&mut self, dir: Dir, out: &mut Out<'_>) {
        match self {
            Talk::Mpa(stream) => stream.fin(dir, out),
            Talk::Iscsi(exchange) => exchange.fin(dir, out),
        }
    }

    /// The sender of this direction reset the connection.
    pub fn reset(&mut self, dir: Dir) {
        match self {
            Talk::Mpa(stream) => stream.reset(dir),
            Talk::Iscsi(exchange) => exchange.reset(dir),
        }
    }

    /// The capture does not hold the next bytes of this direction.
    pub fn lose(&mut self, dir: Dir, bytes: u64, out: &mut Out<'_>) {
        match self {
            Talk::Mpa(stream) => stream.lose(dir, bytes, out),
            Talk::Iscsi(exchange) => exchange.lose(dir, bytes, out),
        }
    }

    /// The connection in retrospect.
    pub fn summary(self) -> Summary {
        match self {
            Talk::Mpa(stream) => stream.summary(),
            Talk::Iscsi(exchange) => exchange.summary(),
        }
    }
}
