//! Tests of the carrier in memory.

use super::*;

#[test]
fn memory_carrier_transfers_are_bounded_by_room() {
    let mut hand = Hand::with(b"abcde");
    let mut stage = [0; 3];
    let mut targets = Targets::new();
    targets.stage(&mut stage);
    assert_eq!(hand.read(&mut targets), Moved::Bytes(3));
    assert_eq!(hand.came, b"de");
    hand.came = &[];
    assert_eq!(hand.read(&mut targets), Moved::Nothing);

    let mut hand = Hand::open(4);
    let mut sources = Sources::new();
    sources.own(b"abc");
    assert_eq!(hand.write(&sources), Moved::Bytes(3));
    assert_eq!(hand.write(&sources), Moved::Bytes(1));
    assert_eq!(hand.write(&sources), Moved::Nothing);
    assert_eq!(hand.went, b"abca");
}
