//! A ring of the same-host path: a script of calls of both sides, and of words that a hostile peer writes between them, anywhere in the
//! shared memory. As long as the peer writes nothing, the stream arrives as it was sent; afterwards every call returns bytes within its
//! bounds or an error, and a violation is final.

use std::collections::VecDeque;

use verbena_mem::{Sources, Targets};
use verbena_ring::layout::{ASLEEP, CLOSED, DATA, HEAD, WAITS};
use verbena_ring::on_heap;
use verbena_ring::record::Header;
use verbena_ring::{Consumer, Layout, Producer, Read, RingError, SharedWords};

use crate::source::Source;

/// Runs one input.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let capacity = 64 << (source.byte() % 4);
    let Some(layout) = Layout::new(capacity) else {
        panic!("{capacity} is a valid capacity");
    };
    let (producer, consumer, words) = on_heap(layout);
    let mut run = Run {
        producer,
        consumer,
        words,
        layout,
        honest: true,
        next: 0,
        sent: VecDeque::new(),
        closed: (false, false),
        tx_error: None,
        rx_error: None,
    };
    while !source.is_empty() {
        run.step(&mut source);
    }
    run.drain();
}

/// What an honest ring delivers.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    Byte(u8),
    External(u64, u64),
}

struct Run {
    producer: Producer,
    consumer: Consumer,
    words: SharedWords,
    layout: Layout,
    /// The peer has written nothing.
    honest: bool,
    /// The next byte of the stream.
    next: u8,
    /// Sent and not yet read.
    sent: VecDeque<Item>,
    /// The producer, and the consumer.
    closed: (bool, bool),
    tx_error: Option<RingError>,
    rx_error: Option<RingError>,
}

impl Run {
    fn step(&mut self, source: &mut Source<'_>) {
        match source.byte() % 10 {
            0 | 1 => self.write(usize::from(source.byte()), usize::from(source.byte())),
            2 => self.write_external(source.u64(), source.u64() >> (source.byte() % 64)),
            3 | 4 => {
                self.read(usize::from(source.byte()), usize::from(source.byte()));
            }
            5 => self.sleep(),
            6 => self.poke_header(source),
            7 => self.poke_record(source),
            8 => {
                self.honest = false;
                let len = self.layout.memory_len();
                self.words
                    .store(usize::from(source.u16()) % len, source.u64());
            }
            _ => self.close(source.byte()),
        }
    }

    /// Two sources, of so many bytes.
    fn write(&mut self, first: usize, second: usize) {
        let bytes: Vec<u8> = (0..first + second)
            .map(|n| self.next.wrapping_add(n as u8))
            .collect();
        let (one, two) = bytes.split_at(first);
        let mut sources = Sources::new();
        assert!(sources.borrow_bytes(one) && sources.borrow_bytes(two));
        match self.producer.write(&sources) {
            Ok(n) => {
                assert!(n <= bytes.len() && n < self.layout.capacity());
                assert!(self.tx_error.is_none());
                self.sent.extend(bytes[..n].iter().copied().map(Item::Byte));
                self.next = self.next.wrapping_add(n as u8);
            }
            Err(error) => self.tx_failed(error),
        }
    }

    fn write_external(&mut self, address: u64, len: u64) {
        match self.producer.write_external(address, len) {
            Ok(true) => {
                assert!(self.tx_error.is_none());
                self.sent.push_back(Item::External(address, len));
            }
            Ok(false) => {}
            Err(RingError::InvalidRange { .. }) => {
                assert!(len == 0 || len >> 63 != 0 || address.checked_add(len).is_none());
            }
            Err(error) => self.tx_failed(error),
        }
    }

    fn tx_failed(&mut self, error: RingError) {
        match error {
            RingError::Violation(_) => {
                assert!(!self.honest, "{error}");
                assert_eq!(*self.tx_error.get_or_insert(error), error);
            }
            RingError::Closed => assert!(!self.honest || self.closed != (false, false)),
            RingError::Unmapped | RingError::InvalidRange { .. } => panic!("{error}"),
        }
        let _ = error.to_string();
    }

    /// Reads into two targets of so many bytes; returns whether there was anything.
    fn read(&mut self, first: usize, second: usize) -> bool {
        let mut bytes = vec![0; first + second];
        let (one, two) = bytes.split_at_mut(first);
        let mut targets = Targets::new();
        assert!(targets.stage(one) && targets.stage(two));
        let found = self.consumer.read(&mut targets);
        drop(targets);
        match found {
            Ok(Read::Bytes(n)) => {
                assert!(n >= 1 && n <= bytes.len());
                assert!(self.rx_error.is_none());
                for byte in &bytes[..n] {
                    self.expect(&Item::Byte(*byte));
                }
                assert!(bytes[n..].iter().all(|byte| *byte == 0));
            }
            Ok(Read::External { address, len }) => {
                assert!(len >= 1 && address.checked_add(len).is_some());
                // In two steps.
                self.consumer.advance_external(len / 2);
                if len / 2 > 0 {
                    let mut byte = [0];
                    let mut targets = Targets::new();
                    assert!(targets.stage(&mut byte));
                    let rest = Read::External {
                        address: address + len / 2,
                        len: len - len / 2,
                    };
                    assert_eq!(self.consumer.read(&mut targets), Ok(rest));
                }
                self.consumer.advance_external(len - len / 2);
                self.expect(&Item::External(address, len));
            }
            Ok(Read::Empty) => assert!(!self.honest || bytes.is_empty() || self.sent.is_empty()),
            Ok(Read::End) => assert!(!self.honest || self.closed.0 && self.sent.is_empty()),
            Err(error @ RingError::Violation(_)) => {
                assert!(!self.honest, "{error}");
                assert_eq!(*self.rx_error.get_or_insert(error), error);
            }
            Err(error) => panic!("{error}"),
        }
        matches!(found, Ok(Read::Bytes(_) | Read::External { .. }))
    }

    fn expect(&mut self, item: &Item) {
        let sent = self.sent.pop_front();
        assert!(!self.honest || sent.as_ref() == Some(item));
    }

    fn sleep(&mut self) {
        let empty = self.consumer.is_empty();
        assert_eq!(self.consumer.prepare_sleep(), empty);
        assert!(!self.honest || !empty || self.sent.is_empty());
        self.consumer.cancel_sleep();
        if self.producer.prepare_wait() {
            self.producer.cancel_wait();
        }
        let _ = self.producer.needs_wakeup();
        assert!(!self.producer.needs_wakeup());
        let _ = self.consumer.needs_wakeup_for_room();
        assert!(!self.consumer.needs_wakeup_for_room());
    }

    fn poke_header(&mut self, source: &mut Source<'_>) {
        self.honest = false;
        let word = [HEAD, ASLEEP, CLOSED, WAITS][usize::from(source.byte() % 4)];
        let value = match source.byte() % 4 {
            0 => u64::from(source.byte()) * 8,
            1 => self.words.load(word).wrapping_add(u64::from(source.byte())),
            2 => self.words.load(word).wrapping_sub(u64::from(source.byte())),
            _ => source.u64(),
        };
        self.words.store(word, value);
    }

    /// A header word that is nearly right, at any word among the records.
    fn poke_record(&mut self, source: &mut Source<'_>) {
        self.honest = false;
        let at = DATA + usize::from(source.byte()) * 8 % self.layout.capacity();
        let value = match source.byte() % 5 {
            0 => Header::Inline(source.u32()).emit(),
            1 => Header::Inline(u32::from(source.byte())).emit(),
            2 => Header::External.emit(),
            3 => Header::End.emit(),
            _ => 0,
        };
        self.words.store(at, value);
    }

    fn close(&mut self, which: u8) {
        if which.is_multiple_of(2) {
            self.producer.close();
            self.closed.0 = true;
        } else {
            self.consumer.close();
            self.closed.1 = true;
            assert!(self.producer.is_peer_closed());
        }
    }

    /// Reads the rest. A hostile ring may have something for ever.
    fn drain(&mut self) {
        let reads = 2 * self.layout.capacity();
        for _ in 0..reads {
            if !self.read(7, 300) {
                break;
            }
        }
        assert!(!self.honest || self.sent.is_empty());
    }
}
