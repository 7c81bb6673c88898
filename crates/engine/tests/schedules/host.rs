//! An engine with a completion queue, a channel and memory, and the random numbers of a program.
//! Settings are random within what programs may choose.

use core::net::SocketAddr;
use std::collections::BTreeSet;
use std::sync::Arc;

use verbena_engine::sys::Channel;
use verbena_engine::{CompletionQueue, Config, Engine, QueuePair, QueuePairOptions};
use verbena_mem::{Access, Buffer, Pd};
use verbena_nic::qp::Limits;
use verbena_nic::wr::RemoteAddr;
use verbena_nic::{Event, Personality, Sge};
use verbena_sync::locks::Mutex;
use verbena_wire::To;

use crate::c_api::CApi;

/// Requests of each kind that a queue pair holds.
pub(crate) const DEPTH: usize = 16;
/// Bytes of each registered region.
pub(crate) const MEMORY: usize = 32 << 10;

/// Random numbers of the program, apart from those of the system and the schedule.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let mixed = self.0 ^ (self.0 >> 29);
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Another generator, for another thread.
    pub(crate) fn fork(&mut self) -> Random {
        Random::new(self.next())
    }
}

/// An engine with what a queue pair needs.
pub(crate) struct Host {
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: Arc<Channel>,
    pub(crate) memory: Buffer,
    pub(crate) pd: Pd,
    /// Queue pairs of the engine whose connection has ended, as its events say.
    disconnected: Arc<Mutex<BTreeSet<u32>>>,
    /// Queue pairs that the program uses through the C API.
    pub(crate) c_api: Arc<CApi>,
    pub(crate) engine: Arc<Engine>,
}

impl Host {
    pub(crate) fn new(random: &mut Random) -> Host {
        Host::of(Engine::new(config(random)).unwrap())
    }

    /// The first host of an engine.
    pub(crate) fn of(engine: Engine) -> Host {
        let disconnected = Arc::new(Mutex::new(BTreeSet::new()));
        let flag = disconnected.clone();
        engine.set_event_hook(move |event| {
            if std::env::var_os("SCHEDULES_TRACE").is_some() {
                println!("event {event:?}");
            }
            if let Event::Disconnected { qp } = event {
                flag.lock().insert(qp);
            }
            false
        });
        Host::make(Arc::new(engine), disconnected)
    }

    /// Another host on the same engine.
    pub(crate) fn beside(&self) -> Host {
        Host::make(self.engine.clone(), self.disconnected.clone())
    }

    fn make(engine: Arc<Engine>, disconnected: Arc<Mutex<BTreeSet<u32>>>) -> Host {
        let pd = engine.function().allocate_pd().unwrap();
        let cq = engine.create_cq(8 * DEPTH).unwrap();
        let channel = Arc::new(Channel::new().unwrap());
        cq.set_notify(Some(channel.clone()));
        let memory = engine.function().register_buffer(pd, MEMORY, Access::ALL);
        Host {
            cq,
            channel,
            memory: memory.unwrap(),
            pd,
            disconnected,
            c_api: CApi::new(),
            engine,
        }
    }

    /// A queue pair; one that can be connected by number if `oob`.
    pub(crate) fn queue_pair(&self, personality: Personality, oob: bool) -> QueuePair {
        let options = QueuePairOptions {
            limits: Limits {
                sends: DEPTH,
                receives: DEPTH,
                max_sge: 4,
                inline: 64,
            },
            personality: Some(personality),
            oob,
            ..QueuePairOptions::new(self.pd)
        };
        let qp = self.engine.create_qp(&self.cq, &self.cq, options).unwrap();
        // The number may be that of a queue pair that was destroyed.
        self.disconnected.lock().remove(&qp.number());
        qp
    }

    /// Whether the connection of this queue pair has ended.
    pub(crate) fn is_disconnected(&self, qp: &QueuePair) -> bool {
        self.disconnected.lock().contains(&qp.number())
    }

    pub(crate) fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.memory.at() + offset as u64,
            len: len as u32,
            stag: self.memory.stag(),
        }
    }

    pub(crate) fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory.stag(),
            to: To::new(self.memory.at() + offset as u64),
        }
    }
}

fn config(random: &mut Random) -> Config {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    let shards = 1 + random.below(2);
    let lend_polls = 1 + random.below(8);
    for (key, value) in [
        ("monitor", "off".to_owned()),
        ("shards", shards.to_string()),
        ("lend_polls", lend_polls.to_string()),
    ] {
        config.set(key, &value).unwrap();
    }
    config
}

pub(crate) fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}
