//! Two consumers of one adapter, each with its own queue pairs, completion queue, handler and processor (N10): latency-sensitive
//! messages between processes, and storage that transfers bulk data. The program prints what each handler observed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use verbena::events::{Affinity, Class, Handler, HandlerOptions, Hold, Moderation, Reason};
use verbena::low::{Arm, Cq, Data, Flags, Limits, Pd, Qp, QpOptions, RecvWr, SendOp, SendWr, Wc};
use verbena::unstable::processor;
use verbena::{Access, Config, Device, Error, Memory, Status};

const TIMEOUT: Duration = Duration::from_secs(30);
const LIMITS: Limits = Limits {
    sends: 64,
    receives: 64,
    max_sge: 4,
    inline: 64,
};

/// What a handler observed.
#[derive(Default)]
struct HandlerStats {
    notifications: AtomicU64,
    solicited: AtomicU64,
    completions: AtomicUsize,
    failed: AtomicUsize,
    processors: Mutex<BTreeSet<u16>>,
    /// Completions that the consumer has not taken yet.
    taken: Mutex<Vec<Wc>>,
    more: Condvar,
}

/// A consumer of the adapter: a completion queue, and its own handler, which drains it.
struct Consumer {
    name: &'static str,
    stats: Arc<HandlerStats>,
    cq: Arc<Cq>,
    handler: Handler,
}

impl Consumer {
    fn new(
        device: &Device,
        name: &'static str,
        arm: Arm,
        options: HandlerOptions,
    ) -> Result<Consumer, Error> {
        let (seen, cq) = (Arc::<HandlerStats>::default(), Arc::new(device.cq(256)?));
        let (notes, queue) = (seen.clone(), cq.clone());
        let counting = HandlerOptions::new(move |completion| {
            notes.notifications.fetch_add(1, Ordering::Relaxed);
            if completion.reason == Reason::Solicited {
                notes.solicited.fetch_add(1, Ordering::Relaxed);
            }
            if let (Some(here), Ok(mut all)) = (processor(), notes.processors.lock()) {
                all.insert(here);
            }
            // Armed before the last poll, so that completions after it cause a notification.
            queue.arm(arm);
            notes.drain(&queue);
        });
        let handler = device.set_handler(&HandlerOptions {
            callback: counting.callback,
            ..options
        })?;
        cq.set_handler(Some(&handler))?;
        cq.arm(arm);
        Ok(Consumer {
            name,
            stats: seen,
            cq,
            handler,
        })
    }

    /// Waits for `count` completions, which must all be successful.
    fn take(&self, count: usize) -> Vec<Wc> {
        let end = Instant::now() + TIMEOUT;
        let mut taken = self.stats.taken.lock().expect("not poisoned");
        while taken.len() < count {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{}: its handler was not called", self.name);
            let waited = self.stats.more.wait_timeout(taken, left);
            taken = waited.expect("not poisoned").0;
        }
        let rest = taken.split_off(count);
        std::mem::replace(&mut *taken, rest)
    }

    fn report(&self) -> Vec<u16> {
        let seen = &self.stats;
        let on = seen.processors.lock().expect("not poisoned");
        let on: Vec<u16> = on.iter().copied().collect();
        println!(
            "{}: handler {} was called {} times ({} solicited) on processors {on:?} and saw {} completions",
            self.name,
            self.handler.id(),
            seen.notifications.load(Ordering::Relaxed),
            seen.solicited.load(Ordering::Relaxed),
            seen.completions.load(Ordering::Relaxed),
        );
        assert_eq!(seen.failed.load(Ordering::Relaxed), 0, "{}", self.name);
        on
    }
}

impl HandlerStats {
    fn drain(&self, cq: &Cq) {
        let mut some = [Wc::default(); 32];
        loop {
            let n = cq.poll(&mut some);
            if n == 0 {
                return;
            }
            let failed = |wc: &&Wc| wc.status != Status::Success;
            let failed = some[..n].iter().filter(failed).count();
            self.failed.fetch_add(failed, Ordering::Relaxed);
            self.completions.fetch_add(n, Ordering::Relaxed);
            if let Ok(mut taken) = self.taken.lock() {
                taken.extend_from_slice(&some[..n]);
            }
            self.more.notify_all();
        }
    }
}

/// Two connected queue pairs of one consumer: the near one requests, the far one answers.
struct ConnectedQps {
    near: Qp,
    far: Qp,
    memory: Memory,
    _pd: Pd,
}

fn connected_qps(
    device: &Device,
    near: &Consumer,
    far: &Cq,
    len: usize,
) -> Result<ConnectedQps, Error> {
    let options = QpOptions::default().limits(LIMITS);
    let pd = device.pd()?;
    let memory = pd.memory(len, Access::ALL)?;
    let near = Qp::new(&pd, &near.cq, &near.cq, options)?;
    let far = Qp::new(&pd, far, far, options)?;
    let listener = device.listen("127.0.0.1:0")?;
    let joining = near.connect(listener.local_addr()?, b"")?;
    listener.next().wait()?.accept_on(&far, b"")?.wait()?;
    joining.wait()?;
    Ok(ConnectedQps {
        near,
        far,
        memory,
        _pd: pd,
    })
}

fn message(id: u64, flags: Flags, bytes: &[u8]) -> SendWr<'_> {
    let op = SendOp::Send {
        invalidate: None,
        immediate: None,
    };
    let data = Data::Inline(bytes);
    SendWr {
        id,
        op,
        flags,
        data,
    }
}

/// Round trips of small messages between two processes. Requests are received by polling; answers are solicited
/// and delivered through the consumer's handler.
fn messages(device: &Device, consumer: &Consumer, rounds: u64) -> Result<Vec<Duration>, Error> {
    let served = device.cq(64)?;
    let two = connected_qps(device, consumer, &served, 4096)?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let (inquiry, answer) = ([two.memory.sge(0, 8)?], [two.memory.sge(64, 8)?]);
        let receive = |scatter| RecvWr { id: round, scatter };
        two.far.post_recv(&[receive(&inquiry)])?;
        two.near.post_recv(&[receive(&answer)])?;
        let began = Instant::now();
        let words = round.to_be_bytes();
        // Unsignaled: the answer implies that it was delivered.
        let ask = [message(round, Flags::default(), &words)];
        two.near.post_send(&ask)?;
        let mut one = [Wc::default()];
        served.wait(&mut one)?;
        let received: [u8; 8] = two.memory.get(0)?;
        assert_eq!((one[0].status, received), (Status::Success, words));
        let back = (!round).to_be_bytes();
        let answer = [message(round, Flags::SOLICITED, &back)];
        two.far.post_send(&answer)?;
        assert_eq!(consumer.take(1)[0].id, round);
        times.push(began.elapsed());
        assert_eq!(two.memory.get::<[u8; 8]>(64)?, back, "every byte is right");
    }
    Ok(times)
}

const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 8;

/// Blocks written and read back, as storage does; every byte is checked.
fn blocks(device: &Device, consumer: &Consumer, rounds: u64) -> Result<usize, Error> {
    let served = device.cq(64)?;
    let two = connected_qps(device, consumer, &served, 3 * BLOCKS * BLOCK)?;
    let at = |part: usize, block: usize| (part * BLOCKS + block) * BLOCK;
    for round in 0..rounds {
        for block in 0..BLOCKS {
            let fill = vec![(round as u8).wrapping_mul(31) ^ block as u8; BLOCK];
            two.memory.write_at(at(0, block), &fill)?;
            let (from, to) = (
                [two.memory.sge(at(0, block), BLOCK)?],
                [two.memory.sge(at(2, block), BLOCK)?],
            );
            let remote = two.memory.remote_addr(at(1, block))?;
            let request = |op, flags, data| SendWr {
                id: block as u64,
                op,
                flags,
                data: Data::Gather(data),
            };
            let write = SendOp::Write {
                remote,
                immediate: None,
            };
            let read = SendOp::Read {
                remote,
                local_invalidate: None,
            };
            // A read is served after the writes before it were placed.
            let list = [
                request(write, Flags::SIGNALED, &from),
                request(read, Flags::SIGNALED, &to),
            ];
            two.near.post_send(&list)?;
        }
        consumer.take(2 * BLOCKS);
        for block in 0..BLOCKS {
            let mut got = vec![0; BLOCK];
            two.memory.read_at(at(2, block), &mut got)?;
            let fill = (round as u8).wrapping_mul(31) ^ block as u8;
            assert!(got.iter().all(|b| *b == fill), "every byte is right");
        }
    }
    Ok(2 * rounds as usize * BLOCKS * BLOCK)
}

fn main() -> Result<(), Error> {
    let mut config = Config::load().map_err(Error::Config)?;
    config.set("handlers", "2").map_err(Error::Config)?;
    let device = Device::with(config)?;
    let all = device.processors()?;
    let (first, last) = (all[0], all[all.len() - 1]);
    println!(
        "{} completion handlers, {} processors",
        device.handler_limit(),
        all.len()
    );
    let at = |processor, class, moderation| HandlerOptions {
        affinity: Affinity::Processors(vec![processor]),
        class,
        moderation: Some(moderation),
        arming: None,
        callback: None,
    };
    let soon = at(first, Class::Latency, Moderation::Off);
    let ipc = Consumer::new(&device, "messages", Arm::Solicited, soon)?;
    // Storage prefers fewer notifications.
    let seldom = Hold {
        count: 4,
        delay: Duration::from_micros(200),
    };
    let bulk = at(last, Class::Bulk, Moderation::Fixed(seldom));
    let storage = Consumer::new(&device, "storage", Arm::Next, bulk)?;

    let (times, moved) = std::thread::scope(|scope| {
        let talk = scope.spawn(|| messages(&device, &ipc, 500));
        let moved = blocks(&device, &storage, 20);
        let times = talk.join().unwrap_or(Err(Error::Timeout));
        (times, moved)
    });
    let (mut times, moved) = (times?, moved?);
    times.sort_unstable();
    println!(
        "messages: {} round trips, half of them within {:?}",
        times.len(),
        times[times.len() / 2]
    );
    println!("storage: {moved} bytes written and read back");
    assert_eq!(ipc.report(), [first]);
    assert_eq!(storage.report(), [last]);

    // N8: nothing is outstanding any more.
    let ended = device.shut_down(Duration::from_secs(5))?;
    println!(
        "shut down: {} queue pairs done, {} flushed",
        ended.finished, ended.flushed
    );
    Ok(())
}
