//! One connected side with memory, and an exchange of every kind of request whose effects are checked.
//! It makes no assumption about what carries the connection.

use verbena::low::{Cq, Data, Qp, RecvWr, SendOp};
use verbena::{Device, Memory, Status};

use super::low::{SEND, complete, wr};
use super::pattern;

/// The bytes of each message.
pub(crate) const LEN: usize = 100_000;

pub(crate) struct Side {
    pub(crate) qp: Qp,
    pub(crate) cq: Cq,
    /// Twice [`LEN`] and a word.
    pub(crate) memory: Memory,
    pub(crate) device: Device,
}

/// A Send, a Write, a Read and an atomic, whose effects are checked.
pub(crate) fn exchange(a: &Side, b: &Side, round: u8) {
    let data = pattern(LEN, round);
    a.memory.write_at(0, &data).unwrap();
    b.memory
        .write_at(2 * LEN, &u64::from(round).to_ne_bytes())
        .unwrap();
    let scatter = [b.memory.sge(0, LEN).unwrap()];
    b.qp.post_recv(&[RecvWr {
        id: 9,
        scatter: &scatter,
    }])
    .unwrap();
    let remote = b.memory.remote_addr(LEN).unwrap();
    let word = b.memory.remote_addr(2 * LEN).unwrap();
    let write = SendOp::Write {
        remote,
        immediate: None,
    };
    let read = SendOp::Read {
        remote,
        local_invalidate: None,
    };
    let add = SendOp::FetchAdd {
        remote: word,
        add: 1,
        mask: 0,
    };
    let whole = [a.memory.sge(0, LEN).unwrap()];
    let sink = [a.memory.sge(LEN, LEN).unwrap()];
    let old = [a.memory.sge(2 * LEN, 8).unwrap()];
    a.qp.post_send(&[
        wr(1, SEND, Data::Gather(&whole)),
        wr(2, write, Data::Gather(&whole)),
        wr(3, read, Data::Gather(&sink)),
        wr(4, add, Data::Gather(&old)),
    ])
    .unwrap();
    let done = complete(&a.cq, 4);
    let ids: Vec<_> = done.iter().map(|wc| (wc.id, wc.status)).collect();
    let all: Vec<_> = (1..5).map(|id| (id, Status::Success)).collect();
    assert_eq!(ids, all);
    let came = complete(&b.cq, 1)[0];
    assert_eq!((came.id, came.len as usize), (9, LEN));
    let read = |side: &Side, at| {
        let mut bytes = vec![0; LEN];
        side.memory.read_at(at, &mut bytes).unwrap();
        bytes
    };
    assert!(read(b, 0) == data, "sent");
    assert!(read(b, LEN) == data, "written");
    assert!(read(a, LEN) == data, "read back");
    let mut before = [0; 8];
    a.memory.read_at(2 * LEN, &mut before).unwrap();
    assert_eq!(u64::from_ne_bytes(before), round.into());
}
