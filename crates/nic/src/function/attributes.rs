//! The attributes of a function: how many objects it may have and how large they may be.
//! Each value is the one that the verb compares with. What a connection negotiates, such as read depths, is not here.

use super::shares::Shares;
use crate::cq;
use crate::error::Error;
use crate::qp::Limits;

/// The attributes of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// How many objects it may have.
    pub shares: Shares,
    /// Send requests, and receives, of one queue pair.
    pub requests: usize,
    /// Scatter or gather elements of one request, reads included: the sink of a read need not be a single STag (V3).
    pub max_sge: usize,
    /// Bytes of inline data.
    pub inline: usize,
    /// Entries of one completion queue.
    pub entries: usize,
    /// Receives of one shared receive queue.
    pub shared_receives: usize,
    /// Requests of one shared send queue.
    pub shared_sends: usize,
    /// Bytes of one message; eight are reserved for immediate data sent with it.
    pub message: u32,
}

impl Attributes {
    /// The attributes of a function with these shares.
    pub fn new(shares: Shares) -> Attributes {
        Attributes {
            shares,
            requests: 1 << 15,
            max_sge: 64,
            inline: 4096,
            entries: cq::MAX_ENTRIES,
            shared_receives: 1 << 18,
            shared_sends: 1 << 18,
            message: u32::MAX - 8,
        }
    }

    pub(super) fn check_qp(&self, limits: &Limits) -> Result<(), Error> {
        check_limit("send requests", limits.sends, self.requests)?;
        check_limit("receives", limits.receives, self.requests)?;
        check_limit("pieces of a request", limits.max_sge, self.max_sge)?;
        check_limit("bytes of inline data", limits.inline, self.inline)
    }

    pub(super) fn check_srq(&self, receives: usize, pieces: usize) -> Result<(), Error> {
        check_limit("shared receives", receives, self.shared_receives)?;
        check_limit("pieces of a receive", pieces, self.max_sge)
    }

    pub(super) fn check_ssq(&self, requests: usize) -> Result<(), Error> {
        check_limit("shared sends", requests, self.shared_sends)
    }
}

pub(super) fn check_limit(what: &'static str, asked: usize, limit: usize) -> Result<(), Error> {
    if asked <= limit {
        return Ok(());
    }
    Err(Error::TooLarge {
        what,
        requested: asked,
        limit,
    })
}
