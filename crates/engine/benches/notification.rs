//! The end-to-end cost of notification: from a completion to the code that waits for it (docs/performance.md).
//! Each figure is printed beside what the operating system itself needs in the same run; medians of several rounds. Nothing is asserted.
//! Arguments choose sections: `cargo bench -p verbena-engine --bench notification -- priorities`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use verbena_engine::notify::handler::{Affinity, Callback, Class};
use verbena_engine::sys::{self, Channel};
use verbena_engine::{
    CompletionQueue, Config, Engine, HandlerOptions, QueuePair, QueuePairOptions,
};
use verbena_events::moderation::{Hold, Moderation};
use verbena_nic::{Arm, QpState, ReceiveWr, Wc};

const ROUNDS: usize = 5;
const WAKES: usize = 4000;
const SPAN: Duration = Duration::from_millis(400);

/// A queue pair in the error state: a request posted to it completes at once, on the posting thread, without a network.
struct Source {
    qp: QueuePair,
    cq: Arc<CompletionQueue>,
}

impl Source {
    fn new(engine: &Engine) -> Source {
        let pd = engine.function().allocate_pd().unwrap();
        let cq = Arc::new(engine.create_cq(1 << 16).unwrap());
        let options = QueuePairOptions::new(pd);
        let qp = engine.create_qp(&cq, &cq, options).unwrap();
        qp.modify(QpState::Init).unwrap();
        qp.modify(QpState::Err).unwrap();
        Source { qp, cq }
    }

    fn complete(&self) {
        let wr = ReceiveWr {
            id: 1,
            scatter: &[],
        };
        self.qp.post_receive(&wr).unwrap();
    }

    fn drain(&self) -> u64 {
        let mut some = [Wc::default(); 64];
        let mut all = 0;
        loop {
            match self.cq.poll(&mut some) {
                0 => return all,
                n => all += n as u64,
            }
        }
    }
}

fn engine() -> Engine {
    let mut config = Config::from_parts(None, std::iter::empty()).unwrap();
    config.set("handlers", "8").unwrap();
    Engine::new(config).unwrap()
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn print_percentiles(name: &str, times: &[Duration]) {
    let micros = |percent| percentile(times, percent).as_secs_f64() * 1e6;
    println!("  {name:<30} {:>8.2}{:>8.2}", micros(50), micros(99));
}

/// Long enough for a waiting thread to fall asleep.
fn pause() {
    let until = Instant::now() + Duration::from_micros(60);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Rings, and measures the time until the thread that sleeps on the channel is awake.
fn wakes(ring: impl Fn(), channel: &Arc<Channel>, ready: impl Fn() + Send) -> Vec<Duration> {
    let ((awake, times), (sleepy, sleeps)) = (mpsc::channel(), mpsc::channel());
    let mut all = Vec::with_capacity(WAKES);
    std::thread::scope(|scope| {
        let sleeper = channel.clone();
        scope.spawn(move || {
            for _ in 0..WAKES {
                ready();
                sleepy.send(()).unwrap();
                sleeper.take().unwrap();
                awake.send(Instant::now()).unwrap();
            }
        });
        for _ in 0..WAKES {
            sleeps.recv().unwrap();
            pause();
            let began = Instant::now();
            ring();
            all.push(times.recv().unwrap() - began);
        }
    });
    all.sort();
    all
}

fn wake_up() {
    println!("wake-up of a sleeper, µs             p50     p99");
    let (mut ratios, mut last) = (Vec::new(), None);
    for _ in 0..ROUNDS {
        let bare = Arc::new(Channel::new().unwrap());
        let plain = wakes(|| bare.ring(), &bare, || ());
        let engine = engine();
        let source = Source::new(&engine);
        let channel = Arc::new(Channel::new().unwrap());
        source.cq.set_notify(Some(channel.clone()));
        let cq = source.cq.clone();
        let arm = move || {
            let mut some = [Wc::default(); 4];
            cq.arm(Arm::Next);
            while cq.poll(&mut some) > 0 {}
        };
        let armed = wakes(|| source.complete(), &channel, arm);
        let p50 = |times: &[Duration]| percentile(times, 50).as_secs_f64();
        ratios.push(p50(&armed) / p50(&plain));
        last = Some((plain, armed));
    }
    if let Some((plain, armed)) = last {
        print_percentiles("bare eventfd", &plain);
        print_percentiles("armed completion queue", &armed);
    }
    let ratio = median(ratios);
    println!("  ratio of medians, median of {ROUNDS} rounds: {ratio:.2}\n");
}

/// A handler that arms its queue again and drains it.
fn draining(source: &Arc<Source>, drained: &Arc<AtomicU64>, told: &Arc<AtomicU64>) -> Callback {
    let (source, drained, told) = (Arc::downgrade(source), drained.clone(), told.clone());
    Arc::new(move |_| {
        told.fetch_add(1, Ordering::Relaxed);
        if let Some(source) = source.upgrade() {
            source.cq.arm(Arm::Next);
            drained.fetch_add(source.drain(), Ordering::Relaxed);
        }
    })
}

/// Rates per second.
struct Load {
    completions: f64,
    notifications: f64,
    signals: f64,
}

/// Sources with a thread and a handler each.
fn load(places: &[Affinity], moderation: Moderation, sources: usize) -> Load {
    let engine = engine();
    let (drained, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let one = |_| Arc::new(Source::new(&engine));
    let all: Vec<Arc<Source>> = (0..sources).map(one).collect();
    for (source, place) in all.iter().zip(places.iter().cycle()) {
        let options = HandlerOptions {
            callback: Some(draining(source, &drained, &told)),
            affinity: place.clone(),
            class: Class::Latency,
            moderation: Some(moderation),
            arming: None,
        };
        let id = engine.set_handler(&options).unwrap();
        source.cq.set_handler(Some(id)).unwrap();
        source.cq.arm(Arm::Next);
    }
    let (stop, before) = (AtomicBool::new(false), engine.interrupts().0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for source in &all {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if source.cq.cq().len() < 1 << 15 {
                        source.complete();
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
        }
        // real time: the length of the measurement.
        std::thread::sleep(SPAN);
        stop.store(true, Ordering::Relaxed);
    });
    let seconds = began.elapsed().as_secs_f64();
    Load {
        completions: drained.load(Ordering::Relaxed) as f64 / seconds,
        notifications: told.load(Ordering::Relaxed) as f64 / seconds,
        signals: (engine.interrupts().0 - before) as f64 / seconds,
    }
}

fn runs(places: &[Affinity], moderation: Moderation, sources: usize) -> Vec<Load> {
    let one = |_| load(places, moderation, sources);
    (0..ROUNDS).map(one).collect()
}

fn pinned(processor: u16) -> Affinity {
    Affinity::Processors(vec![processor])
}

fn rates() {
    let processors = sys::processors().unwrap();
    println!("completions told and drained          M/s   told k/s   signals k/s");
    let spread: Vec<Affinity> = processors.iter().map(|&p| pinned(p)).collect();
    for (name, places) in [
        ("handlers on one processor", vec![pinned(processors[0])]),
        ("one handler per processor", spread),
        ("inline, on the completing thread", vec![Affinity::Inline]),
    ] {
        let runs = runs(&places, Moderation::Off, processors.len());
        let of = |pick: fn(&Load) -> f64| median(runs.iter().map(pick).collect());
        let (millions, told) = (of(|l| l.completions) / 1e6, of(|l| l.notifications) / 1e3);
        let signals = of(|l| l.signals) / 1e3;
        println!("  {name:<33} {millions:>6.2} {told:>10.1} {signals:>13.1}");
    }
    println!();
}

fn moderation() {
    let processor = sys::processors().unwrap()[0];
    println!("moderation                 signals per 1000 completions   completions M/s");
    let fixed = Hold::new(64, Duration::from_micros(100)).unwrap();
    for (name, moderation) in [
        ("off", Moderation::Off),
        ("fixed, 64 or 100 µs", Moderation::Fixed(fixed)),
        ("adaptive", Moderation::Adaptive),
    ] {
        let runs = runs(&[pinned(processor)], moderation, 1);
        let per = |l: &Load| l.signals / l.completions * 1e3;
        let per = median(runs.iter().map(per).collect());
        let rate = median(runs.iter().map(|l| l.completions / 1e6).collect());
        println!("  {name:<24} {per:>20.2} {rate:>22.2}");
    }
    println!();
}

/// The time from a completion to its handler.
fn reaction_times(engine: &Engine, processor: u16) -> Vec<Duration> {
    let (tell, told) = mpsc::channel();
    let (source, tell) = (Source::new(engine), Mutex::new(tell));
    let options = HandlerOptions {
        callback: Some(Arc::new(move |_| {
            let _ = tell.lock().unwrap().send(Instant::now());
        })),
        affinity: pinned(processor),
        class: Class::Latency,
        ..HandlerOptions::default()
    };
    let id = engine.set_handler(&options).unwrap();
    source.cq.set_handler(Some(id)).unwrap();
    let mut all = Vec::with_capacity(WAKES);
    for _ in 0..WAKES {
        pause();
        source.cq.arm(Arm::Next);
        let began = Instant::now();
        source.complete();
        all.push(told.recv().unwrap() - began);
        source.drain();
    }
    engine.clear_handler(id).unwrap();
    all.sort();
    all
}

/// How handlers of another class saturate the processor.
#[derive(Clone, Copy)]
enum Saturation {
    /// One callback that does not return.
    OneCallback,
    /// Callbacks of 20 µs, each of which raises the next event of its queue, for this many queues: there is always a backlog.
    Backlog(usize),
}

/// The same while handlers of this class occupy the processor all the time; also returns how many of their callbacks began.
fn reaction_beside(
    engine: &Engine,
    processor: u16,
    class: Class,
    how: Saturation,
) -> (Vec<Duration>, u64) {
    let (stop, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let queues = match how {
        Saturation::OneCallback => 1,
        Saturation::Backlog(queues) => queues,
    };
    let mut loads = Vec::new();
    for _ in 0..queues {
        let source = Arc::new(Source::new(engine));
        let (stops, counts, own) = (stop.clone(), calls.clone(), Arc::downgrade(&source));
        let callback: Callback = Arc::new(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            let until = Instant::now() + Duration::from_micros(20);
            while !stops.load(Ordering::Relaxed)
                && (matches!(how, Saturation::OneCallback) || Instant::now() < until)
            {
                std::hint::spin_loop();
            }
            if let Some(source) = own.upgrade().filter(|_| !stops.load(Ordering::Relaxed)) {
                source.drain();
                source.cq.arm(Arm::Next);
                source.complete();
            }
        });
        let options = HandlerOptions {
            callback: Some(callback),
            affinity: pinned(processor),
            class,
            ..HandlerOptions::default()
        };
        let id = engine.set_handler(&options).unwrap();
        source.cq.set_handler(Some(id)).unwrap();
        source.cq.arm(Arm::Next);
        source.complete();
        loads.push((id, source));
    }
    let times = reaction_times(engine, processor);
    stop.store(true, Ordering::Relaxed);
    for (id, _) in &loads {
        engine.clear_handler(*id).unwrap();
    }
    (times, calls.load(Ordering::Relaxed))
}

fn priorities() {
    let all = sys::processors().unwrap();
    let (here, there) = (all[0], *all.last().unwrap());
    // The completing thread must not share the processor of the handler.
    sys::set_affinity(&[here]).unwrap();
    println!("time to a latency handler, µs        p50     p99");
    let cases = [
        ("beside one busy bulk handler", Saturation::OneCallback),
        ("beside a bulk backlog", Saturation::Backlog(6)),
    ];
    let mut ratios = cases.map(|_| (Vec::new(), Vec::new()));
    for round in 1..=ROUNDS {
        let engine = engine();
        let idle = reaction_times(&engine, there);
        if round == ROUNDS {
            print_percentiles("on an idle processor", &idle);
        }
        for ((name, how), (p50s, p99s)) in cases.into_iter().zip(&mut ratios) {
            let (busy, calls) = reaction_beside(&engine, there, Class::Bulk, how);
            let ratio = |percent| {
                let of = |times: &[Duration]| percentile(times, percent).as_secs_f64();
                of(&busy) / of(&idle)
            };
            p50s.push(ratio(50));
            p99s.push(ratio(99));
            if round == ROUNDS {
                print_percentiles(name, &busy);
                println!("    {calls} bulk callbacks meanwhile");
            }
        }
    }
    for ((name, _), (p50s, p99s)) in cases.into_iter().zip(ratios) {
        let (p50, p99) = (median(p50s), median(p99s));
        println!("  {name}, ratio to idle, median of {ROUNDS}: p50 {p50:.2}, p99 {p99:.2}");
    }
    sys::set_affinity(&all).unwrap();
}

fn main() {
    let sections: [(&str, fn()); 4] = [
        ("wake_up", wake_up),
        ("rates", rates),
        ("moderation", moderation),
        ("priorities", priorities),
    ];
    // Cargo adds an option of its own.
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    for (name, section) in sections {
        if chosen.is_empty() || chosen.iter().any(|one| one == name) {
            section();
        }
    }
}
