//! The high layer between two devices: every operation and its bytes, checks of handles, and the end of connections.
//! Errors detected locally leave the connection usable.

use std::time::Duration;

use verbena::low::QpAccessFlags;
use verbena::{Access, Connection, Error, ErrorKind, Fault, RemoteMemory, Status};

use crate::common::{device, pair, pattern};

const KINDS: &[&[(&str, &str)]] = &[
    &[("crc", "off")],
    &[("crc", "on"), ("shards", "1")],
    &[("personality", "iwarp"), ("crc", "off")],
    &[("extensions", "off"), ("rfc7306", "on")],
];

#[test]
fn every_operation_carries_its_bytes() {
    for kind in KINDS {
        let (a, b) = pair(kind);
        let memory = b.device().memory(1 << 20, Access::ALL).unwrap();
        for len in [0, 1, 64, 5000, 1 << 20] {
            let data = pattern(len, 3);
            let receiving = b.recv(b.device().buffer(1 << 20).unwrap());
            let (sent, buf) = a.send(a.device().buffer_from(&data).unwrap()).wait();
            sent.unwrap();
            assert_eq!(buf[..], data[..], "the buffer came back as it was");
            let (received, got) = receiving.wait();
            assert_eq!((received.unwrap().len, &got[..]), (len, &data[..]));

            let there = memory.remote().slice(0, len as u64).unwrap();
            let (written, mut buf) = a.write(buf, &there).wait();
            written.unwrap();
            buf.fill(0);
            let (read, buf) = a.read(buf, &there).wait();
            read.unwrap();
            assert_eq!(buf[..], data[..], "{kind:?}");
        }
        memory.store(64, 5).unwrap();
        let word = memory.remote_value::<u64>(64).unwrap();
        assert_eq!(a.fetch_add(&word, 3).wait().unwrap(), 5);
        assert_eq!(a.compare_swap(&word, 8, 99).wait().unwrap(), 8);
        assert_eq!(a.compare_swap(&word, 8, 1).wait().unwrap(), 99);
        assert_eq!(memory.load(64).unwrap(), 99);
        let value = memory.remote_value::<[u16; 5]>(101).unwrap();
        a.write_value(&value, &[1, 2, 3, 4, 5]).wait().unwrap();
        assert_eq!(a.read_value(&value).wait().unwrap(), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn immediate_data_is_delivered() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(100, Access::ALL).unwrap();
    let first = b.recv(b.device().buffer(10).unwrap());
    let second = b.recv(b.device().buffer(10).unwrap());
    let buf = a.device().buffer_from(b"hello").unwrap();
    let (sent, buf) = a.send_imm(buf, 7).wait();
    sent.unwrap();
    a.write_imm(buf, &memory.remote(), 8).wait().0.unwrap();
    let (received, buf) = first.wait();
    assert_eq!(received.unwrap().immediate, Some(7));
    assert_eq!(&buf[..], b"hello");
    let (received, buf) = second.wait();
    let received = received.unwrap();
    assert_eq!(
        (received.len, received.immediate, buf.len()),
        (5, Some(8), 0)
    );
    assert_eq!(memory.get::<[u8; 5]>(0).unwrap(), *b"hello");
}

/// Far more operations than the connection's depth, all begun before the first wait.
#[test]
fn thousand_queued_operations_run_in_order() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(8, Access::ALL).unwrap();
    let word = memory.remote_value(0).unwrap();
    let receives: Vec<_> = (0..1000)
        .map(|_| b.recv(b.device().buffer(8).unwrap()))
        .collect();
    let sends: Vec<_> = (0..1000_u64)
        .map(|i| a.send(a.device().buffer_from(&i.to_be_bytes()).unwrap()))
        .collect();
    let adds: Vec<_> = (0..1000).map(|_| a.fetch_add(&word, 1)).collect();
    for (i, receive) in (0..1000_u64).zip(receives) {
        let (received, buf) = receive.wait();
        received.unwrap();
        assert_eq!(buf[..], i.to_be_bytes());
    }
    for send in sends {
        send.wait().0.unwrap();
    }
    for (i, add) in (0..1000).zip(adds) {
        assert_eq!(add.wait().unwrap(), i);
    }
}

#[test]
fn threads_share_a_connection() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(64, Access::ALL).unwrap();
    let word = memory.remote_value(0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    a.fetch_add(&word, 1).wait().unwrap();
                }
            });
        }
        scope.spawn(|| {
            for i in 0..100 {
                a.send(a.device().buffer_from(&[i]).unwrap())
                    .wait()
                    .0
                    .unwrap();
            }
        });
        scope.spawn(|| {
            for i in 0..100 {
                let (received, buf) = b.recv(b.device().buffer(8).unwrap()).wait();
                received.unwrap();
                assert_eq!(buf[..], [i]);
            }
        });
    });
    assert_eq!(memory.load(0).unwrap(), 400);
}

/// None of these reaches the wire: the connection stays usable.
#[test]
fn remote_handles_are_checked_locally() {
    let (a, b) = pair(&[]);
    let readable = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let memory = b.device().memory(64, readable).unwrap();
    let remote = RemoteMemory::from_bytes(&memory.remote().to_bytes()).unwrap();
    let buf = || a.device().buffer_from(&[1; 100]).unwrap();

    let (refused, kept) = a.write(buf(), &remote).wait();
    let refused = refused.unwrap_err();
    assert!(matches!(
        refused,
        Error::OutOfBounds {
            len: 100,
            limit: 64,
            ..
        }
    ));
    assert_eq!(kept[..], [1; 100], "and the buffer is back");
    let small = a.device().buffer_from(&[1; 10]).unwrap();
    let refused = a.write(small, &remote).wait().0.unwrap_err();
    assert!(matches!(refused, Error::MissingAccess { .. }), "{refused}");
    let word = remote.value(0).unwrap();
    let refused = a.fetch_add(&word, 1).wait().unwrap_err();
    assert_eq!(refused.fault(), Fault::Caller, "{refused}");
    let tight = a.device().buffer(63).unwrap();
    assert!(matches!(
        a.read(tight, &remote).wait().0,
        Err(Error::OutOfBounds { .. })
    ));

    let all = b.device().memory(64, Access::ALL).unwrap();
    let crooked = all.remote_value(4).unwrap();
    let refused = a.compare_swap(&crooked, 0, 1).wait().unwrap_err();
    assert!(matches!(refused, Error::Unaligned { .. }), "{refused}");
    let foreign = b.device().buffer(8).unwrap();
    assert!(matches!(a.send(foreign).wait().0, Err(Error::Foreign)));

    for bytes in [&[0; 23][..], &[0; 24], &[0xff; 24]] {
        assert!(RemoteMemory::from_bytes(bytes).is_err());
    }
    a.read(buf(), &remote).wait().0.unwrap();
}

/// Between Verbenas in both personalities; a peer without the extensions is never asked.
#[test]
fn atomic_write_and_flush_need_a_verbena_peer() {
    for kind in KINDS {
        let (a, b) = pair(kind);
        let memory = b.device().memory(64, Access::ALL).unwrap();
        let word = memory.remote_value(8).unwrap();
        let written = a.atomic_write(&word, 7).wait();
        if kind.contains(&("extensions", "off")) {
            let refused = written.unwrap_err();
            assert_eq!(refused.status(), Some(Status::LocQpOpErr), "{refused}");
            assert_eq!(memory.load(8).unwrap(), 0);
            continue;
        }
        written.unwrap();
        assert_eq!(memory.load(8).unwrap(), 7);
        a.flush(&memory.remote()).wait().unwrap();
    }
}

/// None of these reaches the wire: the connection stays usable.
#[test]
fn placement_handles_are_checked_locally() {
    let (a, b) = pair(&[]);
    let atomic_only = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let memory = b.device().memory(64, atomic_only).unwrap();
    let refused = a.atomic_write(&memory.remote_value(0).unwrap(), 1).wait();
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Error::MissingAccess { .. }), "{refused}");
    let refused = a.flush(&memory.remote()).wait().unwrap_err();
    assert!(matches!(refused, Error::MissingAccess { .. }), "{refused}");
    let all = b.device().memory(64, Access::ALL).unwrap();
    let crooked = all.remote_value(4).unwrap();
    let refused = a.atomic_write(&crooked, 1).wait().unwrap_err();
    assert!(matches!(refused, Error::Unaligned { .. }), "{refused}");
    let sent = RemoteMemory::from_bytes(&all.remote().to_bytes()).unwrap();
    assert_eq!(sent, all.remote());
    a.flush(&sent).wait().unwrap();
}

#[test]
fn write_to_dropped_memory_fails_with_cause() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(64, Access::ALL).unwrap();
    let remote = memory.remote();
    drop(memory);
    let waiting = a.recv(a.device().buffer(8).unwrap());
    let (result, buf) = a
        .write(a.device().buffer_from(b"x").unwrap(), &remote)
        .wait();
    let error = result.unwrap_err();
    assert_eq!(error.status(), Some(Status::RemAccessErr));
    assert!(
        error.to_string().contains("the peer sent Terminate"),
        "{error}"
    );
    assert_eq!(&buf[..], b"x");
    let (flushed, buf) = waiting.wait();
    assert!(flushed.unwrap_err().is_closed());
    assert_eq!(buf.capacity(), 8, "the buffers of flushed work come back");
    let (late, _) = a.send(buf).wait();
    assert!(late.unwrap_err().is_closed());
}

#[test]
fn disabled_operation_is_refused_by_peer() {
    let (a, b) = pair(&[]);
    let memory = b.device().memory(64, Access::ALL).unwrap();
    b.set_access_flags(QpAccessFlags {
        write: false,
        ..QpAccessFlags::default()
    });
    a.read(a.device().buffer(64).unwrap(), &memory.remote())
        .wait()
        .0
        .unwrap();
    let buf = a.device().buffer_from(b"x").unwrap();
    let error = a.write(buf, &memory.remote()).wait().0.unwrap_err();
    assert_eq!(error.status(), Some(Status::RemInvReqErr), "{error}");
}

#[test]
fn receives_end_after_last_message_of_peer() {
    for kind in KINDS {
        let (a, b) = pair(kind);
        let first = b.recv(b.device().buffer(8).unwrap());
        let second = b.recv(b.device().buffer(8).unwrap());
        a.send(a.device().buffer_from(b"bye").unwrap())
            .wait()
            .0
            .unwrap();
        drop(a);
        let (received, buf) = first.wait();
        received.unwrap();
        assert_eq!(&buf[..], b"bye");
        let error = second.wait().0.unwrap_err();
        assert!(matches!(error, Error::Closed { by_peer: true }), "{error}");
        assert!(b.is_peer_disconnected());
        let late = b.recv(b.device().buffer(8).unwrap()).wait().0;
        assert!(late.unwrap_err().is_closed());
    }
}

#[test]
fn dropped_connection_returns_its_buffers() {
    let (a, b) = pair(&[]);
    let receives: Vec<_> = (0..300)
        .map(|_| a.recv(a.device().buffer(8).unwrap()))
        .collect();
    // No receive is posted for these.
    let sends: Vec<_> = (0..300)
        .map(|_| a.send(a.device().buffer_from(&[9; 8]).unwrap()))
        .collect();
    drop(a);
    for receive in receives {
        let (result, buf) = receive.wait();
        assert!(matches!(result, Err(Error::Closed { by_peer: false })));
        assert_eq!(buf.capacity(), 8);
    }
    for send in sends {
        let (result, buf) = send.wait();
        assert!(result.is_err());
        assert_eq!(buf[..], [9; 8]);
    }
    drop(b);
}

#[test]
fn close_waits_for_operations_in_progress() {
    let (a, b) = pair(&[]);
    let data = pattern(1 << 20, 1);
    let memory = b.device().memory(8 << 20, Access::ALL).unwrap();
    for i in 0..8_u64 {
        let there = memory.remote().slice(i << 20, 1 << 20).unwrap();
        drop(a.write(a.device().buffer_from(&data).unwrap(), &there));
    }
    a.close();
    let mut got = vec![0; 1 << 20];
    for i in 0..8 {
        memory.read_at(i << 20, &mut got).unwrap();
        assert_eq!(got, data);
    }
}

#[test]
fn message_of_dropped_receive_goes_to_next() {
    let (a, b) = pair(&[]);
    let buffer = || b.device().buffer(8).unwrap();
    for round in 0..50_u8 {
        // Dropped before the message, after it, and twice.
        drop(b.recv(buffer()));
        if round % 3 == 0 {
            drop(b.recv(buffer()));
        }
        let sent = a.send(a.device().buffer_from(&[round]).unwrap());
        if round % 2 == 0 {
            sent.wait().0.unwrap();
        }
        let receiving = b.recv(buffer());
        // A limit beyond the clock's range is none.
        let limit = if round % 2 == 0 {
            Duration::MAX
        } else {
            Duration::from_secs(10)
        };
        let (received, buf) = match receiving.wait_for(limit) {
            Ok(end) => end,
            Err(_) => panic!("round {round}: the message was lost"),
        };
        received.unwrap();
        assert_eq!(buf[..], [round]);
    }
}

#[test]
fn private_data_and_rejections_are_delivered() {
    let device = device(&[]);
    let listener = device.listen("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let connecting = device.connector(b"may I").connect(to);
    let request = listener.next().wait().unwrap();
    assert_eq!(request.private_data(), b"may I");
    request.reject(b"no");
    let rejected = connecting.wait().unwrap_err();
    assert_eq!(rejected.kind(), ErrorKind::Rejected);
    assert_eq!(rejected.rejection(), Some(&b"no"[..]));
    let long = vec![0; 1000];
    let refused = device.connector(&long).connect(to).wait().unwrap_err();
    assert_eq!(refused.fault(), Fault::Caller, "{refused}");
    let nowhere = device.connect("no.such.name.invalid:1").wait();
    assert!(matches!(nowhere, Err(Error::Address { .. })));
}

#[test]
fn closed_connections_leave_no_objects() {
    let device = device(&[]);
    let listener = device.listen("127.0.0.1:0").unwrap();
    for round in 0..100 {
        let connecting = device.connect(listener.local_addr().unwrap());
        let there = listener.accept().wait().unwrap();
        let here: Connection = connecting.wait().unwrap();
        if round % 2 == 0 {
            drop(here.recv(device.buffer(64).unwrap()));
        }
        let _late = there.recv(device.buffer(64).unwrap());
        drop(here);
    }
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while device.used().qps > 0 || device.used().stags > 0 || device.used().cqs > 0 {
        assert!(std::time::Instant::now() < end, "{:?}", device.used());
        std::thread::yield_now();
    }
}

/// Dropping a device does not wait for connections that were never established.
#[test]
fn pending_connection_can_be_dropped() {
    let begin = std::time::Instant::now();
    {
        let device = device(&[("startup_timeout", "600s")]);
        let listener = device.listen("127.0.0.1:0").unwrap();
        drop(device.connect(listener.local_addr().unwrap()));
        let connecting = device
            .connector(b"")
            .depth(1024)
            .connect(listener.local_addr().unwrap());
        drop(connecting);
    }
    assert!(
        begin.elapsed() < Duration::from_secs(60),
        "{:?}",
        begin.elapsed()
    );
}
