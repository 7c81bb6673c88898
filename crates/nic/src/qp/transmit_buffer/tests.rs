//! Tests of frames to be sent: order at every short write, and what refused payload holds back.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, MemAccess, Pd, Policy, Tpt};
use verbena_stream::{Role, Stream};

use super::*;
use crate::testing::{Setup, stream};

const PD: Pd = Pd(1);

struct World {
    tpt: Arc<Tpt>,
    memory: Buffer,
    stream: Stream,
}

impl World {
    fn new() -> World {
        let tpt = Arc::new(Tpt::new(1..10, Policy::Verbs, 1));
        let memory = Buffer::new(&tpt, 2000, PD, Access::ALL).unwrap();
        let pattern: Vec<u8> = (0..2000).map(|i| i as u8).collect();
        memory.write(0, &pattern);
        let setup = Setup {
            crc: false,
            extensions: false,
            ..Setup::default()
        };
        let stream = stream(Role::Initiator, setup);
        World {
            tpt,
            memory,
            stream,
        }
    }

    /// A Write of two frames: the first in place, the second copied or in place.
    fn transmit_buffer(&mut self, second_in_place: bool) -> (TransmitBuffer, Vec<u8>) {
        let message = verbena_stream::Message::Write {
            stag: self.memory.stag(),
            to: verbena_wire::To::new(0),
            len: 1500,
        };
        let mut outgoing = self.stream.begin(message).unwrap();
        let (mut outgo, mut expected) = (TransmitBuffer::default(), Vec::new());
        for in_place in [true, second_in_place] {
            let frame = self.stream.next_frame(&mut outgoing).unwrap();
            let copy = |offset: u32, len: usize, to: &mut Vec<u8>| {
                to.extend(self.memory.read(offset as usize, len));
            };
            frame.append(&mut expected, copy);
            if in_place {
                outgo.put_in_place(&frame, Origin::Request(7));
            } else {
                outgo.put(&frame, copy);
            }
        }
        (outgo, expected)
    }

    fn find(&self, cut: &InPlacePayload) -> Result<Granted<'_>, Refusal> {
        let grant = |at: u32, len: u32| {
            self.tpt.gather_local(&MemAccess {
                stag: self.memory.stag(),
                at: self.memory.at() + u64::from(at),
                len: u64::from(len),
                pd: PD,
                qp: 1,
                needs: Access::NONE,
            })
        };
        // In two pieces, as a gather list may have them.
        let half = cut.len / 2;
        let first = grant(cut.offset, half)?;
        let second = grant(cut.offset + half, cut.len - half)?;
        Ok([first, second].into_iter().collect())
    }
}

fn refusal(world: &World) -> Refusal {
    let stag = world.memory.stag();
    Refusal::Stag { stag }
}

#[test]
fn short_writes_keep_byte_order() {
    for second_in_place in [false, true] {
        for most in (1..40).chain([500, 999, 1016, 1017, 1018, 5000]) {
            let mut world = World::new();
            let (mut outgo, expected) = world.transmit_buffer(second_in_place);
            let (mut went, mut direct) = (Vec::new(), 0);
            while !outgo.is_empty() {
                assert_eq!(outgo.len(), expected.len() - went.len());
                let mut sources = Sources::new();
                let named = outgo.sources(&mut sources, |cut| world.find(cut));
                assert!(named.is_none());
                let n = sources.copy_to(&mut went, most).unwrap();
                drop(sources);
                direct += outgo.advance(n);
                assert!(outgo.invariants());
                assert_eq!(outgo.accepted(), went.len() as u64);
            }
            assert_eq!(went, expected, "{most} at a time");
            assert_eq!(outgo.framed(), expected.len() as u64);
            assert_eq!(direct > 1400, second_in_place);
        }
    }
}

#[test]
fn refused_payload_blocks_later_frames() {
    let mut world = World::new();
    let (mut outgo, expected) = world.transmit_buffer(true);
    let second = outgo.in_place[1].frame_at;
    let find = |cut: &InPlacePayload| {
        if cut.frame_at == second {
            return Err(refusal(&world));
        }
        world.find(cut)
    };
    let mut sources = Sources::new();
    let refused = outgo.sources(&mut sources, find).unwrap();
    assert!(!refused.begun);
    let mut went = Vec::new();
    let n = sources.copy_to(&mut went, usize::MAX).unwrap();
    assert_eq!(went, expected[..n]);
    drop(sources);
    outgo.advance(n);
    // One byte of the second frame's header is sent: from here on the frame must be finished.
    outgo.advance(1);
    let mut sources = Sources::new();
    let refused = outgo.sources(&mut sources, |_| Err(refusal(&world)));
    assert!(refused.unwrap().begun);
    assert_eq!(sources.bytes(), 0);
}

#[test]
fn copied_payload_equals_direct_payload() {
    for sent in [0, 1, 16, 17, 300, 1020, 1100] {
        let mut world = World::new();
        let (mut outgo, expected) = world.transmit_buffer(true);
        outgo.advance(sent);
        assert!(outgo.copy_payload(|cut| world.find(cut)).is_none());
        assert_eq!(
            (outgo.in_place_count(), outgo.take()),
            (0, expected[sent..].to_vec())
        );
    }
}

#[test]
fn uncopyable_payload_drops_its_frame() {
    let mut world = World::new();
    let (mut outgo, expected) = world.transmit_buffer(true);
    let second = outgo.in_place[1].frame_at;
    let refused = outgo.copy_payload(|cut| match cut.frame_at == second {
        true => Err(refusal(&world)),
        false => world.find(cut),
    });
    assert!(!refused.unwrap().begun);
    let left = outgo.take();
    assert_eq!(left, expected[..left.len()]);
    assert!(left.len() > 1000 && left.len() < expected.len() - 500);
}

#[test]
fn sent_bytes_do_not_accumulate() {
    let mut world = World::new();
    let mut outgo = TransmitBuffer::default();
    for _ in 0..2000 {
        let message = verbena_stream::Message::Send {
            solicited: false,
            invalidate: None,
            len: 100,
        };
        let mut outgoing = world.stream.begin(message).unwrap();
        let frame = world.stream.next_frame(&mut outgoing).unwrap();
        outgo.put(&frame, |_, len, to| to.extend(vec![1; len]));
        // One byte always stays behind.
        let most = outgo.len() - 1;
        outgo.advance(most);
    }
    assert!(outgo.bytes.len() < 3 * COMPACT_MIN, "{}", outgo.bytes.len());
}

#[test]
fn large_buffer_is_freed_only_when_idle() {
    let mut outgo = TransmitBuffer {
        bytes: vec![0; 4 * MAX_IDLE_CAPACITY],
        ..TransmitBuffer::default()
    };
    outgo.free_idle_memory();
    outgo.advance(4 * MAX_IDLE_CAPACITY);
    assert!(outgo.is_empty());
    assert!(
        outgo.bytes.capacity() >= 4 * MAX_IDLE_CAPACITY,
        "the next frames use it"
    );
    outgo.free_idle_memory();
    assert_eq!(outgo.bytes.capacity(), 0, "an idle queue pair holds none");
}
