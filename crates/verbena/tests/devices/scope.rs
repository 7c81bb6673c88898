//! Operations on borrowed slices and on parts of memory: the bytes are right, and nothing is accessed afterwards.
//! No registration is left when a scope has ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use verbena::{Access, Error, Fault};
use verbena_testing::{Tid, wait_blocked};

use crate::common::{device, pair, pattern};

#[test]
fn slices_of_every_length_are_transferred() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(1 << 20, Access::ALL).unwrap();
    for len in [0, 1, 64, 5000, 1 << 20] {
        let data = pattern(len, 7);
        let there = memory.remote().slice(0, len as u64).unwrap();
        let (mut got, mut back) = (vec![0; len], vec![0; len]);
        std::thread::scope(|threads| {
            let receiving = threads.spawn(|| {
                b.scope(|scope| {
                    let (received, bytes) = scope.recv(&mut got).wait();
                    assert_eq!(received.unwrap().len, len);
                    assert_eq!(bytes, data);
                });
            });
            a.scope(|scope| {
                let sent = scope.send(&data);
                let written = scope.write(&data, &there);
                sent.wait().unwrap();
                written.wait().unwrap();
                let (read, bytes) = scope.read(&mut back, &there).wait();
                read.unwrap();
                assert_eq!(bytes, data);
                // The slice was returned and can be used again.
                bytes.fill(0);
                scope.read(bytes, &there).wait().0.unwrap();
            });
            receiving.join().unwrap();
        });
        assert!(got == data && back == data, "{len}");
    }
    assert_eq!(a.device().used().stags, 0, "nothing stays registered");
}

/// Leaked operations are waited for: when the call returns the bytes are there and are not accessed any more.
#[test]
fn scope_waits_for_leaked_operations() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(1 << 20, Access::ALL).unwrap();
    memory.write_at(0, &pattern(1 << 20, 3)).unwrap();
    let mut slices = vec![vec![0; 1 << 20]; 8];
    a.scope(|scope| {
        for (i, slice) in slices.iter_mut().enumerate() {
            let loan = scope.read(slice, &memory.remote());
            if i % 2 == 0 {
                core::mem::forget(loan);
            } else {
                drop(loan);
            }
        }
    });
    for slice in &slices {
        assert!(*slice == pattern(1 << 20, 3));
    }
    // A leaked loan keeps nothing registered.
    assert_eq!(a.device().used().stags, 0);
}

/// A panic deregisters the slices at once; a message that arrives later is not placed.
#[test]
fn panic_in_scope_deregisters_slices() {
    let (a, b) = pair(&[]);
    let mut bytes = [1; 64];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        b.scope(|scope| {
            let _receiving = scope.recv(&mut bytes);
            panic!("as a test does");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(b.device().used().stags, 0);
    let later = b.recv(b.device().buffer(64).unwrap());
    let ended = later.wait_for(Duration::from_secs(5));
    let (result, _) = ended.expect("the connection fails at once, not with the next message");
    assert!(result.is_err());
    let sent = a.send(a.device().buffer_from(&[9; 64]).unwrap()).wait().0;
    assert!(sent.is_err());
    assert_eq!(bytes, [1; 64], "nothing comes afterwards");
}

/// A panic with no operation under way does not fail the connection.
#[test]
fn panic_after_completion_keeps_the_connection() {
    let (a, b) = pair(&[]);
    let mut bytes = [0; 8];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        b.scope(|scope| {
            let receiving = scope.recv(&mut bytes);
            a.scope(|scope| scope.send(b"before").wait()).unwrap();
            receiving.wait().0.unwrap();
            panic!("as a test does");
        });
    }));
    assert!(panicked.is_err());
    let receiving = b.recv(b.device().buffer(64).unwrap());
    a.scope(|scope| scope.send(b"after").wait()).unwrap();
    assert_eq!(&receiving.wait().1[..], b"after");
}

#[test]
fn timed_out_wait_can_be_repeated() {
    let (a, b) = pair(&[]);
    let mut bytes = [0; 8];
    b.scope(|scope| {
        let loan = scope.recv(&mut bytes);
        let Err(loan) = loan.wait_for(Duration::from_millis(5)) else {
            panic!("a completion without a message");
        };
        a.scope(|scope| scope.send(b"late").wait()).unwrap();
        let (received, bytes) = loan.wait();
        assert_eq!(&bytes[..received.unwrap().len], b"late");
    });
}

#[test]
fn closed_connection_ends_scoped_operations() {
    let (a, b) = pair(&[]);
    let mut bytes = [0; 8];
    let waiter = Tid::current();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            wait_blocked(waiter);
            drop(a);
        });
        b.scope(|scope| {
            let (result, _) = scope.recv(&mut bytes).wait();
            assert!(result.unwrap_err().is_closed());
        });
    });
}

/// None of these reaches the wire: the connection stays usable.
#[test]
fn invalid_operations_return_the_slice() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(64, Access::ALL).unwrap();
    let mut small = [5; 63];
    a.scope(|scope| {
        let (result, slice) = scope.read(&mut small, &memory.remote()).wait();
        assert!(matches!(result, Err(Error::OutOfBounds { limit: 63, .. })));
        slice[0] = 6;
        let long = scope.write(&[0; 65], &memory.remote()).wait();
        assert!(matches!(long, Err(Error::OutOfBounds { limit: 64, .. })));
    });
    assert_eq!(small[..2], [6, 5]);
    let fixed = a.device().memory(64, Access::LOCAL_READ).unwrap();
    let piece = fixed.slice(0, 64).unwrap();
    let refused = a.read_into(&piece, &memory.remote()).wait().unwrap_err();
    assert!(matches!(refused, Error::MissingAccess { .. }), "{refused}");
    let refused = a.recv_into(&piece).wait().unwrap_err();
    assert_eq!(refused.fault(), Fault::Caller);
    let foreign = device(&[]).memory(64, Access::ALL).unwrap();
    let refused = a.send_from(&foreign.slice(0, 8).unwrap()).wait();
    assert!(matches!(refused, Err(Error::Foreign)));
    a.write_from(&piece, &memory.remote()).wait().unwrap();
}

#[test]
fn memory_parts_are_transferred_in_place() {
    let (a, b) = pair(&[]);
    let ours = a.device().memory(1 << 20, Access::ALL).unwrap();
    let theirs = b.device().memory(1 << 20, Access::ALL).unwrap();
    let data = pattern(100_000, 1);
    ours.write_at(1000, &data).unwrap();
    let piece = ours.slice(1000, 100_000).unwrap();
    let receiving = b.recv_into(&theirs.slice(5000, 200_000).unwrap());
    a.send_from(&piece).wait().unwrap();
    assert_eq!(receiving.wait().unwrap().len, 100_000);
    let mut got = vec![0; 100_000];
    theirs.read_at(5000, &mut got).unwrap();
    assert!(got == data);
    let there = theirs.remote().slice(300_000, 100_000).unwrap();
    // The memory lives as long as the operation, not only as long as its handles.
    let writing = a.write_from(&piece, &there);
    drop((ours, piece));
    writing.wait().unwrap();
    let back = a.device().memory(200_000, Access::LOCAL_WRITE).unwrap();
    let reading = a.read_into(&back.slice(7, 150_000).unwrap(), &there);
    reading.wait().unwrap();
    back.read_at(7, &mut got).unwrap();
    assert!(got == data);
    assert_eq!(back.get::<u8>(100_007).unwrap(), 0, "no byte more");
}

/// A dropped receive into memory is not taken over by the next `recv`: its message is placed there.
#[test]
fn dropped_receive_into_memory_keeps_its_message() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(64, Access::ALL).unwrap();
    drop(b.recv_into(&memory.slice(8, 8).unwrap()));
    let receiving = b.recv(b.device().buffer(8).unwrap());
    for text in [b"one", b"two"] {
        a.scope(|scope| scope.send(text).wait()).unwrap();
    }
    assert_eq!(&receiving.wait().1[..], b"two");
    assert_eq!(memory.get::<[u8; 3]>(8).unwrap(), *b"one");
}
