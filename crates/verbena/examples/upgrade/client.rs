//! The clients: continuous load, with a check of every answer.
//! Lost, duplicated, reordered and torn answers are detected; a client without an answer fails after a time limit.

mod session;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbena::Device;

use crate::protocol::Result;
use session::Session;

/// What all clients observed.
#[derive(Debug, Default)]
pub(crate) struct ClientReport {
    pub(crate) requests: u64,
    pub(crate) reads: u64,
    pub(crate) adds: u64,
    /// Sessions, including those opened while others were running.
    pub(crate) sessions: u64,
    /// Connections that ended before the client closed them.
    pub(crate) lost: Vec<String>,
    /// Wrong answers.
    pub(crate) wrong: Vec<String>,
    /// The newest server that answered.
    pub(crate) generation: u64,
    /// Time between the last answer of a server and the first of the next.
    pub(crate) pauses: Vec<Duration>,
}

impl ClientReport {
    fn add(&mut self, other: ClientReport) {
        self.requests += other.requests;
        self.reads += other.reads;
        self.adds += other.adds;
        self.sessions += other.sessions;
        self.lost.extend(other.lost);
        self.wrong.extend(other.wrong);
        self.generation = self.generation.max(other.generation);
        self.pauses.extend(other.pauses);
    }

    fn print(&mut self) {
        for why in self.lost.iter().take(5) {
            println!("lost: {why}");
        }
        for why in self.wrong.iter().take(5) {
            println!("wrong: {why}");
        }
        self.pauses.sort();
        let at = |at: usize| self.pauses.get(at).map_or(0.0, |p| p.as_secs_f64() * 1e3);
        println!(
            "{} pauses: median {:.3} ms, worst {:.3} ms",
            self.pauses.len(),
            at(self.pauses.len() / 2),
            at(self.pauses.len().saturating_sub(1))
        );
        println!(
            "{} requests, {} reads, {} additions in {} sessions up to generation {}: {} lost, {} wrong",
            self.requests,
            self.reads,
            self.adds,
            self.sessions,
            self.generation,
            self.lost.len(),
            self.wrong.len()
        );
    }
}

/// The command line of the process.
#[derive(Debug, Clone)]
pub(crate) struct ClientOptions {
    pub(crate) to: SocketAddr,
    pub(crate) seconds: u64,
    pub(crate) clients: u64,
    /// In addition, short sessions one after the other.
    pub(crate) newcomers: bool,
    /// Ends early when its standard input does.
    pub(crate) until_stdin_closes: bool,
}

/// Loads the server, prints what was observed, and returns whether all was right.
pub(crate) fn run(orders: &ClientOptions) -> Result<bool> {
    let device = Device::open()?;
    let stop = Arc::new(AtomicBool::new(false));
    if orders.until_stdin_closes {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read(&mut [0; 1]);
            stop.store(true, Ordering::Relaxed);
        });
    }
    let end = Instant::now() + Duration::from_secs(orders.seconds);
    let (warm, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut seen = ClientReport::default();
    let over = || stop.load(Ordering::Relaxed) || Instant::now() > end;
    let load =
        |limit: Option<u64>, warm: &AtomicU64| Session::run(&device, orders.to, limit, over, warm);
    std::thread::scope(|scope| {
        let (load, warm, ended, stop) = (&load, &warm, &ended, &stop);
        let steady: Vec<_> = (0..orders.clients)
            .map(|_| {
                scope.spawn(move || {
                    let seen = load(None, warm);
                    ended.fetch_add(1, Ordering::Relaxed);
                    seen
                })
            })
            .collect();
        let newcomers = orders.newcomers.then(|| {
            scope.spawn(move || {
                let mut seen = ClientReport::default();
                while !stop.load(Ordering::Relaxed) && ended.load(Ordering::Relaxed) == 0 {
                    seen.add(load(Some(50), &AtomicU64::new(0)));
                    if !seen.lost.is_empty() {
                        break;
                    }
                }
                seen
            })
        });
        let running = || ended.load(Ordering::Relaxed) == 0;
        while running() && warm.load(Ordering::Relaxed) < orders.clients {
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("loading");
        for thread in steady.into_iter().chain(newcomers) {
            match thread.join() {
                Ok(one) => seen.add(one),
                Err(_) => seen.wrong.push("a client panicked".into()),
            }
        }
    });
    seen.print();
    Ok(seen.lost.is_empty() && seen.wrong.is_empty())
}
