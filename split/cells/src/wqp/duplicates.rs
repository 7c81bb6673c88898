//! Duplicate detection for connectionless, acknowledged packets, per sender. None of the last 64 numbers of a remembered sender is
//! accepted twice. The number of remembered senders is limited, and the least recently noted one is dropped first.

use std::collections::VecDeque;

use verbena_split_wire::cell::PacketSeq;

use crate::config::MAX_WINDOW;
use crate::descriptor::Peer;

/// From this distance on, a lower number is a sender that started again and not a late packet.
const RESTART_DISTANCE: u32 = 4096;

const _: () = assert!(MAX_WINDOW <= 64);

/// The state of one sender.
#[derive(Debug, Clone, Copy)]
struct Sender {
    peer: Peer,
    /// The highest number.
    highest: PacketSeq,
    /// Bitmap of the 64 numbers up to the highest that were received; bit 0 is the highest.
    received: u64,
}

/// The remembered senders, the most recently noted one last.
#[derive(Debug, Default)]
pub(super) struct DuplicateFilter {
    senders: VecDeque<Sender>,
}

/// Whether a packet was received before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    /// It was not.
    New,
    /// It was.
    Old,
    /// Too old for the bitmap. With a window of 64 at most, its sender has had its answer.
    Late,
}

impl DuplicateFilter {
    /// Checks a number without remembering it.
    pub(super) fn check(&self, peer: Peer, packet: PacketSeq) -> Novelty {
        let Some(sender) = self.senders.iter().find(|sender| sender.peer == peer) else {
            return Novelty::New;
        };
        let behind = sender.highest.minus(packet);
        match behind {
            0..64 if sender.received & 1 << behind != 0 => Novelty::Old,
            0..64 => Novelty::New,
            64..RESTART_DISTANCE => Novelty::Late,
            _ => Novelty::New,
        }
    }

    /// Remembers a number that was new.
    pub(super) fn record(&mut self, peer: Peer, packet: PacketSeq, limit: usize) {
        let at = self.senders.iter().position(|sender| sender.peer == peer);
        let known = at.and_then(|at| self.senders.remove(at));
        let fresh = Sender {
            peer,
            highest: packet,
            received: 1,
        };
        let sender = match known {
            None => fresh,
            Some(known) => {
                let (behind, ahead) = (known.highest.minus(packet), packet.minus(known.highest));
                if behind < 64 {
                    let came = known.received | 1 << behind;
                    Sender {
                        received: came,
                        ..known
                    }
                } else if ahead < 64 {
                    let came = known.received << ahead | 1;
                    Sender {
                        received: came,
                        ..fresh
                    }
                } else {
                    fresh
                }
            }
        };
        if self.senders.len() >= limit {
            self.senders.pop_front();
        }
        self.senders.push_back(sender);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_split_wire::cell::PortAddress;
    use verbena_wire::number::Qpn;

    fn peer(n: u8) -> Peer {
        Peer {
            port: PortAddress([n; 6]),
            wqp: Qpn::wrapping(1),
        }
    }

    #[test]
    fn each_packet_number_is_new_once() {
        let mut seen = DuplicateFilter::default();
        let first = u32::MAX - 2;
        for n in [0, 2, 1, 5, 4, 63, 3] {
            let packet = PacketSeq::new(first.wrapping_add(n));
            assert_eq!(seen.check(peer(1), packet), Novelty::New, "{n}");
            seen.record(peer(1), packet, 2);
            assert_eq!(seen.check(peer(1), packet), Novelty::Old, "{n}");
            assert_eq!(seen.check(peer(2), packet), Novelty::New);
        }
        seen.record(peer(1), PacketSeq::new(first).plus(64), 2);
        assert_eq!(seen.check(peer(1), PacketSeq::new(first)), Novelty::Late);
        assert_eq!(
            seen.check(peer(1), PacketSeq::new(first).plus(3)),
            Novelty::Old
        );
        assert_eq!(
            seen.check(peer(1), PacketSeq::new(first).plus(6)),
            Novelty::New
        );
    }

    #[test]
    fn restarted_packet_numbers_are_new() {
        let mut seen = DuplicateFilter::default();
        seen.record(peer(1), PacketSeq::new(1_000_000), 2);
        let again = PacketSeq::new(7);
        assert_eq!(seen.check(peer(1), again), Novelty::New);
        seen.record(peer(1), again, 2);
        assert_eq!(seen.check(peer(1), again), Novelty::Old);
    }

    #[test]
    fn remembered_senders_are_limited() {
        let mut seen = DuplicateFilter::default();
        for n in 0..100 {
            seen.record(peer(n), PacketSeq::new(1), 4);
            assert!(seen.senders.len() <= 4);
        }
        assert_eq!(seen.check(peer(99), PacketSeq::new(1)), Novelty::Old);
        assert_eq!(seen.check(peer(1), PacketSeq::new(1)), Novelty::New);
    }
}
