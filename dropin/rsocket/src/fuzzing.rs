//! The checks of the fuzz target `rsocket` (docs/fuzzing.md). They are in this crate because parsers and credits are not public.

use crate::control_message::{ControlMessage, MAX_LEN};
use crate::credit::{Incoming, Outgoing};
use crate::hello::{Hello, MAX_RING};

/// Ring and messages of the model: small, so that all limits are reached.
const RING: u64 = 100;
const SLOTS: u16 = 7;

/// Runs one input.
pub fn check(data: &[u8]) {
    check_hello(data);
    check_hello(&[b"VRS1".as_slice(), data].concat());
    check_control_message(data);
    check_control_message(&data[..data.len().min(MAX_LEN)]);
    check_credits(data);
}

fn check_hello(bytes: &[u8]) {
    let hello = match Hello::from_bytes(bytes) {
        Ok(hello) => hello,
        Err(error) => return drop(error.to_string()),
    };
    assert_eq!(hello.to_bytes(), bytes[..Hello::BYTES]);
    assert!((1..=MAX_RING).contains(&hello.ring.len()) && hello.messages > 0);
    assert!(Hello::from_bytes(&bytes[..Hello::BYTES - 1]).is_err());
}

fn check_control_message(bytes: &[u8]) {
    let Some(word) = ControlMessage::from_bytes(bytes) else {
        return;
    };
    let (again, len) = word.to_bytes();
    assert_eq!(&again[..len], bytes);
}

/// Two sides that obey each other's counts never cause an offence; invented counts are rejected or stay within the ring.
fn check_credits(data: &[u8]) {
    let (mut out, mut inc) = (Outgoing::new(RING, SLOTS), Incoming::new(RING, SLOTS));
    let mut hostile = (out, inc);
    for pair in data.chunks_exact(2) {
        let (op, value) = (pair[0] % 4, u64::from(pair[1]));
        match op {
            0 if out.room() > 0 => {
                let len = 1 + value % out.room();
                assert!(out.send(len) + len <= RING);
                assert_eq!(inc.arrive(len), Ok(()));
            }
            1 => inc.consume(value.min(inc.unread())),
            2 => {
                let (read, messages) = inc.take_credit();
                assert_eq!(out.credit(read, messages), Ok(()));
            }
            _ => {
                let (out, inc) = &mut hostile;
                let _ = out.credit(value, value / 3);
                let _ = inc.arrive(value);
                let room = out.room();
                if room > 0 {
                    out.send(room.min(value.max(1)));
                }
                inc.consume(inc.unread().min(value / 2));
                if inc.is_credit_due() {
                    inc.take_credit();
                }
            }
        }
        for inc in [&inc, &hostile.1] {
            let (at, len) = inc.unread_chunk(0);
            assert!(inc.unread() <= RING && at + len <= RING);
        }
        assert!(out.room() <= RING && hostile.0.room() <= RING);
    }
}
