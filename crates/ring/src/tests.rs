//! Tests of both sides of a ring: every split of the stream, every position of the wrap, a peer that writes wrong words, threads, and models of
//! every interleaving (`--cfg loom`).

use verbena_mem::{Sources, Targets};

use crate::on_heap;
use crate::{Consumer, Layout, Producer, Read, RingError};

/// Writes bytes from one span.
fn write(producer: &mut Producer, bytes: &[u8]) -> Result<usize, RingError> {
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(bytes));
    producer.write(&sources)
}

/// Reads at most so many bytes; those read, or what else was found.
fn read(consumer: &mut Consumer, most: usize) -> Result<Vec<u8>, Read> {
    let mut stage = vec![0; most];
    let mut targets = Targets::new();
    assert!(targets.stage(&mut stage));
    let found = consumer.read(&mut targets);
    drop(targets);
    match found {
        Ok(Read::Bytes(n)) => {
            stage.truncate(n);
            Ok(stage)
        }
        Ok(other) => Err(other),
        Err(error) => panic!("{error}"),
    }
}

#[cfg(not(loom))]
mod plain {
    use super::*;
    use crate::SharedWords;
    use crate::layout::DATA;
    use crate::record::{Header, MAX_INLINE};

    fn ring(capacity: usize) -> (Producer, Consumer, SharedWords) {
        on_heap(Layout::new(capacity).unwrap())
    }

    /// Writes of `n` bytes and reads of `m`, for all small `n` and `m`, over several rounds of the smallest ring.
    #[test]
    fn every_split_of_the_stream_keeps_its_bytes() {
        let stream: Vec<u8> = (0..1000_u32).map(|n| (n * 7 + 3) as u8).collect();
        for per_write in 1..=60 {
            for per_read in 1..=60 {
                let (mut producer, mut consumer, _) = ring(64);
                let (mut written, mut got) = (0, Vec::new());
                while got.len() < stream.len() {
                    let end = stream.len().min(written + per_write);
                    written += write(&mut producer, &stream[written..end]).unwrap();
                    if let Ok(bytes) = read(&mut consumer, per_read) {
                        got.extend(bytes);
                    }
                    assert!(written >= got.len());
                }
                assert!(got == stream, "writes of {per_write}, reads of {per_read}");
                assert_eq!(read(&mut consumer, 1), Err(Read::Empty));
                assert!(consumer.is_empty());
            }
        }
    }

    /// A ring that is filled before it is emptied: every length of the last record that fits.
    #[test]
    fn a_full_ring_is_read_in_order() {
        for first in 1..=48 {
            let (mut producer, mut consumer, _) = ring(64);
            for round in 0..20_u8 {
                let bytes = [round; 64];
                let mut count = write(&mut producer, &bytes[..first]).unwrap();
                assert_eq!(count, first);
                loop {
                    match write(&mut producer, &bytes).unwrap() {
                        0 => break,
                        n => count += n,
                    }
                }
                let got = read(&mut consumer, 100).unwrap();
                assert_eq!(got, vec![round; count]);
                assert_eq!(read(&mut consumer, 1), Err(Read::Empty));
            }
        }
    }

    #[test]
    fn one_write_is_one_record() {
        let (mut producer, mut consumer, words) = ring(256);
        let mut sources = Sources::new();
        assert!(sources.borrow_bytes(b"the header"));
        assert!(sources.borrow_bytes(b" and the payload"));
        assert_eq!(producer.write(&sources), Ok(26));
        assert_eq!(words.load(DATA), Header::Inline(26).emit());
        assert_eq!(words.load(DATA + 8 + 32), 0);
        assert_eq!(read(&mut consumer, 10).unwrap(), b"the header");
        assert_eq!(read(&mut consumer, 100).unwrap(), b" and the payload");
    }

    #[test]
    fn one_read_takes_several_records() {
        let (mut producer, mut consumer, _) = ring(256);
        for word in ["one ", "two ", "three"] {
            assert_eq!(write(&mut producer, word.as_bytes()), Ok(word.len()));
        }
        let (mut first, mut second) = ([0; 6], [0; 6]);
        let mut targets = Targets::new();
        assert!(targets.stage(&mut first) && targets.stage(&mut second));
        assert_eq!(consumer.read(&mut targets), Ok(Read::Bytes(12)));
        drop(targets);
        assert_eq!((&first, &second), (b"one tw", b"o thre"));
        assert_eq!(read(&mut consumer, 9).unwrap(), b"e");
    }

    #[test]
    fn a_long_write_becomes_several_records() {
        let (mut producer, mut consumer, words) = ring(1 << 16);
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
        assert_eq!(write(&mut producer, &bytes), Ok(20_000));
        let second = DATA + 8 + MAX_INLINE;
        assert_eq!(words.load(DATA), Header::Inline(8192).emit());
        assert_eq!(words.load(second), Header::Inline(8192).emit());
        assert_eq!(
            words.load(second + 8 + MAX_INLINE),
            Header::Inline(3616).emit()
        );
        assert!(read(&mut consumer, 30_000).unwrap() == bytes);
    }

    #[test]
    fn external_records_keep_their_place() {
        let (mut producer, mut consumer, _) = ring(128);
        for _ in 0..10 {
            assert_eq!(write(&mut producer, b"before"), Ok(6));
            assert_eq!(producer.write_external(0x1000, 100), Ok(true));
            assert_eq!(write(&mut producer, b"behind"), Ok(6));
            assert_eq!(read(&mut consumer, 50).unwrap(), b"before");
            let external = |address, len| Err(Read::External { address, len });
            assert_eq!(read(&mut consumer, 50), external(0x1000, 100));
            assert!(!consumer.is_empty() && !consumer.prepare_sleep());
            consumer.advance_external(60);
            assert_eq!(read(&mut consumer, 50), external(0x103c, 40));
            consumer.advance_external(40);
            assert_eq!(read(&mut consumer, 50).unwrap(), b"behind");
            assert_eq!(read(&mut consumer, 50), Err(Read::Empty));
        }
    }

    #[test]
    fn an_external_record_needs_room() {
        let (mut producer, mut consumer, _) = ring(64);
        assert_eq!(producer.write_external(1, 1), Ok(true));
        assert_eq!(producer.write_external(2, 2), Ok(true));
        assert_eq!(producer.write_external(3, 3), Ok(false));
        let external = |address, len| Err(Read::External { address, len });
        assert_eq!(read(&mut consumer, 1), external(1, 1));
        consumer.advance_external(1);
        assert_eq!(producer.write_external(3, 3), Ok(true));
        for number in [2, 3] {
            assert_eq!(read(&mut consumer, 1), external(number, number));
            consumer.advance_external(number);
        }
    }

    #[test]
    fn no_range_of_addresses_is_an_error() {
        let (mut producer, consumer, _) = ring(64);
        for (address, len) in [(8, 0), (u64::MAX, 1), (1, u64::MAX)] {
            let error = RingError::InvalidRange { address, len };
            assert_eq!(producer.write_external(address, len), Err(error));
        }
        assert!(consumer.is_empty());
    }

    /// If the consumer's process ends, the producer knows what it has read.
    #[test]
    fn position_is_published_after_every_read() {
        let (mut producer, mut consumer, words) = ring(1024);
        for part in 1..=8 {
            assert_eq!(write(&mut producer, &[0; 56]), Ok(56));
            assert_eq!(producer.unread(), 64);
            assert_eq!(read(&mut consumer, 56).unwrap().len(), 56);
            assert_eq!(words.load(crate::layout::HEAD), part * 64);
            assert_eq!(producer.unread(), 0);
        }
    }

    #[test]
    fn waiting_producer_is_woken_for_a_quarter() {
        let (mut producer, mut consumer, _) = ring(1024);
        while write(&mut producer, &[0; 56]) == Ok(56) {}
        assert!(producer.prepare_wait());
        for part in 1..=8 {
            assert_eq!(read(&mut consumer, 56).unwrap().len(), 56);
            assert_eq!(consumer.needs_wakeup_for_room(), part == 4);
        }
    }

    #[test]
    fn the_end_fits_into_a_full_ring() {
        for len in 1..=48 {
            let (mut producer, mut consumer, _) = ring(64);
            let mut count = write(&mut producer, &[1; 48][..len]).unwrap();
            while let Ok(n @ 1..) = write(&mut producer, &[1; 48]) {
                count += n;
            }
            producer.close();
            producer.close();
            assert_eq!(write(&mut producer, b"more"), Err(RingError::Closed));
            assert_eq!(producer.write_external(1, 1), Err(RingError::Closed));
            assert!(!producer.prepare_wait());
            assert_eq!(read(&mut consumer, 100).unwrap().len(), count);
            assert!(!consumer.is_empty() && !consumer.prepare_sleep());
            assert_eq!(read(&mut consumer, 100), Err(Read::End));
            assert_eq!(read(&mut consumer, 100), Err(Read::End));
        }
    }

    #[test]
    fn a_closed_consumer_is_an_error_once_full() {
        let (mut producer, mut consumer, _) = ring(64);
        assert_eq!(write(&mut producer, &[1; 48]), Ok(48));
        assert!(producer.prepare_wait() && !producer.is_peer_closed());
        consumer.close();
        assert!(consumer.needs_wakeup_for_room());
        assert!(!consumer.needs_wakeup_for_room());
        assert!(producer.is_peer_closed() && !producer.prepare_wait());
        assert_eq!(write(&mut producer, &[1; 8]), Err(RingError::Closed));
        assert_eq!(producer.has_room(), Err(RingError::Closed));
    }

    #[test]
    fn a_sleeping_consumer_is_woken_once() {
        let (mut producer, mut consumer, _) = ring(256);
        assert_eq!(write(&mut producer, b"a"), Ok(1));
        assert!(!producer.needs_wakeup());
        assert!(!consumer.prepare_sleep());
        assert!(!producer.needs_wakeup());
        assert_eq!(read(&mut consumer, 5).unwrap(), b"a");
        assert!(consumer.prepare_sleep());
        assert_eq!(write(&mut producer, b"b"), Ok(1));
        assert!(producer.needs_wakeup());
        assert_eq!(write(&mut producer, b"c"), Ok(1));
        assert!(!producer.needs_wakeup());
        assert!(consumer.cancel_sleep());
        assert_eq!(read(&mut consumer, 5).unwrap(), b"bc");
        assert!(consumer.prepare_sleep() && !consumer.cancel_sleep());
        producer.close();
        assert!(!producer.needs_wakeup());
    }

    #[test]
    fn partly_read_record_keeps_the_consumer_awake() {
        let (mut producer, mut consumer, _) = ring(256);
        assert_eq!(write(&mut producer, b"abc"), Ok(3));
        assert_eq!(read(&mut consumer, 2).unwrap(), b"ab");
        assert!(!consumer.is_empty() && !consumer.prepare_sleep());
        assert_eq!(read(&mut consumer, 2).unwrap(), b"c");
        assert!(consumer.is_empty());
    }

    #[test]
    fn a_waiting_producer_is_woken_once() {
        let (mut producer, mut consumer, _) = ring(256);
        assert!(!producer.prepare_wait() && producer.has_room().unwrap());
        while write(&mut producer, &[7; 24]).unwrap() > 0 {}
        assert!(producer.prepare_wait());
        assert_eq!(read(&mut consumer, 24).unwrap().len(), 24);
        assert!(!consumer.needs_wakeup_for_room(), "less than a quarter");
        assert_eq!(read(&mut consumer, 24).unwrap().len(), 24);
        assert!(consumer.needs_wakeup_for_room());
        assert!(!consumer.needs_wakeup_for_room());
        assert!(producer.cancel_wait() && producer.has_room().unwrap());
    }

    /// Both sides on threads of their own, with every announcement and wake-up.
    #[test]
    fn two_threads_lose_nothing() {
        use std::sync::mpsc::channel;
        const TOTAL: usize = 400_000;
        let (mut producer, mut consumer, _) = ring(512);
        let (wake_consumer, consumer_woken) = channel();
        let (wake_producer, producer_woken) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut sent = 0;
                while sent < TOTAL {
                    let bytes: Vec<u8> = (sent..TOTAL)
                        .take(sent % 150 + 1)
                        .map(|n| n as u8)
                        .collect();
                    let n = write(&mut producer, &bytes).unwrap();
                    sent += n;
                    if n > 0 && producer.needs_wakeup() {
                        wake_consumer.send(()).unwrap();
                    }
                    if n < bytes.len() && producer.prepare_wait() {
                        producer_woken.recv().unwrap();
                    }
                }
                producer.close();
                if producer.needs_wakeup() {
                    wake_consumer.send(()).unwrap();
                }
            });
            let mut got = 0;
            loop {
                match read(&mut consumer, got % 97 + 1) {
                    Ok(bytes) => {
                        let expected = (got..).map(|n| n as u8);
                        assert!(bytes.iter().copied().eq(expected.take(bytes.len())));
                        got += bytes.len();
                        if consumer.needs_wakeup_for_room() {
                            // The producer's thread may have ended.
                            let _ = wake_producer.send(());
                        }
                    }
                    Err(Read::End) => break,
                    Err(_) if consumer.prepare_sleep() => consumer_woken.recv().unwrap(),
                    Err(_) => {}
                }
            }
            assert_eq!(got, TOTAL);
        });
    }
}

/// A peer that writes what no honest one does, word for word.
#[cfg(not(loom))]
mod hostile {
    use super::*;
    use crate::layout::{ASLEEP, CLOSED, DATA, HEAD, WAITS};
    use crate::record::Header;
    use crate::{SharedWords, Violation};

    fn ring() -> (Producer, Consumer, SharedWords) {
        on_heap(Layout::new(64).unwrap())
    }

    /// A full ring whose consumer's position is `head`; the violation must be final.
    fn head_is(head: u64) -> Option<Violation> {
        let (mut producer, _, words) = ring();
        assert_eq!(write(&mut producer, &[1; 40]), Ok(40));
        words.store(HEAD, head);
        match write(&mut producer, &[2; 40]) {
            Err(RingError::Violation(found)) => {
                // The peer mends its word: it is too late.
                words.store(HEAD, 48);
                let before: Vec<u64> = (0..8).map(|slot| words.load(DATA + 8 * slot)).collect();
                let error = RingError::Violation(found);
                assert_eq!(write(&mut producer, &[2; 1]), Err(error));
                assert_eq!(producer.write_external(1, 1), Err(error));
                assert_eq!(producer.has_room(), Err(error));
                assert!(!producer.prepare_wait());
                producer.close();
                let behind: Vec<u64> = (0..8).map(|slot| words.load(DATA + 8 * slot)).collect();
                assert_eq!(before, behind);
                Some(found)
            }
            Ok(_) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn head_beyond_the_tail_is_a_violation() {
        for head in [56, 64, 1 << 32, u64::MAX] {
            let (from, to) = (0, 48);
            let expected = Violation::HeadOutOfRange { head, from, to };
            assert_eq!(head_is(head), Some(expected));
        }
        assert_eq!(head_is(48), None);
    }

    #[test]
    fn head_that_goes_back_is_a_violation() {
        let (mut producer, _, words) = ring();
        assert_eq!(write(&mut producer, &[1; 40]), Ok(40));
        words.store(HEAD, 48);
        assert_eq!(write(&mut producer, &[1; 40]), Ok(40));
        words.store(HEAD, 40);
        let (head, from, to) = (40, 48, 96);
        let expected = Violation::HeadOutOfRange { head, from, to };
        assert_eq!(write(&mut producer, &[1; 40]), Err(expected.into()));
    }

    #[test]
    fn head_between_words_is_a_violation() {
        for head in [1, 7, 47] {
            let expected = Violation::HeadNotAligned { head };
            assert_eq!(head_is(head), Some(expected));
        }
    }

    /// Reads a first record that the peer wrote so; the violation must be final.
    fn record_is(record: [u64; 3]) -> Result<Read, Violation> {
        let (_, mut consumer, words) = ring();
        for (slot, word) in record.into_iter().enumerate() {
            words.store(DATA + 8 * slot, word);
        }
        let read = |consumer: &mut Consumer| {
            let mut stage = [0; 100];
            let mut targets = Targets::new();
            assert!(targets.stage(&mut stage));
            consumer.read(&mut targets)
        };
        match read(&mut consumer) {
            Ok(found) => Ok(found),
            Err(RingError::Violation(found)) => {
                words.store(DATA, Header::Inline(8).emit());
                assert_eq!(read(&mut consumer), Err(found.into()));
                assert!(!consumer.is_empty() && !consumer.prepare_sleep());
                Err(found)
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn unknown_header_is_a_violation() {
        for word in [1, 5 << 56, u64::MAX, 2 << 56 | 8, 3 << 56 | 1 << 32] {
            let expected = Violation::UnknownHeader { at: 0, word };
            assert_eq!(record_is([word, 1, 1]), Err(expected));
        }
    }

    #[test]
    fn length_beyond_the_ring_is_a_violation() {
        for len in [49, 64, u32::MAX] {
            let expected = Violation::Length {
                at: 0,
                len: u64::from(len),
                most: 48,
            };
            let word = Header::Inline(len).emit();
            assert_eq!(record_is([word, 0, 0]), Err(expected));
        }
        let whole = record_is([Header::Inline(48).emit(), 0, 0]);
        assert_eq!(whole, Ok(Read::Bytes(48)));
    }

    #[test]
    fn record_without_bytes_is_a_violation() {
        let (at, len, most) = (0, 0, 48);
        let expected = Violation::Length { at, len, most };
        assert_eq!(record_is([1 << 56, 0, 0]), Err(expected));
    }

    #[test]
    fn external_record_without_range_is_a_violation() {
        let header = Header::External.emit();
        for (address, len) in [(4096, 0), (u64::MAX, 2), (0, u64::MAX)] {
            let at = 0;
            let expected = Violation::Range { at, address, len };
            assert_eq!(record_is([header, address, len]), Err(expected));
        }
    }

    /// What was loaded is not loaded again: the peer changes header, address and length of a record that was begun.
    #[test]
    fn a_record_that_was_begun_does_not_change() {
        let (mut producer, mut consumer, words) = ring();
        assert_eq!(write(&mut producer, b"abcdefgh"), Ok(8));
        assert_eq!(read(&mut consumer, 4).unwrap(), b"abcd");
        words.store(DATA, Header::Inline(48).emit());
        assert_eq!(read(&mut consumer, 40).unwrap(), b"efgh");
        assert_eq!(producer.write_external(16, 16), Ok(true));
        let external = |address, len| Err(Read::External { address, len });
        assert_eq!(read(&mut consumer, 9), external(16, 16));
        for slot in 2..5 {
            words.store(DATA + 8 * slot, u64::MAX);
        }
        consumer.advance_external(8);
        assert_eq!(read(&mut consumer, 9), external(24, 8));
        consumer.advance_external(8);
    }

    /// Its own position is its own, whatever the peer writes to the copy.
    #[test]
    fn consumer_does_not_read_its_published_position() {
        let (mut producer, mut consumer, words) = ring();
        assert_eq!(write(&mut producer, &[1; 40]), Ok(40));
        assert_eq!(read(&mut consumer, 40).unwrap().len(), 40);
        words.store(HEAD, 8);
        assert_eq!(read(&mut consumer, 40), Err(Read::Empty));
    }

    /// The word behind the last record is the producer's to write; what the peer writes there is overwritten or read by itself.
    #[test]
    fn records_of_the_peer_do_not_reach_the_producer() {
        let (mut producer, mut consumer, words) = ring();
        for slot in 0..8 {
            words.store(DATA + 8 * slot, u64::MAX);
        }
        assert_eq!(write(&mut producer, b"honest"), Ok(6));
        assert_eq!(read(&mut consumer, 9).unwrap(), b"honest");
        assert_eq!(read(&mut consumer, 9), Err(Read::Empty));
    }

    #[test]
    fn any_announcement_wakes_at_most_once() {
        let (mut producer, mut consumer, words) = ring();
        for value in [1, 2, u64::MAX] {
            words.store(ASLEEP, value);
            assert!(producer.needs_wakeup() && !producer.needs_wakeup());
            words.store(WAITS, value);
            consumer.close();
            assert!(consumer.needs_wakeup_for_room() && !consumer.needs_wakeup_for_room());
        }
    }

    #[test]
    fn any_closed_word_closes() {
        for value in [1, u64::MAX] {
            let (mut producer, _, words) = ring();
            assert_eq!(write(&mut producer, &[1; 48]), Ok(48));
            words.store(CLOSED, value);
            assert_eq!(write(&mut producer, &[1; 8]), Err(RingError::Closed));
        }
    }
}

/// A ring of eight words. Payload is of relaxed atomics here, so that a consumer that is not synchronized sees older bytes.
#[cfg(loom)]
mod model {
    use std::sync::Arc;

    use loom::sync::Notify;
    use loom::thread;

    use super::*;

    fn ring() -> (Producer, Consumer) {
        let (producer, consumer, _) = on_heap(Layout::new(64).unwrap());
        (producer, consumer)
    }

    /// The bytes of a record are published with it, and so is the empty word behind it.
    #[test]
    fn records_are_read_whole_or_not_at_all() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring();
            let writer = thread::spawn(move || {
                assert_eq!(write(&mut producer, &[1; 8]), Ok(8));
                assert_eq!(write(&mut producer, &[2; 8]), Ok(8));
                producer
            });
            let mut got = Vec::new();
            for _ in 0..2 {
                got.extend(read(&mut consumer, 16).unwrap_or_default());
            }
            let _producer = writer.join().unwrap();
            got.extend(read(&mut consumer, 16).unwrap_or_default());
            assert_eq!(got, [[1; 8], [2; 8]].concat());
            assert!(consumer.is_empty());
        });
    }

    /// The producer overwrites only what was read, and the word behind its record is empty although it held older bytes.
    #[test]
    fn room_is_reused_after_it_was_read() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring();
            // All but one word, so that each record of the thread lies where bytes of these are.
            assert_eq!(write(&mut producer, &[1; 16]), Ok(16));
            assert_eq!(write(&mut producer, &[2; 24]), Ok(24));
            let writer = thread::spawn(move || {
                let wrote = write(&mut producer, &[3; 16]).unwrap();
                (wrote, producer)
            });
            assert_eq!(read(&mut consumer, 16).unwrap(), [1; 16]);
            assert_eq!(read(&mut consumer, 24).unwrap(), [2; 24]);
            let early = read(&mut consumer, 16).unwrap_or_default();
            let (wrote, _producer) = writer.join().unwrap();
            let late = read(&mut consumer, 16).unwrap_or_default();
            assert_eq!([early, late].concat(), vec![3; wrote]);
            assert!(consumer.is_empty());
        });
    }

    #[test]
    fn external_records_and_the_end_are_published_whole() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring();
            let writer = thread::spawn(move || {
                assert_eq!(producer.write_external(64, 8), Ok(true));
                producer.close();
            });
            let mut found = Vec::new();
            let mut look = || {
                let next = read(&mut consumer, 8).unwrap_err();
                if let Read::External { len, .. } = next {
                    consumer.advance_external(len);
                }
                found.push(next);
            };
            look();
            look();
            writer.join().unwrap();
            look();
            look();
            found.retain(|next| *next != Read::Empty);
            found.dedup();
            let (address, len) = (64, 8);
            assert_eq!(found, [Read::External { address, len }, Read::End]);
        });
    }

    /// A consumer that sleeps is woken for a record, at whatever instruction it is: loom reports a thread that sleeps for ever.
    #[test]
    fn no_wakeup_of_the_consumer_is_lost() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring();
            let wakeup = Arc::new(Notify::new());
            let notifier = wakeup.clone();
            let writer = thread::spawn(move || {
                for byte in 1..=2 {
                    assert_eq!(write(&mut producer, &[byte; 8]), Ok(8));
                    if producer.needs_wakeup() {
                        notifier.notify();
                    }
                }
                producer
            });
            let mut got = 0;
            while got < 16 {
                match read(&mut consumer, 16) {
                    Ok(bytes) => got += bytes.len(),
                    Err(_) if consumer.prepare_sleep() => wakeup.wait(),
                    Err(_) => {}
                }
            }
            let _producer = writer.join().unwrap();
            assert!(consumer.is_empty());
        });
    }

    /// A producer that waits for room is woken when there is some.
    #[test]
    fn no_wakeup_of_the_producer_is_lost() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring();
            assert_eq!(write(&mut producer, &[1; 48]), Ok(48));
            let wakeup = Arc::new(Notify::new());
            let notifier = wakeup.clone();
            let reader = thread::spawn(move || {
                assert_eq!(read(&mut consumer, 48).unwrap(), [1; 48]);
                if consumer.needs_wakeup_for_room() {
                    notifier.notify();
                }
                consumer
            });
            while write(&mut producer, &[2; 8]) != Ok(8) {
                if producer.prepare_wait() {
                    wakeup.wait();
                }
            }
            let mut consumer = reader.join().unwrap();
            assert_eq!(read(&mut consumer, 48).unwrap(), [2; 8]);
        });
    }

    /// A producer that waits is told that the consumer has closed.
    #[test]
    fn closing_wakes_a_waiting_producer() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring();
            assert_eq!(write(&mut producer, &[1; 48]), Ok(48));
            let wakeup = Arc::new(Notify::new());
            let notifier = wakeup.clone();
            let closer = thread::spawn(move || {
                consumer.close();
                if consumer.needs_wakeup_for_room() {
                    notifier.notify();
                }
            });
            while write(&mut producer, &[2; 8]) != Err(RingError::Closed) {
                if producer.prepare_wait() {
                    wakeup.wait();
                }
            }
            closer.join().unwrap();
        });
    }
}
