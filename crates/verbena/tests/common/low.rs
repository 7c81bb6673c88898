//! Queue pairs of the low layer, connected over loopback, and their completions.
//! The helpers wait as long as necessary and panic on failure.

#![allow(dead_code, reason = "each test program uses a part of it")]

use verbena::Listener;
use verbena::low::{Cq, Data, Flags, Qp, SendOp, SendWr, Wc};

pub(crate) const SEND: SendOp = SendOp::Send {
    invalidate: None,
    immediate: None,
};

/// A signalled request.
pub(crate) fn wr<'a>(id: u64, op: SendOp, data: Data<'a>) -> SendWr<'a> {
    SendWr {
        id,
        op,
        flags: Flags::SIGNALED,
        data,
    }
}

/// Connects one queue pair to the other.
pub(crate) fn connect_qps(listener: &Listener, a: &Qp, b: &Qp) {
    let joining = a.connect(listener.local_addr().unwrap(), b"ask").unwrap();
    let request = listener.next().wait().unwrap();
    assert_eq!(request.private_data(), b"ask");
    request.accept_on(b, b"yes").unwrap().wait().unwrap();
    assert_eq!(joining.wait().unwrap(), b"yes");
}

/// Waits for `count` completions.
pub(crate) fn complete(cq: &Cq, count: usize) -> Vec<Wc> {
    let (mut all, mut some) = (Vec::new(), [Wc::default(); 16]);
    while all.len() < count {
        let n = cq.wait(&mut some).unwrap();
        all.extend_from_slice(&some[..n]);
    }
    all
}

#[allow(unused_imports, reason = "each test program uses a part of it")]
pub(crate) use verbena_testing::wait_until;
