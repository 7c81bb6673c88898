//! Tests of the stage: bytes come out in order, and an idle one is small.

use super::*;

#[test]
fn bytes_leave_in_the_order_they_came() {
    let mut stage = Stage::default();
    stage.put(b"abc");
    stage.consume(2);
    stage.room(3)[..2].copy_from_slice(b"de");
    stage.grow(2);
    assert_eq!(stage.bytes(), b"cde");
    stage.set_need(5);
    assert_eq!(stage.missing(), 2);
    stage.put(b"fgh");
    assert_eq!((stage.bytes(), stage.missing()), (&b"cdefgh"[..], 0));
    stage.consume(6);
    assert!(stage.is_empty());
}

#[test]
fn an_idle_stage_gives_a_large_buffer_back() {
    let mut stage = Stage::default();
    stage.put(&[1; 5000]);
    stage.consume(4999);
    stage.free_idle_memory();
    assert_eq!(stage.bytes(), [1], "not idle");
    stage.consume(1);
    stage.free_idle_memory();
    assert_eq!(stage.buffer.capacity(), 0);
}
