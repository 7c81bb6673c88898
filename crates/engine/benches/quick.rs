//! A quick look at latency and bandwidth over loopback, next to plain TCP in the same run; `verbena bench` will measure properly.

#![allow(missing_docs, reason = "a program, not a library")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use common::{SEND, Side, blank, pair};
use verbena_nic::wr::Data;
use verbena_nic::{Flags, SendOp, SendWr};

fn poll_one(side: &Side) {
    let mut wc = [blank()];
    while side.cq.poll(&mut wc) == 0 {}
    assert_eq!(wc[0].status, verbena_nic::Status::Success);
}

fn quiet(side: &Side, op: SendOp, len: usize) {
    let sges = [side.sge(0, len)];
    let wr = SendWr {
        id: 0,
        op,
        flags: Flags::NONE,
        data: Data::Gather(&sges),
    };
    while side.qp.post_send(&wr).is_err() {
        std::hint::spin_loop();
    }
}

fn latency(settings: &[(&str, &str)], len: usize, count: usize) -> f64 {
    let (a, b) = pair(settings);
    for side in [&a, &b] {
        for id in 0..256 {
            side.receive(id, &[side.sge(0, 64)]);
        }
    }
    let mut took = 0.0;
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            for _ in 0..count {
                poll_one(&b);
                b.receive(0, &[b.sge(0, 64)]);
                quiet(&b, SEND, len);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        });
        let start = Instant::now();
        for _ in 0..count {
            quiet(&a, SEND, len);
            poll_one(&a);
            a.receive(0, &[a.sge(0, 64)]);
        }
        took = start.elapsed().as_secs_f64();
        server.join().expect("it ends");
    });
    took / count as f64 / 2.0 * 1e6
}

fn raw_latency(len: usize, count: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("it came");
        socket.set_nodelay(true).expect("possible");
        socket.set_nonblocking(true).expect("possible");
        let mut bytes = vec![0; len];
        for _ in 0..count {
            read_busy(&mut socket, &mut bytes);
            socket.write_all(&bytes).expect("room");
        }
    });
    let mut socket = TcpStream::connect(to).expect("it listens");
    socket.set_nodelay(true).expect("possible");
    socket.set_nonblocking(true).expect("possible");
    let mut bytes = vec![0; len];
    let start = Instant::now();
    for _ in 0..count {
        socket.write_all(&bytes).expect("room");
        read_busy(&mut socket, &mut bytes);
    }
    let took = start.elapsed().as_secs_f64();
    server.join().expect("it ends");
    took / count as f64 / 2.0 * 1e6
}

fn read_busy(socket: &mut TcpStream, bytes: &mut [u8]) {
    let mut at = 0;
    while at < bytes.len() {
        match socket.read(&mut bytes[at..]) {
            Ok(n) => at += n,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => panic!("{e}"),
        }
    }
}

fn bandwidth(settings: &[(&str, &str)], len: usize, total: usize) -> f64 {
    let (a, b) = pair(settings);
    let write = SendOp::Write {
        remote: b.remote(0),
        immediate: None,
    };
    let count = total / len;
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    let mut wc = [blank(); 16];
    while done < count {
        while posted < count && posted - done < 32 {
            a.post(posted as u64, write, &[a.sge(0, len)]);
            posted += 1;
        }
        done += a.cq.poll(&mut wc);
    }
    total as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn raw_bandwidth(len: usize, total: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("it came");
        let mut bytes = vec![0; len];
        let mut left = total;
        while left > 0 {
            left -= socket.read(&mut bytes).expect("bytes");
        }
        socket.write_all(b"!").expect("room");
    });
    let mut socket = TcpStream::connect(to).expect("it listens");
    let bytes = vec![0; len];
    let start = Instant::now();
    for _ in 0..total / len {
        socket.write_all(&bytes).expect("room");
    }
    socket.read_exact(&mut [0]).expect("the end");
    let took = start.elapsed().as_secs_f64();
    server.join().expect("it ends");
    total as f64 / took / 1e9
}

fn rate(count: usize) -> f64 {
    let (a, b) = pair(&[("crc", "off")]);
    let write = SendOp::Write {
        remote: b.remote(0),
        immediate: None,
    };
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    let mut wc = [blank(); 64];
    while done < count {
        let sges = [a.sge(0, 64)];
        let wr = SendWr {
            id: 0,
            op: write,
            flags: Flags::SIGNALED,
            data: Data::Gather(&sges),
        };
        let wrs = [wr; 16];
        if posted < count && posted - done < 400 {
            a.qp.post_sends(&wrs).expect("room");
            posted += 16;
        }
        done += a.cq.poll(&mut wc);
    }
    count as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let case = std::env::args().find(|arg| !arg.starts_with('-') && !arg.contains('/'));
    match case.as_deref() {
        Some("latency") => println!("{:.2} µs", latency(&[("crc", "off")], 8, 20_000)),
        Some("write") => println!("{:.2} GB/s", bandwidth(&[("crc", "off")], 1 << 20, 4 << 30)),
        Some("write64k") => println!(
            "{:.2} GB/s",
            bandwidth(&[("crc", "off")], 64 << 10, 4 << 30)
        ),
        Some("rate") => println!("{:.2} M/s", rate(400_000)),
        _ => all(),
    }
}

fn all() {
    for _ in 0..3 {
        let (raw, crc_off, crc_on) = (
            raw_latency(8, 20_000),
            latency(&[("crc", "off")], 8, 20_000),
            latency(&[("crc", "on")], 8, 20_000),
        );
        println!(
            "8 B half round trip: raw {raw:.2} µs, ours {crc_off:.2} ({:.2}x), with CRC {crc_on:.2}",
            crc_off / raw
        );
        for len in [64 << 10, 1 << 20] {
            let raw = raw_bandwidth(len, 2 << 30);
            let off = bandwidth(&[("crc", "off")], len, 2 << 30);
            let on = bandwidth(&[("crc", "on")], len, 2 << 30);
            println!(
                "{len} B: raw {raw:.2} GB/s, ours {off:.2} ({:.2}), with CRC {on:.2} ({:.2})",
                off / raw,
                on / raw
            );
        }
        println!("64 B writes: {:.2} M/s", rate(400_000));
    }
}
