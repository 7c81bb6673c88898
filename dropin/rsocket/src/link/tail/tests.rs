//! Collected small sends, and everything that posts them: completions, length, other sends, the end of the stream.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use verbena::{Access, Device};

use super::*;
use crate::net::Net;
use crate::{Flags as Wants, Half, Options, Stream};

fn pair_with(options: Options) -> (Stream, Stream) {
    static NET: OnceLock<Arc<Net>> = OnceLock::new();
    let net = NET.get_or_init(|| Net::open(Device::open().unwrap()));
    let options = Options {
        recv_timeout: Some(Duration::from_secs(20)),
        ..options
    };
    let listener = Stream::with(net, options);
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    listener.listen(4).unwrap();
    let client = Stream::with(net, options);
    let server = thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        client.connect(listener.local_addr().unwrap()).unwrap();
        accepting.join().unwrap()
    });
    (client, server)
}

/// Raises the number of requests in flight so that small sends are collected, until it is lowered again.
fn fake_in_flight(link: &Link) {
    link.lock_flow().sends += COALESCE_FROM;
}

fn has_tail(link: &Link) -> bool {
    link.lock_flow().tail.is_some()
}

fn assert_receives(server: &Stream, what: &[u8]) {
    let mut got = vec![0; what.len()];
    assert_eq!(server.recv(&mut got, Wants::WAIT_ALL).unwrap(), what.len());
    assert!(got == what);
}

#[test]
fn lone_send_is_posted_at_once() {
    let (client, server) = pair_with(Options::default());
    for _ in 0..100 {
        client.send(b"question", Wants::default()).unwrap();
        assert!(!has_tail(&client.link().unwrap()));
        assert_receives(&server, b"question");
        server.send(b"answer", Wants::default()).unwrap();
        assert!(!has_tail(&server.link().unwrap()));
        assert_receives(&client, b"answer");
    }
}

#[test]
fn small_sends_are_held_until_completions() {
    let (client, server) = pair_with(Options::default());
    let link = client.link().unwrap();
    fake_in_flight(&link);
    for part in [&b"one "[..], b"two ", b"three"] {
        client.send(part, Wants::default()).unwrap();
        assert!(has_tail(&link));
    }
    // A part that was posted would not be in the tail.
    assert_eq!(
        link.lock_flow().tail.as_ref().map(|tail| tail.len),
        Some(13)
    );
    link.lock_flow().sends -= COALESCE_FROM;
    assert!(has_tail(&link));
    // The adapter's notification.
    link.on_completion();
    assert!(!has_tail(&link));
    assert_receives(&server, b"one two three");
}

#[test]
fn flow_holder_posts_tail_on_release() {
    let (client, server) = pair_with(Options::default());
    let link = client.link().unwrap();
    fake_in_flight(&link);
    client.send(b"small", Wants::default()).unwrap();
    let mut flow = link.lock_flow();
    flow.sends -= COALESCE_FROM;
    link.on_completion();
    assert!(flow.tail.is_some(), "it must not wait for this thread");
    drop(flow);
    assert!(!has_tail(&link));
    assert_receives(&server, b"small");
}

#[test]
fn other_posts_flush_the_tail() {
    let large = vec![7; MAX_COALESCED + 1];
    let long = vec![8; MAX_COALESCED];
    type Way<'a> = (&'a str, &'a dyn Fn(&Stream));
    let ways: [Way<'_>; 4] = [
        ("a large send", &|client| {
            client.send(&large, Wants::default()).unwrap();
        }),
        ("its length", &|client| {
            for _ in 0..MAX_TAIL / MAX_COALESCED {
                client.send(&long, Wants::default()).unwrap();
            }
        }),
        ("the end", &|client| client.shutdown(Half::Write).unwrap()),
        ("another word", &|client| {
            let rights = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let memory = client.pd().unwrap().memory(64, rights);
            client.map(1, memory.unwrap(), 0).unwrap();
        }),
    ];
    for (what, way) in ways {
        let (client, server) = pair_with(Options {
            maps: 1,
            ..Options::default()
        });
        let link = client.link().unwrap();
        fake_in_flight(&link);
        client.send(b"small", Wants::default()).unwrap();
        assert!(has_tail(&link), "{what}");
        way(&client);
        assert!(!has_tail(&link), "{what}");
        assert_receives(&server, b"small");
        link.lock_flow().sends -= COALESCE_FROM;
    }
}

#[test]
fn close_posts_the_tail() {
    let (client, server) = pair_with(Options::default());
    let link = client.link().unwrap();
    fake_in_flight(&link);
    client.send(b"last", Wants::default()).unwrap();
    link.lock_flow().sends -= COALESCE_FROM;
    drop(link);
    client.close();
    assert_receives(&server, b"last");
    assert_eq!(server.recv(&mut [0; 4], Wants::default()).unwrap(), 0);
}

#[test]
fn sends_of_all_sizes_arrive_in_order() {
    let tight = Options {
        recv_buffer: 2500,
        send_buffer: 3100,
        sends: 5,
        messages: 4,
        ..Options::default()
    };
    for options in [Options::default(), tight] {
        let (client, server) = pair_with(options);
        let lens = [1, 64, 7, 300, 1, 1, 2048, 2049, 13, 5000, 2, 1000];
        let lens: Vec<usize> = lens.into_iter().cycle().take(6000).collect();
        let all: usize = lens.iter().sum();
        let sent: Vec<u8> = (0..all).map(|at| (at % 251) as u8).collect();
        thread::scope(|scope| {
            let reading = scope.spawn(|| assert_receives(&server, &sent));
            let mut at = 0;
            for len in lens {
                let part = &sent[at..at + len];
                assert_eq!(client.send(part, Wants::default()).unwrap(), len);
                at += len;
            }
            // Without another call of the sender the tail is posted.
            reading.join().unwrap();
        });
    }
}
