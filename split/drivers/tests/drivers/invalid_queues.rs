//! Hosts that request every queue that a byte can name: one of them is the unit's, and all others are rejected with a reason.

use std::time::{Duration, Instant};

use verbena_split::carrier::address::Address;
use verbena_split::carrier::{Carrier, CarrierEvent, PairOptions, open};
use verbena_split::hello::Hello;
use verbena_split::lane::Lane;
use verbena_split::stop::Stop;
use verbena_split::unit::{LanPort, Unit, UnitOptions};
use verbena_split::{Arrangement, Journal};

use crate::space::{Netns, privileged};

const PATIENCE: Duration = Duration::from_secs(20);

/// Requests a channel with this byte for its queue; returns the unit's reason if it is rejected.
fn request_channel(carrier: &mut dyn Carrier, byte: u8) -> Result<(), String> {
    carrier.new_protection_domain().unwrap();
    let options = PairOptions {
        acknowledged: true,
        sends: 8,
        receives: 8,
    };
    let pair = carrier.create_pair(options).unwrap();
    let hello = Hello {
        service: u64::from(byte),
        arrangement: Arrangement::Single,
        channel: 0,
        lane: Lane::ONLY,
        kinds: None,
        data_pair: None,
        name: "many".to_owned(),
    };
    let mut hello = hello.to_bytes();
    hello[7] = byte;
    carrier.connect(pair, &hello).unwrap();
    let start = Instant::now();
    let answer = loop {
        carrier.turn(Instant::now(), &mut Vec::new()).unwrap();
        match carrier.next_event() {
            Some(CarrierEvent::Connected { .. }) => break Ok(()),
            Some(CarrierEvent::Refused {
                private_data: private,
                ..
            }) => {
                break Err(String::from_utf8(private).unwrap());
            }
            _ => assert!(start.elapsed() < PATIENCE, "no answer to {byte:#x}"),
        }
    };
    carrier.destroy(pair);
    answer
}

#[test]
fn only_the_matching_queue_is_accepted() {
    privileged(
        "invalid_queues::only_the_matching_queue_is_accepted",
        || {
            let at: Address = "udp://127.0.0.1".parse().unwrap();
            let ours = Lane::new(1, 3).unwrap();
            Netns::new().run(|| {
                let name = format!("many{}", std::process::id());
                let lan = LanPort::tap_named(&name, 1).unwrap().remove(0);
                let carriers = vec![open::listen(&at, None).unwrap()];
                let options = UnitOptions {
                    lane: ours,
                    ..UnitOptions::default()
                };
                let mut unit = Unit::new(options, lan, carriers, Journal::silent()).unwrap();
                let stop = Stop::new().unwrap();
                std::thread::scope(|scope| {
                    let unit = scope.spawn(|| unit.run(&stop));
                    let event = std::panic::catch_unwind(|| {
                        let mut host = open::dial(&at, None).unwrap();
                        for byte in 0..=u8::MAX {
                            let what_to_do = match Lane::from_byte(byte) {
                                Ok(lane) if lane == ours => None,
                                Ok(lane) if lane.queue_count() == 3 => {
                                    Some("the port of the first queue")
                                }
                                Ok(_) => Some("start the host with --queues 3"),
                                Err(_) => Some("there is no queue"),
                            };
                            let answer = request_channel(&mut *host, byte);
                            match (answer, what_to_do) {
                                (Ok(()), None) => {}
                                (Err(why), Some(what)) => assert!(why.contains(what), "{why}"),
                                (answer, _) => panic!("{byte:#x}: {answer:?}"),
                            }
                        }
                    });
                    stop.request();
                    unit.join().unwrap().unwrap();
                    if let Err(panic) = event {
                        std::panic::resume_unwind(panic);
                    }
                });
            });
        },
    );
}
