//! Tests of [`Turn`]: it stops after its number of bytes although the socket would take more.

use super::*;

/// Writes `len` bytes in one call.
fn write(turn: &mut Turn<'_>, len: usize) -> Moved {
    let bytes = vec![7; len];
    let mut sources = Sources::new();
    assert!(sources.own(&bytes));
    turn.write(&sources)
}

fn line() -> (Line, Socket) {
    let (socket, peer) = Socket::pair().unwrap();
    let line = Line::new(socket, None);
    line.open();
    (line, peer)
}

#[test]
fn turn_ends_after_its_byte_budget() {
    let (line, _peer) = line();
    let mut turn = Turn::new(&line, 100);
    assert_eq!(write(&mut turn, 60), Moved::Bytes(60));
    assert!(!turn.is_over());
    // A single write is not cut: it is a batch already.
    assert_eq!(write(&mut turn, 60), Moved::Bytes(60));
    assert!(turn.is_over());
    assert_eq!(write(&mut turn, 60), Moved::Nothing);
    assert_eq!(write(&mut Turn::new(&line, 100), 60), Moved::Bytes(60));
}

#[test]
fn turn_blocked_by_the_socket_is_not_over() {
    let (line, _peer) = line();
    line.shut();
    let mut turn = Turn::new(&line, 100);
    assert_eq!(write(&mut turn, 60), Moved::Nothing);
    assert!(!turn.is_over());
}
