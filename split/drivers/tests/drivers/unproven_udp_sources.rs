//! A unit over UDP, and datagrams from unproven source addresses. Checked: a request without a cookie creates no state, is answered with no
//! more bytes than it has, and takes no place from a host.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use verbena_split::carrier::address::Address;
use verbena_split::carrier::{Carrier, CarrierEvent, open};
use verbena_split::hello::Hello;
use verbena_split::lane::Lane;
use verbena_split::link::{Link, LinkOptions};
use verbena_split::stop::Stop;
use verbena_split::unit::{LanPort, Unit, UnitOptions};
use verbena_split::{Arrangement, Journal};
use verbena_testing::wait_for;

use crate::forged_request::{LISTENER, OLD_LISTENER, connect};
use crate::space::{Netns, privileged, wait_until};

type LogLines = Arc<Mutex<Vec<String>>>;

/// Runs a unit on a machine with two addresses, and `what` beside it.
fn with_unit(options: &UnitOptions, what: impl Fn(&LogLines) + Sync) {
    let space = Netns::new();
    for address in ["10.9.0.1", "10.9.0.2"] {
        space.ip(&format!("addr add {address}/32 dev lo"));
    }
    let said = LogLines::default();
    let at: Address = "udp://0.0.0.0".parse().unwrap();
    space.run(|| {
        let stop = Stop::new().unwrap();
        let unit = || {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let lan = LanPort::tap_named(&format!("str{}.{n}", std::process::id()), 1);
            let lan = lan.unwrap().remove(0);
            let carriers = vec![open::listen(&at, None).unwrap()];
            let journal = said.clone();
            let journal = Journal::new(move |what| journal.lock().unwrap().push(what.to_owned()));
            let mut unit = Unit::new(options.clone(), lan, carriers, journal).unwrap();
            unit.run(&stop).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(unit);
            let event = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| what(&said)));
            stop.request();
            if let Err(panic) = event {
                std::panic::resume_unwind(panic);
            }
        });
    });
}

fn hello(service: u64, name: &str) -> Hello {
    Hello {
        service,
        arrangement: Arrangement::Single,
        channel: 0,
        lane: Lane::ONLY,
        kinds: None,
        data_pair: None,
        name: name.to_owned(),
    }
}

/// The bytes received within a time that is long for retransmissions, and the last datagram.
fn receive_all(unknown: &UdpSocket) -> (usize, Vec<u8>) {
    let (mut bytes, mut last) = (0, Vec::new());
    let start = Instant::now();
    let span = Duration::from_millis(1500);
    let mut room = [0; 65536];
    while let Some(left) = span
        .checked_sub(start.elapsed())
        .filter(|left| !left.is_zero())
    {
        unknown.set_read_timeout(Some(left)).unwrap();
        if let Ok(len) = unknown.recv(&mut room) {
            bytes += len;
            last = room[..len].to_vec();
        }
    }
    (bytes, last)
}

/// A host up to its channel; an `Err` has the unit's answer.
struct RawHost {
    carrier: Box<dyn Carrier>,
    link: Link,
}

impl RawHost {
    fn dial(unit: &str, service: u64) -> Result<RawHost, String> {
        let mut carrier = open::dial(&unit.parse().unwrap(), None).unwrap();
        let options = LinkOptions::new(Arrangement::Single, 8, 2048);
        let link = Link::new(&mut *carrier, options, Instant::now()).unwrap();
        let hello = hello(service, "caller");
        carrier
            .connect(link.pair(0).unwrap(), &hello.to_bytes())
            .unwrap();
        let mut caller = RawHost { carrier, link };
        let connected = wait_for("an answer", || {
            let (now, mut done) = (Instant::now(), Vec::new());
            caller.carrier.turn(now, &mut done).unwrap();
            for wc in done {
                caller.link.handle(&mut *caller.carrier, &wc, now).unwrap();
            }
            match caller.carrier.next_event()? {
                CarrierEvent::Connected { .. } => Some(Ok(())),
                CarrierEvent::Refused {
                    why,
                    private_data: private,
                    ..
                } => Some(Err(format!("{why}: {}", String::from_utf8_lossy(&private)))),
                news => panic!("{news:?}"),
            }
        });
        connected.map(|()| caller)
    }
}

/// Waits until the unit accepts requests.
fn wait_until_up() {
    wait_until("the unit listens", || {
        RawHost::dial("udp://10.9.0.2", 1).is_ok()
    });
}

fn foreign_socket() -> UdpSocket {
    let unknown = UdpSocket::bind("10.9.0.1:0").unwrap();
    unknown.connect("10.9.0.1:7471").unwrap();
    unknown
}

#[test]
fn answers_are_no_longer_than_requests() {
    privileged(
        "unproven_udp_sources::answers_are_no_longer_than_requests",
        || {
            with_unit(&UnitOptions::default(), |_| {
                wait_until_up();
                for listener in [LISTENER, OLD_LISTENER] {
                    let unknown = foreign_socket();
                    let ask = connect(listener, 77);
                    unknown.send(&ask).unwrap();
                    let (bytes, _) = receive_all(&unknown);
                    assert!(bytes > 0, "listener {listener}: no answer at all");
                    assert!(bytes <= ask.len(), "{bytes} bytes for {}", ask.len());
                }
            });
        },
    );
}

#[test]
fn requests_without_a_cookie_take_no_place() {
    privileged(
        "unproven_udp_sources::requests_without_a_cookie_take_no_place",
        || {
            with_unit(&UnitOptions::default(), |said| {
                wait_until_up();
                let unknown = foreign_socket();
                for service in 0..256 {
                    for listener in [LISTENER, OLD_LISTENER] {
                        unknown.send(&connect(listener, service)).unwrap();
                    }
                }
                let caller = RawHost::dial("udp://10.9.0.2", 2);
                assert!(caller.is_ok(), "{:?}, {said:?}", caller.err());
            });
        },
    );
}

#[test]
fn host_without_cookie_support_gets_the_reason() {
    privileged(
        "unproven_udp_sources::host_without_cookie_support_gets_the_reason",
        || {
            with_unit(&UnitOptions::default(), |said| {
                wait_until_up();
                let unknown = foreign_socket();
                unknown.send(&connect(OLD_LISTENER, 5)).unwrap();
                let (_, answer) = receive_all(&unknown);
                let text = b"host too old";
                assert!(
                    answer.windows(text.len()).any(|part| part == text),
                    "{answer:02x?}"
                );
                let place = unknown.local_addr().unwrap().to_string();
                wait_until("the journal says it", || {
                    let said = said.lock().unwrap();
                    let is = |what: &String| what.contains(&place) && what.contains("too old");
                    said.iter().any(is)
                });
            });
        },
    );
}

/// Hosts of one address leave places to others, and the first above the limit gets the reason.
#[test]
fn hosts_per_source_are_limited() {
    privileged("unproven_udp_sources::hosts_per_source_are_limited", || {
        let options = UnitOptions {
            hosts_per_source: 3,
            // Hosts that send nothing more must stay meanwhile.
            patience: Duration::from_secs(60),
            ..UnitOptions::default()
        };
        with_unit(&options, |_| {
            wait_until_up();
            let dial = |service| RawHost::dial("udp://10.9.0.1", service);
            let here: Vec<RawHost> = (10..13).map(|service| dial(service).unwrap()).collect();
            let why = dial(13).err().unwrap();
            assert!(
                why.contains("3 hosts of 10.9.0.1 are connected already"),
                "{why}"
            );
            assert!(why.contains("--hosts-per-source"), "{why}");
            let other = RawHost::dial("udp://10.9.0.2", 14);
            assert!(other.is_ok(), "{:?}", other.err());
            drop(here);
        });
    });
}
