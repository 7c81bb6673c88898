//! Instructions of the adapter's operations, to be counted by callgrind; docs/performance.md has the commands and the numbers.
//! The program runs one fixed scenario, `instructions CASE SIZE N`, so that the difference of two N's is N's cost alone. It measures
//! nothing itself.

#![allow(missing_docs, reason = "a program, not a library")]

#[allow(dead_code, reason = "shared with the other benchmark")]
mod common;

use std::hint::black_box;

use common::{ConnectedPair, Host};
use verbena_mem::{Access, MemAccess};
use verbena_nic::SendOp;
use verbena_nic::wc::Wc;
use verbena_wire::{Stag, To};

const USAGE: &str = "usage: instructions CASE SIZE N
  send, write, read           one request of SIZE bytes, from post to completion, both sides, no CRC
  send-crc, write-crc, read-crc   the same with CRC
  roce-send, roce-write, roce-read   the same over RoCEv2, no ICRC
  resolve                     a grant and its end, among SIZE regions
  register                    a registration and its end, among SIZE regions
  create                      a queue pair and its end, among SIZE queue pairs
  poll                        a poll of an empty completion queue
  complete                    SIZE completions pushed, then polled sixteen at a time";

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut next = || args.next().unwrap_or_default();
    let (case, size, count) = (next(), next(), next());
    let (Ok(size), Ok(count)) = (size.parse::<u32>(), count.parse::<usize>()) else {
        println!("{USAGE}");
        return;
    };
    match case.trim_end_matches("-crc") {
        "send" | "write" | "read" | "roce-send" | "roce-write" | "roce-read" => {
            request(&case, size, count);
        }
        "resolve" => resolve(size, count),
        "register" => register(size, count),
        "create" => create(size, count),
        "poll" => poll(count),
        "complete" => complete(size, count),
        _ => println!("{USAGE}"),
    }
}

fn request(case: &str, len: u32, count: usize) {
    let (kind, crc) = match case.strip_suffix("-crc") {
        Some(kind) => (kind, true),
        None => (case, false),
    };
    let (kind, mut joined) = match kind.strip_prefix("roce-") {
        Some(kind) => (kind, ConnectedPair::over_roce()),
        None => (kind, ConnectedPair::new(crc)),
    };
    let remote = joined.remote();
    let op = match kind {
        "write" => SendOp::Write {
            remote,
            immediate: None,
        },
        "read" => SendOp::Read {
            remote,
            local_invalidate: None,
        },
        _ => SendOp::Send {
            invalidate: None,
            immediate: None,
        },
    };
    for _ in 0..count {
        joined.run_once(black_box(op), len);
    }
}

/// A host with so many regions, and the STags of them all.
fn with_regions(size: u32) -> (Host, Vec<Stag>, verbena_mem::Buffer) {
    let host = Host::new();
    let buffer = host.function.register_buffer(host.pd, 4096, Access::ALL);
    let buffer = buffer.expect("memory is there");
    let stags = (0..size).map(|_| share(&host, buffer.stag())).collect();
    (host, stags, buffer)
}

fn share(host: &Host, of: Stag) -> Stag {
    let shared = host
        .function
        .register_shared(of, To::new(0), host.pd, Access::REMOTE_READ);
    shared.expect("the table has room")
}

fn resolve(size: u32, count: usize) {
    let (host, stags, _buffer) = with_regions(size);
    for stag in stags.iter().cycle().take(count) {
        let reach = MemAccess {
            stag: *stag,
            at: 0,
            len: 64,
            pd: host.pd,
            qp: 2,
            needs: Access::REMOTE_READ,
        };
        let grant = host.function.tpt().gather_remote(black_box(&reach));
        assert!(grant.is_ok());
    }
}

fn register(size: u32, count: usize) {
    let (host, _stags, buffer) = with_regions(size);
    for _ in 0..count {
        let stag = share(&host, black_box(buffer.stag()));
        host.function.deregister(stag).expect("it is not in use");
    }
}

fn create(size: u32, count: usize) {
    let mut host = Host::new();
    for _ in 0..size {
        host.qp();
    }
    for _ in 0..count {
        let number = host.qp().number();
        let last = host.function.destroy_qp(number, &mut host.out);
        assert!(last.expect("it is there").is_empty());
    }
}

// Apart from `main`, whose use of registers would change the loop.
#[inline(never)]
fn poll(count: usize) {
    let host = Host::new();
    let mut wc = [Wc::default(); 16];
    for _ in 0..count {
        assert_eq!(black_box(&host.cq).poll(&mut wc), 0);
    }
}

fn complete(size: u32, count: usize) {
    let mut host = Host::new();
    let mut wc = [Wc::default(); 16];
    for _ in 0..count {
        for _ in 0..size {
            assert!(host.cq.push(black_box(Wc::default()), &mut host.out));
        }
        while black_box(&host.cq).poll(&mut wc) > 0 {}
    }
}
