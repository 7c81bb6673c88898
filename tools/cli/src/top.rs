//! Rates of the queue pairs of running processes, from the counters that their adapters keep anyway, read again and again.
//! Nothing is counted for this. What other processes send is bounded, as everything that is read from them, and a process that does not answer delays
//! the others once and is asked again later.

mod rows;
mod table;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::events::{Error, list, program};
use crate::objects::{Object, objects};
use crate::why::is_stopped;

pub use rows::{Pair, Process, Rates};
pub use table::{Column, View, render};

/// Processes that are shown at most.
pub const MAX_PROCESSES: usize = 256;
/// How long a process that did not answer is not asked again.
const REST: Duration = Duration::from_secs(10);

/// Reads counters, and computes rates from what it read before.
#[derive(Debug, Default)]
pub struct Sampler {
    before: BTreeMap<(u32, u32, u64), Counters>,
    wakeups: BTreeMap<u32, u64>,
    at: Option<Instant>,
    silent: BTreeMap<u32, Instant>,
}

/// What is counted for a queue pair.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    messages_out: u64,
    messages_in: u64,
    bytes_out: u64,
    bytes_in: u64,
    rnr: u64,
    retries: u64,
    stalled_us: u64,
}

impl Counters {
    fn of(qp: &Object) -> Counters {
        let number = |key| qp.number(key).unwrap_or(0);
        Counters {
            messages_out: number("messages_out"),
            messages_in: number("messages_in"),
            bytes_out: number("bytes_out"),
            bytes_in: number("bytes_in"),
            rnr: number("rnr_sent").saturating_add(number("rnr_received")),
            retries: number("retransmitted").saturating_add(number("repeated")),
            stalled_us: number("stalled_us"),
        }
    }

    /// Per second; a counter that went back belongs to another queue pair with the same number.
    fn rates_since(&self, before: &Counters, seconds: f64) -> Rates {
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Rates {
            messages_out: rate(self.messages_out, before.messages_out),
            messages_in: rate(self.messages_in, before.messages_in),
            bytes_out: rate(self.bytes_out, before.bytes_out),
            bytes_in: rate(self.bytes_in, before.bytes_in),
            rnr: rate(self.rnr, before.rnr),
            retries: rate(self.retries, before.retries),
            // Of the time; the kernel's clock and ours differ a little.
            stalled: (rate(self.stalled_us, before.stalled_us) / 1e6).min(1.0),
        }
    }
}

impl Sampler {
    /// Reads all processes of this user. The rates are zero the first time.
    pub fn sample(&mut self) -> Result<Vec<Process>, Error> {
        let now = Instant::now();
        let elapsed = self.at.map(|at| now.duration_since(at).as_secs_f64());
        let (mut seen, mut wakeups, mut processes) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for watchable in list()?.into_iter().take(MAX_PROCESSES) {
            let pid = watchable.pid;
            let found = self.read(pid, now);
            let (found, is_silent) = match found {
                Ok(found) => (found, false),
                Err(Error::Silent { .. }) => (Vec::new(), true),
                // It ended meanwhile, or belongs to another user.
                Err(_) => continue,
            };
            let woken = wakeups_of(pid);
            let wake_rate = match (self.wakeups.get(&pid), elapsed) {
                (Some(before), Some(seconds)) => woken.saturating_sub(*before) as f64 / seconds,
                _ => 0.0,
            };
            wakeups.insert(pid, woken);
            let mut process = Process {
                pid,
                program: program(pid).unwrap_or_else(|| "?".to_owned()),
                is_silent,
                wakeups: wake_rate,
                pairs: Vec::new(),
            };
            for qp in found.iter().filter(|object| object.kind == "qp") {
                let Some(number) = qp.number("number") else {
                    continue;
                };
                let (key, counters) = ((pid, qp.adapter, number), Counters::of(qp));
                let rates = match (self.before.get(&key), elapsed) {
                    (Some(before), Some(seconds)) => counters.rates_since(before, seconds),
                    _ => Rates::default(),
                };
                seen.insert(key, counters);
                process.pairs.push(Pair::new(qp, number, rates));
            }
            processes.push(process);
        }
        (self.before, self.wakeups, self.at) = (seen, wakeups, Some(now));
        self.silent
            .retain(|_, since| now.duration_since(*since) < REST);
        Ok(processes)
    }

    fn read(&mut self, pid: u32, now: Instant) -> Result<Vec<Object>, Error> {
        if is_stopped(pid) || self.silent.contains_key(&pid) {
            return Err(Error::Silent { pid });
        }
        let found = objects(pid);
        if matches!(found, Err(Error::Silent { .. })) {
            self.silent.insert(pid, now);
        }
        found
    }
}

/// How often threads of a process went to sleep and were woken, so far.
fn wakeups_of(pid: u32) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let switches = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks.flatten().filter_map(switches).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_per_second() {
        let at = |n: u64| {
            let line = format!(
                "qp number=1 messages_out={n} bytes_in={} rnr_sent=1 rnr_received={n} retransmitted={n} repeated=2 stalled_us={}",
                n * 10,
                n * 100_000
            );
            Counters::of(&Object::parse(0, &line).unwrap())
        };
        let rates = at(12).rates_since(&at(2), 2.0);
        assert_eq!((rates.messages_out, rates.bytes_in), (5.0, 50.0));
        assert_eq!((rates.rnr, rates.retries, rates.stalled), (5.0, 5.0, 0.5));
        assert_eq!(
            at(2).rates_since(&at(12), 2.0),
            Rates::default(),
            "another queue pair"
        );
        let huge = Counters::of(
            &Object::parse(
                0,
                "qp rnr_sent=18446744073709551615 rnr_received=1 bytes_out=-1",
            )
            .unwrap(),
        );
        assert_eq!((huge.rnr, huge.bytes_out), (u64::MAX, 0));
    }

    #[test]
    fn own_wakeups_are_counted() {
        let pid = std::process::id();
        let before = wakeups_of(pid);
        let (tell, told) = std::sync::mpsc::channel();
        let waits = std::thread::spawn(move || told.recv());
        verbena_testing::wait_until("a thread that sleeps", || wakeups_of(pid) > before);
        tell.send(()).unwrap();
        waits.join().unwrap().unwrap();
        assert_eq!(wakeups_of(u32::MAX), 0);
    }
}
