//! The path MTU of a connection, and which ICMP messages about it are believed (RFC 1191, RFC 8201, RFC 5927).
//! A message must quote a sequence number in flight, and must not be lower than the least MTU of the protocol. If larger packets have
//! arrived before, it counts only when the quoted data has to be sent again.

use core::time::Duration;
use verbena_stream::Time;

use super::seq::Offset;

/// The least MTU of a path that is believed over IPv4: RFC 1191 allows 68, at which headers are most of the traffic.
pub const MIN_MTU_V4: usize = 552;
/// The least MTU of a path over IPv6 (RFC 8200, 5).
pub const MIN_MTU_V6: usize = 1280;
/// After this time a larger MTU is tried again (RFC 8201, 4).
const LIFE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub(crate) struct Path {
    link: usize,
    least: usize,
    mtu: usize,
    since: Time,
    /// The largest packet that was acknowledged.
    proven: usize,
    /// A message that is not believed yet: its MTU, and the end of the data that must not arrive.
    doubted: Option<(usize, Offset)>,
}

impl Path {
    pub(crate) fn new(link: usize, is_v6: bool) -> Path {
        let least = if is_v6 { MIN_MTU_V6 } else { MIN_MTU_V4 };
        Path {
            link,
            least: least.min(link),
            mtu: link,
            since: Time::ZERO,
            proven: 0,
            doubted: None,
        }
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.mtu
    }

    /// A router reports that a packet is too big which quotes a sequence number in flight; `next` is the end of the flight.
    pub(crate) fn too_big(&mut self, mtu: usize, next: Offset, now: Time) -> bool {
        if mtu >= self.mtu || mtu < self.least {
            return false;
        }
        if mtu < self.proven {
            self.doubted = Some((mtu, next));
            return false;
        }
        self.lower(mtu, now);
        true
    }

    /// A packet of `size` bytes was acknowledged, and the left edge is `una`.
    pub(crate) fn acknowledged(&mut self, size: usize, una: Offset) {
        self.proven = self.proven.max(size.min(self.mtu));
        if self.doubted.is_some_and(|(_, end)| una >= end) {
            self.doubted = None;
        }
    }

    /// Data was not acknowledged in time: a doubted message is believed.
    pub(crate) fn timed_out(&mut self, now: Time) -> bool {
        match self.doubted.take() {
            Some((mtu, _)) => {
                self.lower(mtu, now);
                true
            }
            None => false,
        }
    }

    fn lower(&mut self, mtu: usize, now: Time) {
        self.mtu = mtu;
        self.proven = self.proven.min(mtu);
        self.since = now;
        self.doubted = None;
    }

    /// Whether the MTU of the link is tried again.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        let is_over = self.mtu < self.link && now.since(self.since) >= LIFE;
        if is_over {
            self.mtu = self.link;
            self.proven = 0;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lie_is_forgotten_when_the_data_arrives() {
        let mut path = Path::new(1500, false);
        path.acknowledged(1500, 100);
        assert!(!path.too_big(600, 2000, Time::ZERO));
        path.acknowledged(1500, 2000);
        assert!(!path.timed_out(Time::ZERO));
        assert_eq!(path.mtu(), 1500);
    }

    #[test]
    fn doubted_message_is_believed_after_a_timeout() {
        let mut path = Path::new(1500, false);
        path.acknowledged(1500, 100);
        path.too_big(1400, 2000, Time::ZERO);
        assert!(path.timed_out(Time::ZERO));
        assert_eq!(path.mtu(), 1400);
        assert!(!path.expire(Time::ZERO + LIFE / 2));
        assert!(path.expire(Time::ZERO + LIFE));
        assert_eq!(path.mtu(), 1500);
    }

    #[test]
    fn values_below_the_least_are_ignored() {
        for (is_v6, least) in [(false, MIN_MTU_V4), (true, MIN_MTU_V6)] {
            let mut path = Path::new(1500, is_v6);
            assert!(!path.too_big(least - 1, 0, Time::ZERO));
            assert!(!path.too_big(1500, 0, Time::ZERO));
            assert!(path.too_big(least, 0, Time::ZERO));
        }
    }
}
