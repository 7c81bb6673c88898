//! A unit, and hosts that break the protocol, made of a link without a driver. Checked: no frames of a host pass before it has an address,
//! its checksum flags are not trusted, and a repeated request gets the same answer.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use verbena_split::carrier::address::Address;
use verbena_split::carrier::{Carrier, CarrierEvent, Memory, open};
use verbena_split::hello::{Hello, channels, letter};
use verbena_split::lan::{Mac, Offloads, Vnet};
use verbena_split::lane::Lane;
use verbena_split::link::{Link, LinkEvent, LinkOptions};
use verbena_split::service::{ConfigRequest, Counts, Terms};
use verbena_split::stop::Stop;
use verbena_split::unit::{LanPort, Unit, UnitOptions};
use verbena_split::{Arrangement, Journal};
use verbena_split_wire::push::Status;

use crate::space::{Netns, privileged};

const PATIENCE: Duration = Duration::from_secs(20);

/// A host without an interface.
pub(crate) struct RawHost {
    carrier: Box<dyn Carrier>,
    pub(crate) link: Link,
    /// Makes addresses differ between arrangements: hosts that are not closed stay for a while.
    salt: u64,
}

impl RawHost {
    /// Connects; services must differ, since hosts that are not closed stay for a while.
    pub(crate) fn dial(unit: &Address, arrangement: Arrangement, service: u64) -> RawHost {
        let mut carrier = open::dial(unit, None).unwrap();
        let options = LinkOptions::new(arrangement, 8, 2048);
        let link = Link::new(&mut *carrier, options, Instant::now()).unwrap();
        for channel in 0..channels(arrangement) {
            let hello = Hello {
                service: u64::from(letter(arrangement)) + service,
                arrangement,
                channel,
                lane: Lane::ONLY,
                kinds: None,
                data_pair: None,
                name: "liar".to_owned(),
            };
            let pair = link.pair(channel).unwrap();
            carrier.connect(pair, &hello.to_bytes()).unwrap();
        }
        let salt = u64::from(letter(arrangement)) << 8;
        let mut liar = RawHost {
            carrier,
            link,
            salt,
        };
        liar.until(|liar| liar.link.has_room().then_some(()));
        liar
    }

    /// Ends the connection, and tells the unit.
    pub(crate) fn close(mut self) {
        self.link.close(&mut *self.carrier);
        self.carrier.turn(Instant::now(), &mut Vec::new()).unwrap();
    }

    fn mac(&self, n: u64) -> Mac {
        Mac::local(self.salt + n)
    }

    pub(crate) fn until<T>(&mut self, mut what: impl FnMut(&mut RawHost) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
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
                    news => panic!("{news:?}"),
                }
            }
            self.link.tick(&mut *self.carrier, now).unwrap();
            if let Some(done) = what(self) {
                return done;
            }
            assert!(start.elapsed() < PATIENCE, "never");
        }
    }

    pub(crate) fn request(&mut self, ask: &ConfigRequest) -> (Status, Vec<u8>) {
        let (operation, data) = ask.encode();
        let asked = self.link.request(operation, &data).unwrap();
        self.until(|liar| match liar.link.next_event() {
            Some(LinkEvent::Reply {
                context,
                status,
                data,
                ..
            }) if context == asked => Some((status, data)),
            _ => None,
        })
    }

    /// Sends a frame from this address; returns the unit's counters after it.
    fn send(&mut self, from: Mac) -> Counts {
        let mut frame = Mac::BROADCAST.octets().to_vec();
        frame.extend(from.octets());
        frame.extend([0x88, 0xb6]);
        frame.resize(60, 0);
        let before = self.counts();
        self.until(|liar| liar.link.has_room().then_some(()));
        self.link.send(&Vnet::PLAIN.emit(), &frame).unwrap();
        let start = Instant::now();
        loop {
            let counts = self.counts();
            if counts != before {
                return counts;
            }
            assert!(start.elapsed() < PATIENCE, "never counted");
        }
    }

    pub(crate) fn counts(&mut self) -> Counts {
        let (status, data) = self.request(&ConfigRequest::Statistics);
        assert_eq!(status, Status::Ok);
        Counts::parse(&data).unwrap()
    }
}

/// Runs a unit with its own LAN, and two hosts of each arrangement.
fn with_unit(options: &UnitOptions, what: impl Fn(RawHost, RawHost) + Sync) {
    let at: Address = "udp://127.0.0.1".parse().unwrap();
    Netns::new().run(|| {
        let stop = Stop::new().unwrap();
        let unit = || {
            // Drivers of one name cannot run at once, whatever their namespaces.
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let lan = LanPort::tap_named(&format!("lie{}.{n}", std::process::id()), 1)
                .unwrap()
                .remove(0);
            let carriers = vec![open::listen(&at, None).unwrap()];
            let mut unit = Unit::new(options.clone(), lan, carriers, Journal::silent()).unwrap();
            unit.run(&stop).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(unit);
            let event = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for arrangement in Arrangement::ALL {
                    let [one, other] = [0, 256].map(|more| RawHost::dial(&at, arrangement, more));
                    what(one, other);
                }
            }));
            stop.request();
            if let Err(panic) = event {
                std::panic::resume_unwind(panic);
            }
        });
    });
}

/// Hosts may be promiscuous.
fn promiscuous_options() -> UnitOptions {
    UnitOptions {
        promiscuous: true,
        ..UnitOptions::default()
    }
}

/// The name and address of the LAN interface, in this thread's namespace.
fn lan() -> (String, Mac) {
    let said = ip("-o link");
    let line = said.lines().find(|line| line.contains(": lie")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let mac = words.iter().position(|word| *word == "link/ether").unwrap();
    let name = words[1].trim_end_matches(':').to_owned();
    (name, words[mac + 1].parse().unwrap())
}

fn ip(words: &str) -> String {
    let ran = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(ran.status.success(), "{words}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// A station of the LAN sends a broadcast.
fn send_broadcast(lan: &str, station: Mac) {
    ip(&format!("link set {lan} up"));
    let code = format!(
        "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('{lan}', 0)); \
         s.send(bytes.fromhex('ffffffffffff{}88b6') + bytes(46))",
        station.to_string().replace(':', "")
    );
    let ran = Command::new("/usr/bin/python3")
        .args(["-c", &code])
        .output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

pub(crate) fn initialise() -> ConfigRequest {
    ConfigRequest::Initialise(Terms {
        accepts: Offloads::NONE,
        mtu: 1500,
    })
}

#[test]
fn frames_pass_only_from_the_set_address() {
    privileged(
        "invalid_hosts::frames_pass_only_from_the_set_address",
        || {
            with_unit(&UnitOptions::default(), |mut liar, _| {
                let (own, others) = (liar.mac(1), liar.mac(2));
                assert_eq!(liar.request(&initialise()).0, Status::Ok);
                let counts = liar.send(others);
                assert_eq!((counts.frames_in, counts.unfit), (0, 1), "no address yet");
                assert_eq!(liar.request(&ConfigRequest::SetMac(own)).0, Status::Ok);
                let counts = liar.send(others);
                assert_eq!((counts.refused, counts.unfit), (1, 1), "not its own");
                let counts = liar.send(own);
                assert_eq!((counts.refused, counts.unfit), (1, 1), "its own");
                assert_eq!(counts.frames_in, 2);
            });
        },
    );
}

/// Arrangement A over cells: a host whose answer was lost repeats the request.
#[test]
fn repeated_initialise_gets_the_same_answer() {
    privileged(
        "invalid_hosts::repeated_initialise_gets_the_same_answer",
        || {
            with_unit(&UnitOptions::default(), |mut liar, _| {
                let first = liar.request(&initialise());
                assert_eq!(first.0, Status::Ok);
                assert_eq!(liar.request(&initialise()), first);
                let mac = liar.mac(1);
                assert_eq!(liar.request(&ConfigRequest::SetMac(mac)).0, Status::Ok);
                assert_eq!(
                    liar.request(&initialise()).0,
                    Status::NotAllowed,
                    "it is up"
                );
            });
        },
    );
}

/// The flag for verified checksums is cleared: the receiver would accept frames that were never checked.
#[test]
fn verified_checksum_flag_is_cleared() {
    privileged("invalid_hosts::verified_checksum_flag_is_cleared", || {
        with_unit(&UnitOptions::default(), |mut liar, mut other| {
            let (from, to) = (liar.mac(1), liar.mac(2));
            for (host, mac) in [(&mut liar, from), (&mut other, to)] {
                assert_eq!(host.request(&initialise()).0, Status::Ok);
                assert_eq!(host.request(&ConfigRequest::SetMac(mac)).0, Status::Ok);
            }
            let mut frame = [to.octets(), from.octets()].concat();
            frame.extend([0x88, 0xb6]);
            frame.resize(60, 7);
            let claims = Vnet {
                data_valid: true,
                ..Vnet::PLAIN
            };
            liar.link.send(&claims.emit(), &frame).unwrap();
            liar.counts();
            let came = other.until(|other| {
                let copy = |memory: &dyn Memory, offset, len| {
                    let mut packet = vec![0; len];
                    assert!(memory.read(offset, &mut packet));
                    packet
                };
                other.link.with_packet(copy).unwrap()
            });
            assert_eq!(came, [&Vnet::PLAIN.emit()[..], &frame].concat());
        });
    });
}

/// Checks the reason of a refusal.
pub(crate) fn refused(answer: &(Status, Vec<u8>), why: &str) {
    let said = String::from_utf8_lossy(&answer.1).into_owned();
    assert_eq!(answer.0, Status::NotAllowed, "{said}");
    assert!(said.contains(why), "{said}");
}

#[test]
fn address_of_another_host_is_refused() {
    privileged("invalid_hosts::address_of_another_host_is_refused", || {
        with_unit(&promiscuous_options(), |mut liar, mut other| {
            for host in [&mut liar, &mut other] {
                assert_eq!(host.request(&initialise()).0, Status::Ok);
            }
            let mac = liar.mac(1);
            assert_eq!(liar.request(&ConfigRequest::SetMac(mac)).0, Status::Ok);
            for hears_all in [false, true] {
                assert_eq!(
                    liar.request(&ConfigRequest::Promiscuous(hears_all)).0,
                    Status::Ok
                );
                refused(
                    &other.request(&ConfigRequest::SetMac(mac)),
                    "another host has it",
                );
            }
            // It has lost nothing, and can set the same address again.
            assert_eq!(
                liar.request(&ConfigRequest::Promiscuous(false)).0,
                Status::Ok
            );
            assert_eq!(liar.request(&ConfigRequest::SetMac(mac)).0, Status::Ok);
            assert_eq!(liar.send(mac).refused, 0);
            // A free address can be set, and the one given up for it is free.
            let free = other.mac(2);
            assert_eq!(liar.request(&ConfigRequest::SetMac(free)).0, Status::Ok);
            assert_eq!(other.request(&ConfigRequest::SetMac(mac)).0, Status::Ok);
        });
    });
}

#[test]
fn address_of_the_lan_is_refused() {
    privileged("invalid_hosts::address_of_the_lan_is_refused", || {
        with_unit(&promiscuous_options(), |mut liar, mut other| {
            for host in [&mut liar, &mut other] {
                assert_eq!(host.request(&initialise()).0, Status::Ok);
            }
            let own = liar.mac(1);
            assert_eq!(liar.request(&ConfigRequest::SetMac(own)).0, Status::Ok);
            let (lan, lan_mac) = lan();
            refused(
                &liar.request(&ConfigRequest::SetMac(lan_mac)),
                "the unit's own interface",
            );
            let station = liar.mac(9);
            send_broadcast(&lan, station);
            // The host receives the frame, so the unit has learnt its source.
            liar.until(|liar| {
                let from = |memory: &dyn Memory, offset, _| {
                    let mut mac = [0; 6];
                    assert!(memory.read(offset + 10 + 6, &mut mac));
                    Mac::new(mac)
                };
                let came = liar.link.with_packet(from).unwrap();
                (came == Some(station)).then_some(())
            });
            for host in [&mut liar, &mut other] {
                refused(
                    &host.request(&ConfigRequest::SetMac(station)),
                    "a station of the LAN",
                );
            }
            // Sending from it does not take it over either, even for a promiscuous host.
            assert_eq!(
                liar.request(&ConfigRequest::Promiscuous(true)).0,
                Status::Ok
            );
            let free = liar.mac(8);
            assert_eq!(liar.send(free).refused, 0);
            assert_eq!(liar.send(station).refused, 1);
        });
    });
}

#[test]
fn promiscuous_mode_must_be_allowed() {
    privileged("invalid_hosts::promiscuous_mode_must_be_allowed", || {
        with_unit(&UnitOptions::default(), |mut liar, _| {
            assert_eq!(liar.request(&initialise()).0, Status::Ok);
            let mac = liar.mac(1);
            assert_eq!(liar.request(&ConfigRequest::SetMac(mac)).0, Status::Ok);
            refused(
                &liar.request(&ConfigRequest::Promiscuous(true)),
                "--allow-promiscuous",
            );
            assert_eq!(
                liar.request(&ConfigRequest::Promiscuous(false)).0,
                Status::Ok
            );
            let others = liar.mac(2);
            assert_eq!(liar.send(others).refused, 1);
        });
    });
}
