//! An I/O unit of the split driver, and hosts that attach and leave: drivers with an interface, and hosts without one, some of which
//! disconnect before all their channels are connected or without a shutdown. They are in a network namespace of the test's own.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use verbena_split::carrier::cells::{CellCarrier, CellOptions};
use verbena_split::carrier::iwarp::IwarpCarrier;
use verbena_split::carrier::{Carrier, CarrierEvent};
use verbena_split::hello::{Hello, channels};
use verbena_split::host::{Host, HostOptions, MacChoice};
use verbena_split::lan::{Mac, Offloads, Vnet};
use verbena_split::lane::Lane;
use verbena_split::link::{Link, LinkEvent, LinkOptions};
use verbena_split::service::{ConfigRequest, Terms};
use verbena_split::status::{self, UnitStatus};
use verbena_split::stop::Stop;
use verbena_split::unit::{LanPort, Unit, UnitOptions};
use verbena_split::{Arrangement, Journal};
use verbena_split_wire::push::Status;
use verbena_testing::{wait_for, wait_until};

use crate::forged_request::{LISTENER, OLD_LISTENER, connect};
use crate::{Counts, LIMIT, add, config, is_hostile, mix};

/// A connection that is not set up in time ends its host, which the other tests of this program do not have: on a busy machine a
/// second is not enough.
const SETTINGS: &[(&str, &str)] = &[("startup_timeout", "10s")];
/// The unit's port, for UDP and TCP.
const PORT: u16 = 7471;

pub(crate) struct Split {
    lan: String,
    stop: Stop,
    unit: Option<JoinHandle<()>>,
}

/// A connection request is repeated for 20 s: on a busy machine, the unit may not run for seconds.
fn cell_options() -> CellOptions {
    CellOptions {
        retries: 100,
        ..CellOptions::default()
    }
}

// `config` does not read the environment, whose variables are meant for the test.
fn listen() -> Vec<Box<dyn Carrier>> {
    let at = (Ipv4Addr::LOCALHOST, PORT).into();
    let udp = CellCarrier::udp_listen(at, cell_options()).unwrap();
    let iwarp = IwarpCarrier::listen(at, config(SETTINGS)).unwrap();
    vec![Box::new(udp), Box::new(iwarp)]
}

fn dial(which: u64) -> Box<dyn Carrier> {
    let at = (Ipv4Addr::LOCALHOST, PORT).into();
    if which.is_multiple_of(2) {
        Box::new(CellCarrier::udp_dial(at, cell_options()).unwrap())
    } else {
        Box::new(IwarpCarrier::dial(at, config(SETTINGS)).unwrap())
    }
}

impl Split {
    pub(crate) fn new() -> Split {
        let stop = Stop::new().unwrap();
        let lan = format!("soak{}", std::process::id());
        let wished = stop.clone();
        let port = LanPort::tap_named(&lan, 1).unwrap().remove(0);
        let options = UnitOptions {
            elements: 16,
            // Hosts that left without a word are there until `patience` has passed, which is long: on a busy machine, the thread
            // of an honest host may not run for a second.
            hosts: 1024,
            hosts_per_source: 1024,
            patience: Duration::from_secs(10),
            ..UnitOptions::default()
        };
        let unit = Unit::new(options, port, listen(), Journal::new(note));
        let mut unit = unit.unwrap();
        let unit = thread::spawn(move || unit.run(&wished).expect("no host ends the unit"));
        Split {
            lan,
            stop,
            unit: Some(unit),
        }
    }

    /// Waits until the unit has noticed that all hosts are gone.
    pub(crate) fn settle(&self) {
        let name = status::queues("unit", &self.lan).unwrap().remove(0);
        wait_until("all hosts are gone", || {
            let said: UnitStatus = serde_json::from_str(&status::query(&name).unwrap()).unwrap();
            said.hosts.is_empty()
        });
    }

    /// Attaches a driver with a TAP interface, and shuts it down, repeatedly.
    pub(crate) fn drive(&self, on: &AtomicBool, counts: &Counts, seed: u64) {
        let mut round = seed;
        while on.load(Ordering::Relaxed) {
            round += 1;
            attach(round);
            add(&counts.hosts);
        }
    }

    /// Hosts without an interface.
    pub(crate) fn dial(&self, on: &AtomicBool, counts: &Counts, seed: u64) {
        let mut round = seed << 32;
        while on.load(Ordering::Relaxed) {
            round += 1;
            if is_hostile(round) {
                misbehave(round);
                add(&counts.hostile);
            } else {
                let mut caller = Caller::dial(round);
                caller.exchange(Mac::local(round));
                caller.disconnect();
                add(&counts.hosts);
            }
        }
    }
}

impl Drop for Split {
    fn drop(&mut self) {
        self.stop.request();
        let ended = self.unit.take().map(JoinHandle::join);
        // A panic of this test is reported instead.
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

fn attach(round: u64) {
    let (says, said) = mpsc::channel();
    let options = HostOptions {
        arrangement: Arrangement::ALL[round as usize % 3],
        elements: 16,
        mac: MacChoice::Unit,
        patience: Duration::from_secs(20),
        ..HostOptions::new(&format!("soakh{}", std::process::id()))
    };
    let journal = Journal::new(move |what| drop(says.send(what.to_owned())));
    let mut host = Host::new(options, dial(round), "unit", journal).unwrap();
    let stop = Stop::new().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| host.run(&stop).unwrap());
        let message = said.recv_timeout(LIMIT);
        stop.request();
        let message = message.expect("a unit");
        assert!(message.contains("connected to"), "{message}");
    });
}

fn misbehave(round: u64) {
    let how = mix(round + 1);
    match how % 5 {
        0 => forge_requests(round),
        1 => steal_address(round),
        _ => Caller::dial(round).disconnect_abruptly(how),
    }
}

/// Requests without a cookie, from a source that does not receive.
fn forge_requests(round: u64) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for n in 0..32 {
        let listener = if n % 2 == 0 { LISTENER } else { OLD_LISTENER };
        let request = connect(listener, mix(round + n) as u32);
        socket
            .send_to(&request, (Ipv4Addr::LOCALHOST, PORT))
            .unwrap();
    }
}

/// A host asks for the address of another one.
fn steal_address(round: u64) {
    let (mut owner, mut thief) = (Caller::dial(round), Caller::dial(mix(round)));
    let mac = Mac::local(round);
    owner.exchange(mac);
    thief.initialise();
    assert_eq!(
        thief.request(&ConfigRequest::SetMac(mac)),
        Status::NotAllowed
    );
    thief.disconnect();
    owner.disconnect();
}

/// The last messages of the unit, for failures.
static NOTES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

fn note(message: &str) {
    if let Ok(mut notes) = NOTES.lock() {
        notes.push_back(message.to_owned());
        if notes.len() > 40 {
            notes.pop_front();
        }
    }
}

/// A host without an interface.
struct Caller {
    carrier: Box<dyn Carrier>,
    link: Link,
    channels: u8,
    service: u64,
    arrangement: Arrangement,
    /// It has requested its shutdown, after which the unit closes each connection: one may end before the answer arrives on another.
    shuts_down: bool,
}

impl Caller {
    fn dial(round: u64) -> Caller {
        let arrangement = Arrangement::ALL[mix(round) as usize % 3];
        let mut carrier = dial(mix(round + 1));
        let options = LinkOptions::new(arrangement, 8, 2048);
        let link = Link::new(&mut *carrier, options, Instant::now()).unwrap();
        Caller {
            carrier,
            link,
            channels: channels(arrangement),
            service: mix(round + 2),
            arrangement,
            shuts_down: false,
        }
    }

    fn connect(&mut self, channel: u8) {
        let hello = Hello {
            service: self.service,
            arrangement: self.arrangement,
            channel,
            lane: Lane::ONLY,
            kinds: None,
            data_pair: None,
            name: "soak".to_owned(),
        };
        let pair = self.link.pair(channel).unwrap();
        self.carrier.connect(pair, &hello.to_bytes()).unwrap();
    }

    fn turn(&mut self) {
        let (now, mut done) = (Instant::now(), Vec::new());
        self.carrier.turn(now, &mut done).unwrap();
        for wc in done {
            self.link.handle(&mut *self.carrier, &wc, now).unwrap();
        }
        while let Some(news) = self.carrier.next_event() {
            match news {
                CarrierEvent::Connected { pair, .. } => {
                    self.link.connected(&mut *self.carrier, pair).unwrap();
                }
                CarrierEvent::Ended { .. } if self.shuts_down => {}
                news => panic!("{news:?}; the unit's messages: {:#?}", NOTES.lock()),
            }
        }
        self.link.tick(&mut *self.carrier, now).unwrap();
    }

    fn until<T>(&mut self, what: &str, mut is: impl FnMut(&mut Caller) -> Option<T>) -> T {
        wait_for(what, || {
            self.turn();
            is(self)
        })
    }

    fn request(&mut self, ask: &ConfigRequest) -> Status {
        let (operation, data) = ask.encode();
        let asked = self.link.request(operation, &data).unwrap();
        self.until("an answer", |caller| match caller.link.next_event() {
            Some(LinkEvent::Reply {
                context, status, ..
            }) if context == asked => Some(status),
            _ => None,
        })
    }

    /// Connects all channels, and agrees on terms.
    fn initialise(&mut self) {
        (0..self.channels).for_each(|channel| self.connect(channel));
        self.until("room", |caller| caller.link.has_room().then_some(()));
        let terms = Terms {
            accepts: Offloads::NONE,
            mtu: 1500,
        };
        assert_eq!(self.request(&ConfigRequest::Initialise(terms)), Status::Ok);
    }

    /// Sends a broadcast frame from this address.
    fn exchange(&mut self, mac: Mac) {
        self.initialise();
        assert_eq!(self.request(&ConfigRequest::SetMac(mac)), Status::Ok);
        let mut frame = [Mac::BROADCAST.octets(), mac.octets()].concat();
        frame.extend([0x88, 0xb6]);
        frame.resize(60, 0);
        self.link.send(&Vnet::PLAIN.emit(), &frame).unwrap();
        assert_eq!(self.request(&ConfigRequest::Statistics), Status::Ok);
    }

    fn disconnect(mut self) {
        self.shuts_down = true;
        assert_eq!(self.request(&ConfigRequest::Shutdown), Status::Ok);
        self.link.close(&mut *self.carrier);
        self.carrier.turn(Instant::now(), &mut Vec::new()).unwrap();
    }

    /// Disconnects without a shutdown: after one channel, with all of them, or with frames in transit.
    fn disconnect_abruptly(mut self, how: u64) {
        match how % 3 {
            0 => {
                self.connect(0);
                self.turn();
            }
            1 => {
                (0..self.channels).for_each(|channel| self.connect(channel));
                self.until("room", |caller| caller.link.has_room().then_some(()));
            }
            _ => self.exchange(Mac::local(mix(how))),
        }
    }
}
