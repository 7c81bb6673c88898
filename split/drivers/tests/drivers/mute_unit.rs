//! A host, and a unit that connects and is alive but answers nothing: the host gives it up in time.

use std::cell::Cell;
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use verbena::Status;
use verbena_split::carrier::address::Address;
use verbena_split::carrier::{Carrier, CarrierEvent, open};
use verbena_split::hello::Hello;
use verbena_split::host::{Host, HostOptions};
use verbena_split::link::{Link, LinkError, LinkOptions};
use verbena_split::stop::Stop;
use verbena_split::{Arrangement, Journal};
use verbena_testing::serve_until;

use crate::space::{Netns, privileged};

/// A unit that accepts one host, keeps its channels alive, and answers no request.
fn run_mute_unit(carrier: &mut dyn Carrier, stop: &Stop) {
    let options = LinkOptions::new(Arrangement::Sends, 8, 2048);
    let mut link = Link::new(carrier, options, Instant::now()).unwrap();
    let mut done = Vec::new();
    let ended = Cell::new(false);
    let over = || ended.get() || stop.is_requested();
    serve_until(over, || {
        let now = Instant::now();
        carrier.turn(now, &mut done).unwrap();
        for wc in done.drain(..) {
            match link.handle(carrier, &wc, now) {
                Ok(()) => {}
                // The host has given up, which flushes the receives before the end is reported.
                Err(LinkError::Failed {
                    status: Status::WrFlushErr,
                    ..
                }) => ended.set(true),
                Err(error) => panic!("{error}"),
            }
        }
        while let Some(news) = carrier.next_event() {
            match news {
                CarrierEvent::Request {
                    ticket,
                    private_data: private,
                    ..
                } => {
                    let hello = Hello::parse(&private).unwrap();
                    let pair = link.pair(hello.channel).unwrap();
                    // A second attempt finds no free channels.
                    if carrier.accept(ticket, pair, &[]).is_err() {
                        carrier.reject(ticket, b"no more");
                    }
                }
                CarrierEvent::Connected { pair, .. } => {
                    link.connected(carrier, pair).unwrap();
                }
                CarrierEvent::Refused { .. } | CarrierEvent::Rejected { .. } => panic!("{news:?}"),
                CarrierEvent::Ended { .. } => ended.set(true),
            }
        }
        // It repeats what may have been lost, which is a sign of life.
        link.tick(carrier, now).unwrap();
        while link.next_event().is_some() {}
        false
    });
}

#[test]
fn host_gives_up_a_unit_without_answers() {
    privileged("mute_unit::host_gives_up_a_unit_without_answers", || {
        let at: Address = "udp://127.0.0.1".parse().unwrap();
        Netns::new().run(|| {
            let stop = Stop::new().unwrap();
            let (says, said) = mpsc::channel();
            let open = Barrier::new(2);
            let host = || {
                open.wait();
                let options = HostOptions {
                    arrangement: Arrangement::Sends,
                    patience: Duration::from_secs(2),
                    ..HostOptions::new(&format!("mute{}", std::process::id()))
                };
                let journal = Journal::new(move |what| drop(says.send(what.to_owned())));
                let carrier = open::dial(&at, None).unwrap();
                let mut host = Host::new(options, carrier, "mute", journal).unwrap();
                host.run(&stop).unwrap();
            };
            let unit = || {
                let mut carrier = open::listen(&at, None).unwrap();
                open.wait();
                run_mute_unit(&mut *carrier, &stop);
            };
            std::thread::scope(|scope| {
                scope.spawn(host);
                scope.spawn(unit);
                let event = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let start = Instant::now();
                    let first = said.recv_timeout(Duration::from_secs(20)).unwrap();
                    let took = start.elapsed();
                    assert!(first.contains("not set up"), "{first}");
                    // Not at once, and not because of silence.
                    assert!(took > Duration::from_secs(4), "{took:?}");
                }));
                stop.request();
                if let Err(panic) = event {
                    std::panic::resume_unwind(panic);
                }
            });
        });
    });
}
