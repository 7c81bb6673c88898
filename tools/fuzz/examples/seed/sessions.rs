//! Seeds of the target `session`: short runs of a messaging session, in the input layout of that target.
//! Each has the messages of a conforming peer; mutation derives others from them.

use verbena_split_wire::push::{Body, Element, Message, Operation, Pool, Range, Reference};
use verbena_wire::{Stag, To};

use crate::Seed;

const POLL: &[u8] = &[9];
const WRITTEN: &[u8] = &[7];
const GIVE_BACK: &[u8] = &[8, 5];

/// The step in which a message arrives.
fn arrive(bytes: &[u8]) -> Vec<u8> {
    [&[0, bytes.len() as u8][..], bytes].concat()
}

fn message(body: Body<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message { context: 9, body }.emit(&mut bytes);
    arrive(&bytes)
}

fn lend() -> Vec<u8> {
    let pool = Pool {
        reference: 3,
        count: 4,
        size: 1000,
        handle: Stag::new(0x77),
        at: To::new(0x10000),
        context: 0,
    };
    let mut bytes = Vec::new();
    Message::emit_pools(1, &[pool], &mut bytes);
    arrive(&bytes)
}

fn update(pool: u32, first: u32, count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message::emit_ranges(2, &[Range { pool, first, count }], &mut bytes);
    arrive(&bytes)
}

fn flush(pool: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message::emit_flush(3, &[Reference(pool)], &mut bytes);
    arrive(&bytes)
}

fn indicate(pool: u32, element: u32, length: u32) -> Vec<u8> {
    let element = Element::Index {
        pool,
        element,
        length,
    };
    let mut bytes = Vec::new();
    Message::emit_elements(4, &[element], &mut bytes);
    arrive(&bytes)
}

/// Arrangement, naming, then steps.
pub(crate) fn sessions() -> Vec<Seed> {
    let send: &[u8] = &[6, 0, 200];
    let story = |arrangement: u8, naming: u8, steps: &[&[u8]]| {
        [&[arrangement, naming][..], &steps.concat()].concat()
    };
    let immediate: &[u8] = &[4, 1, 2, 0, 100];
    let packet: &[u8] = &[5, 0, 100];
    let data = message(Body::SendData(b"hello"));
    let request = message(Body::CfgUtilRequest {
        operation: Operation::SetMtu,
        data: &[0, 0, 5, 220],
    });
    let get = message(Body::BufferRecvPoolGet {
        count: 10,
        size: 1500,
    });
    let unknown = arrive(&[0, 77, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]);
    vec![
        (
            "sends",
            story(
                0,
                0,
                &[&lend(), send, WRITTEN, packet, POLL, GIVE_BACK, POLL],
            ),
        ),
        (
            "sends-announced",
            story(
                0,
                0,
                &[
                    packet,
                    &indicate(1, 2, 0),
                    &flush(0x8000_0001),
                    POLL,
                    packet,
                    POLL,
                ],
            ),
        ),
        (
            "writes",
            story(
                1,
                0,
                &[&lend(), send, POLL, WRITTEN, &update(3, 0, 1), send, POLL],
            ),
        ),
        (
            "writes-by-message",
            story(1, 1, &[&lend(), send, WRITTEN, POLL, &update(3, 0, 1)]),
        ),
        (
            "writes-by-address",
            story(1, 2, &[&lend(), send, send, WRITTEN, POLL]),
        ),
        (
            "arrivals",
            story(
                1,
                0,
                &[
                    immediate,
                    &indicate(1, 7, 300),
                    POLL,
                    GIVE_BACK,
                    GIVE_BACK,
                    POLL,
                ],
            ),
        ),
        (
            "flush-under-way",
            story(1, 0, &[&lend(), send, &flush(3), POLL, WRITTEN, POLL]),
        ),
        (
            "recall",
            story(1, 0, &[POLL, &[8, 0], POLL, immediate, POLL]),
        ),
        ("release", story(1, 0, &[&lend(), POLL, &[8, 0x31], POLL])),
        (
            "single",
            story(
                2,
                0,
                &[&lend(), send, WRITTEN, &data, POLL, GIVE_BACK, POLL],
            ),
        ),
        (
            "configuration",
            story(2, 0, &[&request, &get, &unknown, POLL, &[8, 2], POLL]),
        ),
        (
            "refresh",
            story(0, 0, &[&lend(), send, WRITTEN, &[8, 3], POLL]),
        ),
    ]
}
