//! A followed connection: MPA or iSCSI, each with its own parser. Which one it is was decided by the flow, by first bytes and ports.

use super::iscsi::Exchange;
use super::record::{Dir, Out};
use super::stream::Stream;
use super::summary::Summary;

/// A followed connection.
#[derive(Debug)]
pub enum Conversation {
    /// FPDUs after startup frames.
    Mpa(Box<Stream>),
    /// PDUs after a login.
    Iscsi(Box<Exchange>),
}

impl Conversation {
    /// Takes the next bytes of a direction.
    pub fn feed(&mut self, dir: Dir, bytes: &[u8], out: &mut Out<'_>) {
        match self {
            Conversation::Mpa(stream) => stream.feed(dir, bytes, out),
            Conversation::Iscsi(exchange) => exchange.feed(dir, bytes, out),
        }
    }

    /// The sender of this direction has closed it.
    pub fn fin(&mut self, dir: Dir, out: &mut Out<'_>) {
        match self {
            Conversation::Mpa(stream) => stream.fin(dir, out),
            Conversation::Iscsi(exchange) => exchange.fin(dir, out),
        }
    }

    /// The sender of this direction reset the connection.
    pub fn reset(&mut self, dir: Dir) {
        match self {
            Conversation::Mpa(stream) => stream.reset(dir),
            Conversation::Iscsi(exchange) => exchange.reset(dir),
        }
    }

    /// The next bytes of this direction are not in the capture.
    pub fn handle_loss(&mut self, dir: Dir, bytes: u64, out: &mut Out<'_>) {
        match self {
            Conversation::Mpa(stream) => stream.handle_loss(dir, bytes, out),
            Conversation::Iscsi(exchange) => exchange.handle_loss(dir, bytes, out),
        }
    }

    /// The summary of the connection.
    pub fn summary(self) -> Summary {
        match self {
            Conversation::Mpa(stream) => stream.summary(),
            Conversation::Iscsi(exchange) => exchange.summary(),
        }
    }
}
