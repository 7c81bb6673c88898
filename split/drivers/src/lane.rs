//! The number of a driver's queue. A queue is a queue of the interface with a thread, a carrier and a link of its own: queue i of a
//! host is connected to queue i of its unit, and no frame passes from one to another. Every value names a queue that can exist.

use core::fmt;

/// The most queues of a driver: queue and count have four bits each in [`Lane::to_byte`].
pub const MOST_QUEUES: u8 = 16;

/// One of a driver's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane {
    queue: u8,
    of: u8,
}

/// There is no such queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no queue {} of {of}: there can be 1 to {MOST_QUEUES} queues, numbered from 1",
    u16::from(*queue) + 1
)]
pub struct InvalidQueue {
    /// Its number, from 0.
    pub queue: u8,
    /// The number of queues.
    pub of: u8,
}

impl Lane {
    /// A driver's only queue.
    pub const ONLY: Lane = Lane { queue: 0, of: 1 };

    /// Queue `queue`, from 0, of `of`.
    pub const fn new(queue: u8, of: u8) -> Result<Lane, InvalidQueue> {
        if queue < of && of <= MOST_QUEUES {
            Ok(Lane { queue, of })
        } else {
            Err(InvalidQueue { queue, of })
        }
    }

    /// All of `of` queues; none if that is too many.
    pub fn all(of: u8) -> impl Iterator<Item = Lane> {
        (0..of).filter_map(move |queue| Lane::new(queue, of).ok())
    }

    /// Its number, from 0.
    pub const fn queue(self) -> u8 {
        self.queue
    }

    /// The number of queues.
    pub const fn queue_count(self) -> u8 {
        self.of
    }

    /// Its number from 1, for messages.
    pub const fn ordinal(self) -> u8 {
        self.queue + 1
    }

    /// The first one does what is done once for the whole interface.
    pub const fn is_first(self) -> bool {
        self.queue == 0
    }

    /// As in a hello: the queue in the low half, the number of queues less one in the high half. The only queue of a driver is zero.
    pub const fn to_byte(self) -> u8 {
        (self.of - 1) << 4 | self.queue
    }

    /// Parses it.
    pub const fn from_byte(byte: u8) -> Result<Lane, InvalidQueue> {
        Lane::new(byte & 0xf, (byte >> 4) + 1)
    }

    /// The name of the queue's status socket, counted from 0: the first has the interface's name alone; a colon cannot be in such a name.
    pub(crate) fn socket_name(self, kind: &str, interface: &str) -> String {
        match self.queue {
            0 => format!("{kind}-{interface}"),
            queue => format!("{kind}-{interface}:{queue}"),
        }
    }
}

/// For messages, counted from 1.
impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of {}", self.ordinal(), self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_parses_or_is_refused() {
        let mut known = 0;
        for byte in 0..=u8::MAX {
            let (queue, of) = (byte & 0xf, (byte >> 4) + 1);
            match Lane::from_byte(byte) {
                Ok(lane) => {
                    assert_eq!((lane.queue(), lane.queue_count()), (queue, of));
                    assert_eq!(lane.to_byte(), byte);
                    known += 1;
                }
                Err(no) => assert!(queue >= of, "{no}"),
            }
        }
        // 1 + 2 + … + 16.
        assert_eq!(known, 136);
        assert_eq!(Lane::ONLY.to_byte(), 0);
    }

    #[test]
    fn impossible_queue_numbers_are_refused() {
        for (queue, of) in [(0, 0), (1, 1), (16, 16), (0, 17), (255, 255)] {
            let no = Lane::new(queue, of).unwrap_err();
            assert_eq!(no, InvalidQueue { queue, of });
        }
        let beyond = Lane::new(1, 1).unwrap_err().to_string();
        assert!(beyond.starts_with("there is no queue 2 of 1"), "{beyond}");
        assert_eq!(Lane::all(17).count(), 0);
        let two: Vec<String> = Lane::all(2).map(|lane| lane.to_string()).collect();
        assert_eq!(two, ["queue 1 of 2", "queue 2 of 2"]);
        let names: Vec<String> = Lane::all(2)
            .map(|l| l.socket_name("host", "net0"))
            .collect();
        assert_eq!(names, ["host-net0", "host-net0:1"]);
    }
}
