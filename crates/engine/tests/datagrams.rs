//! Datagram queue pairs over real sockets: both families, both ways of waiting, every way to be dropped.

mod common;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use common::{LIMITS, PATIENCE, alone, complete, config, pattern};
use verbena_engine::{CompletionQueue, Engine, UdOptions, UdPair};
use verbena_mem::{Access, Buffer, Pd};
use verbena_nic::ud::{Destination, GRH_LEN, MAX_DATAGRAM, UdSendWr};
use verbena_nic::wr::Data;
use verbena_nic::{Flags, QpState, ReceiveWr, Sge, Status, WcOp};

const HERE: &str = "127.0.0.1";
const KEY: u32 = 0x1357_9bdf;

struct Side {
    ud: UdPair,
    cq: CompletionQueue,
    memory: Buffer,
    pd: Pd,
    engine: Engine,
}

impl Side {
    fn new(device: &str) -> Side {
        let engine = Engine::new(config(&[("device", device)])).unwrap();
        let pd = engine.function().allocate_pd().unwrap();
        let cq = engine.create_cq(4096).unwrap();
        let memory = engine
            .function()
            .register_buffer(pd, 4 << 20, Access::ALL)
            .unwrap();
        let ud = make(&engine, &cq, pd);
        ready(&ud);
        Side {
            ud,
            cq,
            memory,
            pd,
            engine,
        }
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            at: self.memory.at() + offset as u64,
            len: len as u32,
            stag: self.memory.stag(),
        }
    }

    fn address(&self) -> IpAddr {
        self.engine.addresses().unwrap()[0]
    }

    fn to(&self, from: &Side) -> Destination {
        Destination {
            address: self.address(),
            source: from.address(),
            number: self.ud.number(),
            qkey: KEY,
        }
    }

    fn receive(&self, id: u64, offset: usize, len: usize) {
        let scatter = [self.sge(offset, len)];
        let scatter = &scatter;
        self.ud.post_receive(&ReceiveWr { id, scatter }).unwrap();
    }

    fn send(&self, id: u64, to: Destination, sges: &[Sge]) {
        self.ud.post_sends(&[wr(id, to, sges)]).unwrap();
    }
}

fn wr<'a>(id: u64, to: Destination, sges: &'a [Sge]) -> UdSendWr<'a> {
    UdSendWr {
        id,
        immediate: None,
        flags: Flags::SIGNALED,
        data: Data::Gather(sges),
        to,
    }
}

fn make(engine: &Engine, cq: &CompletionQueue, pd: Pd) -> UdPair {
    let options = UdOptions {
        limits: LIMITS,
        ..UdOptions::new(pd)
    };
    engine.create_ud(cq, cq, options).unwrap()
}

fn ready(ud: &UdPair) {
    ud.set_qkey(KEY);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        assert!(ud.modify(state));
    }
}

/// A datagram each way, every byte checked.
fn talk(a: &Side, b: &Side, len: usize, salt: u8) {
    for (from, to) in [(a, b), (b, a)] {
        let words = pattern(len, salt.into());
        to.receive(7, 8192, GRH_LEN + len);
        assert!(from.memory.write(0, &words));
        from.send(1, to.to(from), &[from.sge(0, len)]);
        let came = complete(&to.cq, 1)[0];
        assert_eq!(
            (came.status, came.op, came.id),
            (Status::Success, WcOp::Receive, 7)
        );
        assert_eq!(came.len as usize, GRH_LEN + len);
        assert_eq!(came.src_qp, from.ud.number().get());
        assert_eq!(came.qpn, to.ud.number().get());
        assert!(came.grh);
        let sent = complete(&from.cq, 1)[0];
        assert_eq!(
            (sent.status, sent.id, sent.op),
            (Status::Success, 1, WcOp::Send)
        );
        assert!(to.memory.read(8192 + GRH_LEN, len) == words);
    }
}

#[test]
fn ten_thousand_datagrams_back_and_forth() {
    let _alone = alone();
    let (a, b) = (Side::new(HERE), Side::new(HERE));
    for round in 0..5000 {
        talk(&a, &b, 1 + round % 64, round as u8);
    }
    talk(&a, &b, MAX_DATAGRAM, 1);
    assert_eq!(a.ud.view().counters.received, 5001);
    assert_eq!(b.ud.view().counters.sent, 5001);
    let grh = b.memory.read(8192, GRH_LEN);
    assert_eq!((grh[20], grh[29]), (0x45, 17));
    assert_eq!(grh[32..], [127, 0, 0, 1, 127, 0, 0, 1]);
}

#[test]
fn addresses_of_the_other_family() {
    let _alone = alone();
    let (a, b) = (Side::new("::1"), Side::new("::1"));
    for round in 0..200 {
        talk(&a, &b, round * 20, round as u8);
    }
    let grh = b.memory.read(8192, GRH_LEN);
    assert_eq!((grh[0], grh[6]), (0x60, 17));
    assert_eq!(grh[23], 1);
}

#[test]
fn a_queue_pair_that_sends_to_itself() {
    let _alone = alone();
    let a = Side::new(HERE);
    a.receive(1, 4096, 100);
    assert!(a.memory.write(0, b"to myself"));
    a.send(2, a.to(&a), &[a.sge(0, 9)]);
    let done = complete(&a.cq, 2);
    assert!(done.iter().all(|wc| wc.status == Status::Success));
    assert_eq!(a.memory.read(4096 + GRH_LEN, 9), b"to myself");
}
