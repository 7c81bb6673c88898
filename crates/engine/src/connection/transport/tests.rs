//! Tests of [`BudgetedTransport`], which stops after its number of bytes although the socket would take more, and of the order of bytes
//! in a stream that passes through rings.

use verbena_ring::{Layout, on_heap};
use verbena_stream::Role;

use super::*;
use crate::connection::rings::tests::rings;

/// Writes `len` bytes in one call.
fn write(turn: &mut BudgetedTransport<'_>, len: usize) -> IoOutcome {
    let bytes = vec![7; len];
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(&bytes));
    turn.write(&sources)
}

fn line() -> (Transport, Socket) {
    let (socket, peer) = Socket::pair().unwrap();
    let line = Transport::new(socket, None);
    line.open();
    (line, peer)
}

#[test]
fn turn_ends_after_its_byte_budget() {
    let (line, _peer) = line();
    let mut turn = BudgetedTransport::new(&line, 100);
    assert_eq!(write(&mut turn, 60), IoOutcome::Bytes(60));
    assert!(!turn.is_exhausted());
    // A single write is not cut: it is a batch already.
    assert_eq!(write(&mut turn, 60), IoOutcome::Bytes(60));
    assert!(turn.is_exhausted());
    assert_eq!(write(&mut turn, 60), IoOutcome::WouldBlock);
    assert_eq!(
        write(&mut BudgetedTransport::new(&line, 100), 60),
        IoOutcome::Bytes(60)
    );
}

#[test]
fn turn_blocked_by_the_socket_is_not_over() {
    let (line, _peer) = line();
    line.shut();
    let mut turn = BudgetedTransport::new(&line, 100);
    assert_eq!(write(&mut turn, 60), IoOutcome::WouldBlock);
    assert!(!turn.is_exhausted());
}

/// Both ends of a stream, and the rings of each.
fn ends() -> [(Transport, Rings); 2] {
    let (one, other) = Socket::pair().unwrap();
    let layout = Layout::new(4096).unwrap();
    let ((ours, theirs, _), (back, forth, _)) = (on_heap(layout), on_heap(layout));
    [
        (one, rings(ours, forth, Role::Initiator)),
        (other, rings(back, theirs, Role::Responder)),
    ]
    .map(|(socket, rings)| {
        let line = Transport::new(socket, None);
        line.open();
        (line, rings)
    })
}

fn say(mut line: &Transport, text: &[u8]) {
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(text));
    assert_eq!(line.write(&sources), IoOutcome::Bytes(text.len()));
}

fn read_all(mut line: &Transport) -> (Vec<u8>, IoOutcome) {
    let mut all = Vec::new();
    loop {
        let mut bytes = [0; 64];
        let mut targets = Targets::new();
        assert!(targets.stage(&mut bytes));
        let moved = line.read(&mut targets);
        drop(targets);
        match moved {
            IoOutcome::Bytes(n) => all.extend(&bytes[..n]),
            other => return (all, other),
        }
    }
}

#[test]
fn bytes_of_a_short_ring_keep_their_place() {
    for closes in [false, true] {
        let [(writer, tx), (reader, rx)] = ends();
        say(&writer, b"one ");
        assert!(writer.install_rings(tx) && reader.install_rings(rx));
        // The reader looks at nothing before all of this has happened.
        say(&writer, b"two ");
        writer.rings().unwrap().end_writing();
        say(&writer, b"three");
        let end = if closes {
            drop(writer);
            IoOutcome::Eof
        } else {
            IoOutcome::WouldBlock
        };
        assert_eq!(read_all(&reader), (b"one two three".to_vec(), end));
    }
}

#[test]
fn stream_whose_ring_never_begins_is_read_from_the_socket() {
    let [(writer, tx), (reader, rx)] = ends();
    assert!(reader.install_rings(rx));
    let long = vec![7; 3 * BEFORE_RING];
    say(&writer, &long);
    assert_eq!(read_all(&reader), (long, IoOutcome::WouldBlock));
    drop((writer, tx));
    // The end of the socket is looked for every so often.
    assert!((0..1000).any(|_| read_all(&reader) == (Vec::new(), IoOutcome::Eof)));
}

#[test]
fn undelivered_bytes_are_in_socket_or_ring() {
    let [(writer, tx), (reader, rx)] = ends();
    let undelivered = |writer: &mut &Transport| writer.undelivered();
    say(&writer, b"one ");
    assert!(reader.install_rings(rx));
    read_all(&reader);
    assert!(writer.install_rings(tx));
    assert_eq!(undelivered(&mut &writer), Some(0), "the ring has not begun");
    say(&writer, b"two ");
    assert!(undelivered(&mut &writer) >= Some(4));
    read_all(&reader);
    assert_eq!(undelivered(&mut &writer), Some(0));
    writer.rings().unwrap().end_writing();
    say(&writer, b"three");
    read_all(&reader);
    assert_eq!(undelivered(&mut &writer), Some(0), "the ring has ended");
}
