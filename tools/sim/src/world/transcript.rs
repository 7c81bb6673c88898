//! All that is known of a finished session, for checkers: what was planned, posted and reported, and what memory holds.
//! It has everything visible from outside, and nothing of the inside of an actor.

use verbena_stream::{RnrRetry, Time};

use super::Event;
use crate::actor::Leftovers;
use crate::image::Image;
use crate::session::{Abilities, Session};
use crate::work::{Received, Report, Status};

/// A finished session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// The plan and the options.
    pub session: Session,
    /// What each side reported, in order.
    pub reports: [Vec<Report>; 2],
    /// Work requests each side posted.
    pub posted: [usize; 2],
    /// Receives each side supplied.
    pub supplied: [usize; 2],
    /// Each side's memory at the end.
    pub images: [Image; 2],
    /// Each side's unfinished work.
    pub leftovers: [Leftovers; 2],
    /// Where bits of each direction were flipped.
    pub flipped: [Vec<u64>; 2],
    /// Bytes sent in each direction.
    pub sent: [u64; 2],
    /// Those bytes, as they were sent.
    pub wire_bytes: [Vec<u8>; 2],
    /// Whether the connection was reset.
    pub reset: bool,
    /// Nothing happens any more, and the connection is still open.
    pub stalled: bool,
    /// When it ended.
    pub end: Time,
    /// Everything that happened, in order.
    pub events: Vec<Event>,
}

impl Transcript {
    /// What the two peers can do with each other.
    pub fn abilities(&self) -> Abilities {
        self.session.abilities()
    }

    /// Whether no fault was drawn, so that nothing may fail.
    pub fn is_healthy(&self) -> bool {
        let gave_up = |(_, status)| status == Status::RnrExceeded;
        let patient = |p: &crate::peer::Profile| p.rnr_retry == RnrRetry::Forever;
        // Only a peer with limited RNR retries may exceed them.
        let excused =
            (0..2).any(|k| !patient(&self.session.profiles[k]) && self.completions(k).any(gave_up));
        let flipped = self.flipped.iter().any(|f| !f.is_empty());
        !self.reset
            && !flipped
            && !self.session.plan.has_bad()
            && self.abilities().established
            && !excused
    }

    /// A side's completions, in order.
    pub fn completions(&self, side: usize) -> impl Iterator<Item = (u64, Status)> {
        self.reports[side].iter().filter_map(|r| match r {
            Report::Completed(id, status) => Some((*id, *status)),
            _ => None,
        })
    }

    /// A side's consumed receives, in order.
    pub fn received(&self, side: usize) -> impl Iterator<Item = &Received> {
        self.reports[side].iter().filter_map(|r| match r {
            Report::Received(received) => Some(received),
            _ => None,
        })
    }

    /// The number of works of a side, from the first on, that are known to be executed by the other.
    pub fn executed(&self, side: usize) -> usize {
        if self.is_healthy() {
            return self.posted[side];
        }
        let is_answered = |s: &Status| matches!(s, Status::Acked | Status::Fetched(_));
        let last = self
            .completions(side)
            .filter(|(_, s)| is_answered(s))
            .last();
        last.map_or(0, |(id, _)| id as usize + 1)
    }
}
