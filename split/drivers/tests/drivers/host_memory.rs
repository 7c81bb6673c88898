//! The memory that a host takes at its unit before it has sent a frame. In a process of its own: it reads the process's memory use.

use std::time::Instant;

use verbena_split::carrier::address::Address;
use verbena_split::carrier::{Carrier, CarrierEvent, open};
use verbena_split::hello::{Hello, channels};
use verbena_split::lane::Lane;
use verbena_split::link::{Link, LinkOptions};
use verbena_split::status;
use verbena_split::stop::Stop;
use verbena_split::unit::{LanPort, Unit, UnitOptions};
use verbena_split::{Arrangement, Journal};
use verbena_testing::own_process;

use crate::space::{Netns, privileged, wait_until};

/// Hosts of each arrangement.
const HOSTS: u64 = 10;
/// Limit in KiB for a host that has sent nothing.
const MOST: u64 = 2048;

struct RawHost {
    carrier: Box<dyn Carrier>,
    link: Link,
}

impl RawHost {
    fn dial(unit: &Address, arrangement: Arrangement, service: u64) -> RawHost {
        let mut carrier = open::dial(unit, None).unwrap();
        let options = LinkOptions::new(arrangement, 4, 2048);
        let link = Link::new(&mut *carrier, options, Instant::now()).unwrap();
        for channel in 0..channels(arrangement) {
            let hello = Hello {
                service,
                arrangement,
                channel,
                lane: Lane::ONLY,
                kinds: None,
                data_pair: None,
                name: String::new(),
            };
            let pair = link.pair(channel).unwrap();
            carrier.connect(pair, &hello.to_bytes()).unwrap();
        }
        RawHost { carrier, link }
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
                news => panic!("{news:?}"),
            }
        }
        self.link.tick(&mut *self.carrier, now).unwrap();
    }
}

fn lan_name() -> String {
    format!("mem{}", std::process::id())
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.unwrap().split_whitespace().nth(1);
    words.unwrap().parse().unwrap()
}

#[test]
fn host_without_frames_takes_little_memory() {
    own_process!();
    privileged(
        "host_memory::host_without_frames_takes_little_memory",
        || {
            let at: Address = "udp://127.0.0.1".parse().unwrap();
            Netns::new().run(|| {
                let stop = Stop::new().unwrap();
                let unit = || {
                    let lan = LanPort::tap_named(&lan_name(), 1);
                    let carriers = vec![open::listen(&at, None).unwrap()];
                    let options = UnitOptions {
                        hosts_per_source: 64,
                        ..UnitOptions::default()
                    };
                    let lan = lan.unwrap().remove(0);
                    let mut unit = Unit::new(options, lan, carriers, Journal::silent()).unwrap();
                    unit.run(&stop).unwrap();
                };
                std::thread::scope(|scope| {
                    scope.spawn(unit);
                    let event =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| measure(&at)));
                    stop.request();
                    if let Err(panic) = event {
                        std::panic::resume_unwind(panic);
                    }
                });
            });
        },
    );
}

fn measure(at: &Address) {
    // Twice: memory of earlier hosts is reused, and its pages must not be allocated at once either.
    for round in 0..2 {
        for arrangement in Arrangement::ALL {
            let before = resident();
            let service = |n| u64::from(arrangement as u8) << 16 | round << 8 | n;
            let dial = |n| RawHost::dial(at, arrangement, service(n));
            let mut callers: Vec<RawHost> = (0..HOSTS).map(dial).collect();
            wait_until("all are connected", || {
                callers.iter_mut().for_each(RawHost::turn);
                callers.iter().all(|caller| caller.link.has_room())
            });
            let each = resident().saturating_sub(before) / HOSTS;
            eprintln!("{arrangement:?}, round {round}: {each} KiB per host");
            assert!(each < MOST, "{arrangement:?}: {each} KiB per host");
            for caller in callers {
                let RawHost { mut carrier, link } = caller;
                link.close(&mut *carrier);
                carrier.turn(Instant::now(), &mut Vec::new()).unwrap();
            }
            let unit = status::queues("unit", &lan_name()).unwrap().remove(0);
            wait_until("the unit has freed them", || {
                status::query(&unit).unwrap().contains("\"hosts\":[]")
            });
        }
    }
}
