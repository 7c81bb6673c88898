//! Engines with datagram queue pairs, for tests.

use std::net::IpAddr;

use verbena_engine::{CompletionQueue, Engine, UdOptions, UdPair};
use verbena_mem::{Access, Buffer, Pd};
use verbena_nic::ud::{Destination, UdSendWr};
use verbena_nic::wr::Data;
use verbena_nic::{Flags, QpState, ReceiveWr, Sge};

use super::{LIMITS, config};

pub const LOCALHOST: &str = "127.0.0.1";
pub const KEY: u32 = 0x1357_9bdf;

/// One engine with memory and a datagram queue pair that is ready.
pub struct Side {
    pub ud: UdPair,
    pub cq: CompletionQueue,
    pub memory: Buffer,
    pub pd: Pd,
    pub engine: Engine,
}

impl Side {
    pub fn new(device: &str) -> Side {
        Side::with(&[("device", device)])
    }

    pub fn with(settings: &[(&str, &str)]) -> Side {
        let engine = Engine::new(config(settings)).unwrap();
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

    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.memory.at() + offset as u64,
            len: len as u32,
            stag: self.memory.stag(),
        }
    }

    pub fn address(&self) -> IpAddr {
        self.engine.addresses().unwrap()[0]
    }

    pub fn to(&self, from: &Side) -> Destination {
        Destination {
            address: self.address(),
            source: from.address(),
            number: self.ud.number(),
            qkey: KEY,
        }
    }

    pub fn receive(&self, id: u64, offset: usize, len: usize) {
        let scatter = [self.sge(offset, len)];
        let scatter = &scatter;
        self.ud.post_receive(&ReceiveWr { id, scatter }).unwrap();
    }

    pub fn send(&self, id: u64, to: Destination, sges: &[Sge]) {
        self.ud.post_sends(&[wr(id, to, sges)]).unwrap();
    }
}

pub fn wr<'a>(id: u64, to: Destination, sges: &'a [Sge]) -> UdSendWr<'a> {
    UdSendWr {
        id,
        immediate: None,
        flags: Flags::SIGNALED,
        data: Data::Gather(sges),
        to,
    }
}

pub fn make(engine: &Engine, cq: &CompletionQueue, pd: Pd) -> UdPair {
    let options = UdOptions {
        limits: LIMITS,
        ..UdOptions::new(pd)
    };
    engine.create_ud(cq, cq, options).unwrap()
}

pub fn ready(ud: &UdPair) {
    ud.set_qkey(KEY);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        ud.modify(state).unwrap();
    }
}

pub const GROUP: &str = "239.255.77.1";

pub fn to_group(from: &Side, group: IpAddr) -> Destination {
    Destination {
        address: group,
        source: from.address(),
        number: from.ud.number(),
        qkey: KEY,
    }
}
