//! A unit whose carrier fails to accept: the place of the host is free for the next one at once.

use std::time::{Duration, Instant};

use verbena_nic::Wc;
use verbena_nic::wr::{RemoteAddr, Sge};
use verbena_split::carrier::address::Address;
use verbena_split::carrier::{
    Carrier, CarrierError, CarrierEvent, CarrierFd, Memory, MemoryAccess, Pair, PairOptions,
    Result, Ticket, open,
};
use verbena_split::hello::Hello;
use verbena_split::lane::Lane;
use verbena_split::link::{Link, LinkOptions};
use verbena_split::stop::Stop;
use verbena_split::unit::{LanPort, Unit, UnitOptions};
use verbena_split::{Arrangement, Journal};

use crate::space::{Netns, privileged};

/// A carrier that fails to accept the first request.
#[derive(Debug)]
struct FailingCarrier {
    inner: Box<dyn Carrier>,
    failed: bool,
}

impl Carrier for FailingCarrier {
    fn accept(&mut self, ticket: Ticket, pair: Pair, private: &[u8]) -> Result<()> {
        if !core::mem::replace(&mut self.failed, true) {
            let why = "clumsy".to_owned();
            return Err(CarrierError::Post { pair, why });
        }
        self.inner.accept(ticket, pair, private)
    }
    fn local_addr(&self) -> String {
        self.inner.local_addr()
    }
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn is_lossy(&self) -> bool {
        self.inner.is_lossy()
    }
    fn new_protection_domain(&mut self) -> Result<()> {
        self.inner.new_protection_domain()
    }
    fn register_memory(&mut self, len: usize, reach: MemoryAccess) -> Result<Box<dyn Memory>> {
        self.inner.register_memory(len, reach)
    }
    fn create_pair(&mut self, options: PairOptions) -> Result<Pair> {
        self.inner.create_pair(options)
    }
    fn connect(&mut self, pair: Pair, private: &[u8]) -> Result<()> {
        self.inner.connect(pair, private)
    }
    fn reject(&mut self, ticket: Ticket, private: &[u8]) {
        self.inner.reject(ticket, private);
    }
    fn destroy(&mut self, pair: Pair) {
        self.inner.destroy(pair);
    }
    fn post_receive(&mut self, pair: Pair, id: u64, piece: Option<Sge>) -> Result<()> {
        self.inner.post_receive(pair, id, piece)
    }
    fn post_send(&mut self, pair: Pair, id: u64, piece: Sge) -> Result<()> {
        self.inner.post_send(pair, id, piece)
    }
    fn post_write(
        &mut self,
        pair: Pair,
        id: u64,
        piece: Sge,
        to: RemoteAddr,
        immediate: Option<u32>,
    ) -> Result<()> {
        self.inner.post_write(pair, id, piece, to, immediate)
    }
    fn turn(&mut self, now: Instant, done: &mut Vec<Wc>) -> Result<()> {
        self.inner.turn(now, done)
    }
    fn next_event(&mut self) -> Option<CarrierEvent> {
        self.inner.next_event()
    }
    fn deadline(&self) -> Option<Instant> {
        self.inner.deadline()
    }
    fn wait_fds<'a>(&'a self, on: &mut Vec<CarrierFd<'a>>) {
        self.inner.wait_fds(on);
    }
    fn prepare_sleep(&mut self) -> bool {
        self.inner.prepare_sleep()
    }
}

/// Dials; returns whether the unit accepts.
fn dial(unit: &Address, service: u64) -> bool {
    let mut carrier = open::dial(unit, None).unwrap();
    let options = LinkOptions::new(Arrangement::Single, 8, 2048);
    let link = Link::new(&mut *carrier, options, Instant::now()).unwrap();
    let hello = Hello {
        service,
        arrangement: Arrangement::Single,
        channel: 0,
        lane: Lane::ONLY,
        kinds: None,
        data_pair: None,
        name: "next".to_owned(),
    };
    let pair = link.pair(0).unwrap();
    carrier.connect(pair, &hello.to_bytes()).unwrap();
    let start = Instant::now();
    loop {
        carrier.turn(Instant::now(), &mut Vec::new()).unwrap();
        match carrier.next_event() {
            Some(CarrierEvent::Connected { .. }) => return true,
            Some(CarrierEvent::Refused { .. }) => return false,
            Some(news) => panic!("{news:?}"),
            None => {}
        }
        assert!(start.elapsed() < Duration::from_secs(20), "never");
    }
}

#[test]
fn failed_accept_frees_the_place() {
    privileged("refused_accept::failed_accept_frees_the_place", || {
        let at: Address = "udp://127.0.0.1".parse().unwrap();
        Netns::new().run(|| {
            let stop = Stop::new().unwrap();
            let unit = || {
                let lan = LanPort::tap_named(&format!("ref{}", std::process::id()), 1)
                    .unwrap()
                    .remove(0);
                let inner = open::listen(&at, None).unwrap();
                let carrier = FailingCarrier {
                    inner,
                    failed: false,
                };
                let options = UnitOptions {
                    hosts: 1,
                    ..UnitOptions::default()
                };
                let carriers: Vec<Box<dyn Carrier>> = vec![Box::new(carrier)];
                let mut unit = Unit::new(options, lan, carriers, Journal::silent()).unwrap();
                unit.run(&stop).unwrap();
            };
            std::thread::scope(|scope| {
                scope.spawn(unit);
                let event = std::panic::catch_unwind(|| {
                    assert!(!dial(&at, 1));
                    assert!(dial(&at, 2), "the place is still taken");
                });
                stop.request();
                if let Err(panic) = event {
                    std::panic::resume_unwind(panic);
                }
            });
        });
    });
}
