//! Channel events of a link (E7): packets that returned descriptors of its pool, a pool of which little is left, and invalid posts of the peer.
//! They are computed from the session's counters when outputs are performed, and only while the carrier's adapter has an observer.

use verbena_push::{Counters, ViolationKind};

use crate::carrier::{Carrier, ChannelEvent};

/// The pool is low when less than one of so many elements is lent.
const LOW_PART: u64 = 4;

/// Violations of a peer that posts or returns elements which it may not.
const ILLEGAL_POSTS: [ViolationKind; 6] = [
    ViolationKind::BadPool,
    ViolationKind::TooMuch,
    ViolationKind::UnknownPool,
    ViolationKind::Range,
    ViolationKind::NotUsed,
    ViolationKind::NotLent,
];

/// The pool of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolLevel {
    /// The channel on which packets arrive in it.
    pub(super) channel: u8,
    /// Elements that the peer may use.
    pub(super) lent: u64,
    /// All elements.
    pub(super) elements: u32,
}

/// Reports channel events; between observations it has no counts.
#[derive(Debug, Default)]
pub(super) struct ChannelReporter {
    reported: Option<ReportedCounts>,
}

/// What was reported last.
#[derive(Debug, Clone, Copy)]
struct ReportedCounts {
    packets: u64,
    illegal_posts: u64,
    is_low: bool,
}

impl ChannelReporter {
    /// There is no observer.
    pub(super) fn reset(&mut self) {
        self.reported = None;
    }

    /// Reports what has happened since the last call. The first call of an observation only records the counters.
    pub(super) fn report(
        &mut self,
        carrier: &mut dyn Carrier,
        counters: &Counters,
        pool: PoolLevel,
    ) {
        let illegal_posts = ILLEGAL_POSTS.map(|kind| counters.violations.of(kind));
        let now = ReportedCounts {
            packets: counters.packets_in,
            illegal_posts: illegal_posts.iter().sum(),
            is_low: pool.lent < u64::from(pool.elements) / LOW_PART,
        };
        let Some(before) = self.reported.replace(now) else {
            return;
        };
        let mut report = |channel, what, count: u64| {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            carrier.report_channel(channel, what, count);
        };
        let packets = now.packets - before.packets;
        if packets > 0 {
            report(pool.channel, ChannelEvent::Returned, packets);
        }
        if now.is_low && !before.is_low {
            report(pool.channel, ChannelEvent::BuffersLow, pool.lent);
        }
        let illegal_posts = now.illegal_posts - before.illegal_posts;
        if illegal_posts > 0 {
            // Messages about pools arrive on the control channel.
            report(0, ChannelEvent::IllegalPost, illegal_posts);
        }
    }
}
