//! Tests of the carrier in memory.

use super::*;

#[test]
fn memory_carrier_transfers_are_bounded_by_room() {
    let mut carrier = MemoryCarrier::with_input(b"abcde");
    let mut stage = [0; 3];
    let mut targets = Targets::new();
    targets.stage(&mut stage);
    assert_eq!(carrier.read(&mut targets), IoOutcome::Bytes(3));
    assert_eq!(carrier.input, b"de");
    carrier.input = &[];
    assert_eq!(carrier.read(&mut targets), IoOutcome::WouldBlock);

    let mut carrier = MemoryCarrier::with_room(4);
    let mut sources = Sources::new();
    sources.borrow_bytes(b"abc");
    assert_eq!(carrier.write(&sources), IoOutcome::Bytes(3));
    assert_eq!(carrier.write(&sources), IoOutcome::Bytes(1));
    assert_eq!(carrier.write(&sources), IoOutcome::WouldBlock);
    assert_eq!(carrier.output, b"abca");
}
