//! A small bridge: a TAP in one namespace, a LAN port in another, and a thread that copies frames between them.
//! There are three namespaces: a host with the TAP, a unit with one end of a veth pair, and a LAN with the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena_lan::{Batch, Frame, Offloads, Port, Queue, Tap, Vnet, WriteOutcome, apply_offloads};

use super::Netns;

/// Counters of both directions.
#[derive(Debug, Default)]
pub struct BridgeCounters {
    pub frames: AtomicU64,
    pub super_frames: AtomicU64,
    pub partial: AtomicU64,
    pub pieces: AtomicU64,
    pub unfit: AtomicU64,
    pub refused: AtomicU64,
}

impl BridgeCounters {
    pub fn get(&self) -> [u64; 6] {
        let each = [
            &self.frames,
            &self.super_frames,
            &self.partial,
            &self.pieces,
            &self.unfit,
            &self.refused,
        ];
        each.map(|count| count.load(Ordering::Relaxed))
    }
}

/// The bridge and its namespaces.
pub struct Bridge {
    pub host: Netns,
    pub unit: Netns,
    pub lan: Netns,
    pub tap: Arc<Tap>,
    pub port: Arc<Port>,
    pub counters: Arc<BridgeCounters>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn count(of: &AtomicU64, n: usize) {
    of.fetch_add(n as u64, Ordering::Relaxed);
}

impl Bridge {
    /// A bridge between receivers that take over these offloads.
    pub fn new(mtu: u32, taken: Offloads) -> Bridge {
        let (host, unit, lan) = (Netns::new(), Netns::new(), Netns::new());
        unit.connect_veth("u0", &lan, "l0");
        unit.ip(&format!("link set u0 mtu {mtu}"));
        lan.ip(&format!("link set l0 mtu {mtu}"));
        let tap = host.run(|| Tap::create("tap0", 1)).unwrap();
        tap.interface().set_mtu(mtu).unwrap();
        let granted = tap.set_offloads(Offloads::ALL).unwrap();
        assert_eq!(granted, Offloads::ALL, "this kernel has them all");
        tap.interface().set_up(true).unwrap();
        let port = unit.run(|| Port::open("u0", true)).unwrap();
        port.set_receive_buffer(8 << 20);
        for (space, link, last) in [(&host, "tap0", 1), (&lan, "l0", 2)] {
            space.ip(&format!("address add 10.9.0.{last}/24 dev {link}"));
            space.ip(&format!("address add fd09::{last}/64 dev {link} nodad"));
        }
        let (tap, port) = (Arc::new(tap), Arc::new(port));
        let (seen, stop) = (
            Arc::new(BridgeCounters::default()),
            Arc::new(AtomicBool::new(false)),
        );
        let thread = std::thread::spawn({
            let (tap, port, seen, stop) = (tap.clone(), port.clone(), seen.clone(), stop.clone());
            move || run_bridge(&tap.queues()[0], &port, taken, &seen, &stop)
        });
        Bridge {
            host,
            unit,
            lan,
            tap,
            port,
            counters: seen,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

fn run_bridge(
    queue: &Queue,
    port: &Port,
    taken: Offloads,
    seen: &BridgeCounters,
    stop: &AtomicBool,
) {
    let (mut batch, mut room) = (Batch::new(32), Vec::new());
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    while !stop.load(Ordering::Relaxed) {
        let mut fds = [
            PollFd::new(queue, PollFlags::IN),
            PollFd::new(port, PollFlags::IN),
        ];
        poll(&mut fds, Some(&wait)).unwrap();
        let got = queue.read(&mut batch).unwrap();
        assert_eq!(got.lost, 0);
        forward(
            &batch,
            taken,
            &mut room,
            seen,
            &|frames| port.write(frames).unwrap(),
            &|vnet, bytes| port.write_frame(vnet, bytes),
        );
        let got = port.read(&mut batch).unwrap();
        assert_eq!(got.lost, 0);
        forward(
            &batch,
            taken,
            &mut room,
            seen,
            &|frames| queue.write(frames).unwrap(),
            &|vnet, bytes| queue.write_frame(vnet, bytes),
        );
    }
}

type Write<'a> = &'a dyn Fn(&[Frame]) -> verbena_lan::BatchWriteOutcome;
type WriteOne<'a> = &'a dyn Fn(&Vnet, &[u8]) -> verbena_lan::Result<WriteOutcome>;

fn forward(
    batch: &Batch,
    taken: Offloads,
    room: &mut Vec<u8>,
    seen: &BridgeCounters,
    write: Write<'_>,
    put: WriteOne<'_>,
) {
    let mut frames = batch.frames();
    for frame in frames {
        count(&seen.frames, 1);
        count(&seen.super_frames, usize::from(frame.vnet().gso.is_some()));
        count(&seen.partial, usize::from(frame.vnet().partial.is_some()));
    }
    if taken == Offloads::ALL {
        while !frames.is_empty() {
            let written = write(frames);
            count(&seen.refused, written.refused);
            frames = &frames[written.done..];
            if written.done == 0 {
                std::thread::yield_now();
            }
        }
        return;
    }
    for frame in frames {
        let fitted = apply_offloads(frame.vnet(), frame.bytes(), taken, room, |vnet, bytes| {
            count(&seen.pieces, 1);
            loop {
                match put(vnet, bytes).unwrap() {
                    WriteOutcome::Sent => break,
                    WriteOutcome::WouldBlock => std::thread::yield_now(),
                    WriteOutcome::Refused => {
                        count(&seen.refused, 1);
                        break;
                    }
                }
            }
        });
        count(&seen.unfit, usize::from(fitted.is_err()));
    }
}
