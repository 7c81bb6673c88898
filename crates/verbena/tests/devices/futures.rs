//! The same calls as futures, with tokio and without a runtime. Dropping a future at any time loses or mixes up nothing.

#![cfg(feature = "async")]

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use verbena::{Access, Error};

use crate::common::{device, pair, pattern};

async fn with_timeout<T>(what: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, what).await.expect("it hangs")
}

#[tokio::test]
async fn one_thread_runs_both_sides() {
    let device = device(&[]);
    let listener = device.listen("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (a, b) = with_timeout(async { tokio::join!(device.connect(to), listener.accept()) }).await;
    let (a, b) = (a.unwrap(), b.unwrap());
    let memory = device.memory(1 << 20, Access::ALL).unwrap();
    with_timeout(async {
        for len in [0, 1, 5000, 1 << 20] {
            let data = pattern(len, 1);
            let receiving = b.recv(device.buffer(1 << 20).unwrap());
            let (sent, buf) = a.send(device.buffer_from(&data).unwrap()).await;
            sent.unwrap();
            let (received, got) = receiving.await;
            received.unwrap();
            assert_eq!(got[..], data[..]);
            let there = memory.remote().slice(0, len as u64).unwrap();
            let (written, buf) = a.write(buf, &there).await;
            written.unwrap();
            let (read, buf) = a.read(buf, &there).await;
            read.unwrap();
            assert_eq!(buf[..], data[..]);
        }
        let word = memory.remote_value(8).unwrap();
        memory.store(8, 1).unwrap();
        assert_eq!(a.fetch_add(&word, 1).await.unwrap(), 1);
        assert_eq!(a.compare_swap(&word, 2, 9).await.unwrap(), 2);
    })
    .await;
    drop(a);
    let end = with_timeout(b.recv(device.buffer(8).unwrap())).await.0;
    assert!(matches!(end, Err(Error::Closed { by_peer: true })));
}

/// A task that waits when the callback is set still gets the request.
#[tokio::test]
async fn request_callback_keeps_waiting_tasks() {
    let device = device(&[]);
    let listener = device.listen("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel();
    let asks = async {
        listener.on_request(Arc::new(move || tell.send(()).unwrap_or_default()));
        device.connect(to).await
    };
    // Dropped without an answer, it is rejected.
    let takes = async { listener.next().await.map(drop) };
    let (taken, asked) = with_timeout(async { tokio::join!(takes, asks) }).await;
    taken.unwrap();
    assert!(asked.unwrap_err().rejection().is_some());
    told.recv_timeout(Duration::from_secs(20)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_share_a_connection() {
    let (a, b) = pair(&[]);
    let (a, memory) = (Arc::new(a), b.device().memory(8, Access::ALL).unwrap());
    let word = memory.remote_value(0).unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let a = a.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    a.fetch_add(&word, 1).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        with_timeout(task).await.unwrap();
    }
    assert_eq!(memory.load(0).unwrap(), 1000);
}

/// Receives are dropped after various times, and every message is still received once, in order and whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_receive_futures_lose_no_message() {
    const COUNT: u32 = 400;
    let (a, b) = pair(&[]);
    let sender = tokio::spawn(async move {
        for i in 0..COUNT {
            let mut data = pattern(3000, i as u8);
            data[..4].copy_from_slice(&i.to_be_bytes());
            a.send(a.device().buffer_from(&data).unwrap())
                .await
                .0
                .unwrap();
        }
        a
    });
    let (mut next, mut given_up, mut attempt) = (0, 0_u64, 0_u64);
    with_timeout(async {
        while next < COUNT {
            attempt += 1;
            let receiving = b.recv(b.device().buffer(4096).unwrap());
            // From none to more than a message takes.
            let polls = attempt * 7 % 60;
            let patience = async {
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
            };
            let end = tokio::select! {
                biased;
                () = patience, if attempt % 3 > 0 => None,
                () = tokio::task::yield_now(), if attempt % 3 == 0 => None,
                end = receiving => Some(end),
            };
            let Some((received, buf)) = end else {
                given_up += 1;
                // Every fourth one is awaited to the end, so that the test ends.
                if given_up % 4 == 0 {
                    let (received, buf) = b.recv(b.device().buffer(4096).unwrap()).await;
                    received.unwrap();
                    check(&buf, next);
                    next += 1;
                }
                continue;
            };
            received.unwrap();
            check(&buf, next);
            next += 1;
        }
    })
    .await;
    assert!(given_up > 10, "{given_up}");
    drop(with_timeout(sender).await.unwrap());
}

fn check(buf: &[u8], number: u32) {
    let mut expected = pattern(3000, number as u8);
    expected[..4].copy_from_slice(&number.to_be_bytes());
    assert!(buf == expected, "message {number}");
}

/// Buffers of dropped writes are kept until the writes are done: the peer receives what was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_write_futures_write_their_bytes() {
    let (a, b) = pair(&[("crc", "off")]);
    let memory = b.device().memory(64 << 16, Access::ALL).unwrap();
    for round in 0..64_u64 {
        let data = pattern(1 << 16, round as u8);
        let there = memory.remote().slice(round << 16, 1 << 16).unwrap();
        let writing = a.write(a.device().buffer_from(&data).unwrap(), &there);
        let _ = tokio::time::timeout(Duration::from_micros(round), writing).await;
        // Reuses freed memory, if it was freed too early.
        let mut other = a.device().buffer(1 << 16).unwrap();
        other.set_len(1 << 16).unwrap();
        other.fill(0xee);
    }
    let word = memory.remote_value::<u64>(0).unwrap();
    with_timeout(a.read_value(&word)).await.unwrap();
    a.close();
    let mut got = vec![0; 1 << 16];
    for round in 0..64 {
        memory.read_at(round << 16, &mut got).unwrap();
        assert!(got == pattern(1 << 16, round as u8), "round {round}");
    }
}

#[tokio::test]
async fn connect_and_accept_futures_can_be_dropped() {
    let device = device(&[]);
    let listener = device.listen("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    for round in 0..20 {
        let patience = Duration::from_micros(round * 20);
        let _ = tokio::time::timeout(patience, listener.accept()).await;
        let connecting = device.connect(to);
        let _ = tokio::time::timeout(patience, connecting).await;
    }
    let fresh = device.listen("127.0.0.1:0").unwrap();
    let to = fresh.local_addr().unwrap();
    let (a, b) = with_timeout(async { tokio::join!(device.connect(to), fresh.accept()) }).await;
    let (a, b) = (a.unwrap(), b.unwrap());
    let receiving = b.recv(device.buffer(8).unwrap());
    a.send(device.buffer_from(b"works").unwrap())
        .await
        .0
        .unwrap();
    assert_eq!(&receiving.await.1[..], b"works");
}

/// A waker is enough; no runtime is needed.
#[test]
fn futures_work_without_a_runtime() {
    let (a, b) = pair(&[]);
    let mut receiving = pin!(b.recv(b.device().buffer(8).unwrap()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(receiving.as_mut().poll(&mut context).is_pending());
    a.send(a.device().buffer_from(b"hello").unwrap())
        .wait()
        .0
        .unwrap();
    match receiving.as_mut().poll(&mut context) {
        Poll::Ready((received, buf)) => {
            received.unwrap();
            assert_eq!(&buf[..], b"hello");
        }
        Poll::Pending => panic!("it is there"),
    }
}
