//! Tests of [`BudgetedTransport`]: it stops after its number of bytes although the socket would take more.

use super::*;

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
