//! `verbena pcap`: copies of what crosses the connections of running programs, as pcapng. Frames come from a ring in memory that the adapter writes and this
//! process reads; the program is never waited for and never waits. What it writes is checked, and reaches no terminal.

pub mod file;
pub mod frames;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbena::unstable::capture::client::{Capture, CaptureError, Options};
use verbena::unstable::capture::record::{Kind, Record};
use verbena::unstable::capture::{NAME, RING_SIZES, SNAP_LENS, Totals};
use verbena_wire::roce::Bth;

use crate::events::{Error as WatchError, adapters_of, processes_with, program};
use crate::objects::{Object, objects};
use file::{MAX_INTERFACES, Output};
use frames::{FrameSink, Frames};

/// How often an empty ring is looked at.
const POLL: Duration = Duration::from_millis(1);
/// How often further adapters are looked for.
const LOOK: Duration = Duration::from_millis(20);
/// Records of one adapter that are read before the next one has its turn.
const BATCH: usize = 4096;
/// Ancestors of a process that are looked at.
const MAX_ANCESTORS: usize = 64;
/// The smallest and the default ring.
pub const MIN_RING: u64 = *RING_SIZES.start() as u64;
/// The largest ring.
pub const MAX_RING: u64 = *RING_SIZES.end() as u64;

/// What is captured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The process.
    pub pid: u32,
    /// One of its queue pairs, by any of its numbers.
    pub qp: Option<u64>,
    /// Adapters that are opened later, and processes that it starts, are captured, too.
    pub follow: bool,
    /// Bytes of a frame that are kept.
    pub snap_len: u32,
    /// Bytes of the ring of an adapter; rounded up to a power of two.
    pub ring: u32,
}

/// Why a process cannot be captured.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// It cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// One of its adapters cannot be captured.
    #[error("process {pid} cannot be captured: {cause}")]
    Capture {
        /// Its id.
        pid: u32,
        /// The reason.
        cause: CaptureError,
    },
    /// It has no such queue pair of a connection.
    #[error(
        "process {pid} has no queue pair {qp} of a connection; `verbena devinfo {pid}` lists them"
    )]
    NoQueuePair {
        /// Its id.
        pid: u32,
        /// The number.
        qp: u64,
    },
    /// The output cannot be written.
    #[error("the capture cannot be written: {0}")]
    Output(#[from] io::Error),
}

/// What was captured of one adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Its adapter.
    pub adapter: u32,
    /// How much.
    pub totals: Totals,
}

/// One adapter that is captured.
struct Source {
    captured: Captured,
    capture: Capture,
    frames: Frames,
    interface: usize,
    only: Option<Selected>,
    ended: bool,
}

/// The queue pair whose frames are captured.
#[derive(Debug, Clone, Copy)]
struct Selected {
    number: u32,
    /// Over RoCEv2: the peer's address, and the numbers in packets to this side and to the peer.
    packets: Option<(IpAddr, u32, u32)>,
}

impl Selected {
    fn find(pid: u32, qp: u64) -> Result<(u32, Selected), PcapError> {
        let missing = || PcapError::NoQueuePair { pid, qp };
        let all = objects(pid)?;
        // Its number in completions is in the line that says what it waits for.
        let named = |object: &&Object| {
            let numbers = ["number", "wc_qpn", "qpn"];
            let has = |key: &&str| object.number(key) == Some(qp);
            ["qp", "wait"].contains(&object.kind.as_str()) && numbers.iter().any(has)
        };
        let found = all.iter().find(named).ok_or(missing())?;
        let is_it = |object: &&Object| {
            let same = |key| object.number(key) == found.number(key);
            let is_connected = !["Ud", "Ulp"].contains(&object.get("type").unwrap_or_default());
            object.kind == "qp" && object.adapter == found.adapter && same("number") && is_connected
        };
        let object = all.iter().find(is_it).ok_or(missing())?;
        let number = |key| u32::try_from(object.number(key)?).ok();
        let peer = object.get("peer").and_then(|peer| peer.parse().ok());
        let peer = peer.map(|peer: std::net::SocketAddr| peer.ip());
        let selected = Selected {
            number: number("number").unwrap_or(0),
            packets: (|| Some((peer?, number("qpn")?, number("peer_qpn")?)))(),
        };
        Ok((object.adapter, selected))
    }

    /// Streams are selected by the adapter.
    fn admits(&self, record: &Record, data: &[u8]) -> bool {
        let Kind::Packet { .. } = record.kind else {
            return true;
        };
        let Some((peer, own, theirs)) = self.packets else {
            return false;
        };
        let wanted = if record.sent { theirs } else { own };
        let is_it = |bth: Bth| bth.dest_qpn.get() == wanted;
        record.peer.ip() == peer && Bth::parse(data).is_ok_and(is_it)
    }
}

/// Passes frames of one adapter to the output.
struct To<'a>(&'a mut Output, usize);

impl FrameSink for To<'_> {
    fn frame(&mut self, nanos: u64, bytes: &[u8], len: usize) -> io::Result<()> {
        self.0.frame(self.1, nanos, bytes, len)
    }
}

/// A capture of a process.
pub struct Session<'a> {
    plan: Plan,
    output: &'a mut Output,
    sources: Vec<Source>,
    /// Adapters that were captured and have ended.
    done: Vec<Captured>,
    looked: Option<Instant>,
}

impl<'a> Session<'a> {
    /// Captures a running process; an error if it has no adapter, unless later ones are waited for.
    pub fn attach(plan: Plan, output: &'a mut Output) -> Result<Session<'a>, PcapError> {
        let mut session = Session {
            plan,
            output,
            sources: Vec::new(),
            done: Vec::new(),
            looked: None,
        };
        let pid = plan.pid;
        match plan.qp {
            Some(qp) => {
                let (adapter, selected) = Selected::find(pid, qp)?;
                session.add(pid, adapter, Some(selected))?;
            }
            None if plan.follow => session.look(),
            None => {
                program(pid).ok_or(WatchError::NoProcess { pid })?;
                for adapter in adapters_of(pid, NAME)? {
                    session.add(pid, adapter, None)?;
                }
            }
        }
        Ok(session)
    }

    /// Adapters that are captured.
    pub fn adapters(&self) -> usize {
        self.sources.len()
    }

    fn add(&mut self, pid: u32, adapter: u32, only: Option<Selected>) -> Result<(), PcapError> {
        let options = Options {
            ring: self.plan.ring.next_power_of_two(),
            snap_len: self
                .plan
                .snap_len
                .clamp(*SNAP_LENS.start(), *SNAP_LENS.end()),
            qp: only.map_or(0, |only| only.number),
        };
        let failed = |cause| PcapError::Capture { pid, cause };
        let capture = Capture::attach(pid, adapter, options).map_err(failed)?;
        let program = program(pid).unwrap_or_else(|| "?".to_owned());
        let name = format!("{program} {pid}/{adapter}");
        let interface = self.output.add_interface(name)?;
        self.sources.push(Source {
            captured: Captured {
                pid,
                program,
                adapter,
                totals: Totals::default(),
            },
            capture,
            frames: Frames::default(),
            interface,
            only,
            ended: false,
        });
        Ok(())
    }

    /// Attaches to adapters of the process and of those that it started, which are not captured yet.
    fn look(&mut self) {
        self.looked = Some(Instant::now());
        let Ok(found) = processes_with(NAME) else {
            return;
        };
        for (pid, adapters) in found {
            if !is_descendant(pid, self.plan.pid) {
                continue;
            }
            for adapter in adapters {
                let is_it =
                    |captured: &Captured| (captured.pid, captured.adapter) == (pid, adapter);
                let known = self.sources.iter().any(|source| is_it(&source.captured));
                let room = self.sources.len() + self.done.len() < MAX_INTERFACES;
                if !known && room {
                    // It may have ended meanwhile, or is captured by another process: the next look tries again.
                    let _ = self.add(pid, adapter, None);
                }
            }
        }
    }

    /// Captures until `stopped` is set, the process has ended, or the file is full; `is_running` tells of a process that has no adapter yet.
    pub fn run(
        mut self,
        stopped: &AtomicBool,
        mut is_running: impl FnMut() -> bool,
    ) -> Result<Vec<Captured>, PcapError> {
        let result = self.run_until(stopped, &mut is_running);
        // A reader that has closed the pipe gets no more; files are ended in any case.
        let ended = self.end();
        result?;
        ended?;
        Ok(self.done)
    }

    fn run_until(
        &mut self,
        stopped: &AtomicBool,
        is_running: &mut impl FnMut() -> bool,
    ) -> Result<(), PcapError> {
        loop {
            let running = is_running();
            let due = |at: Instant| at.elapsed() >= LOOK;
            if self.plan.follow && self.looked.is_none_or(due) {
                self.look();
            }
            let mut any = false;
            for source in &mut self.sources {
                any |= source.copy(self.output)?;
            }
            self.retire()?;
            if stopped.load(Ordering::Relaxed) || self.output.is_full() {
                return Ok(());
            }
            if self.sources.is_empty() && !(self.plan.follow && running) {
                return Ok(());
            }
            if !any {
                self.output.flush()?;
                std::thread::sleep(POLL);
            }
        }
    }

    /// Takes out the adapters that have ended.
    fn retire(&mut self) -> Result<(), PcapError> {
        let (ended, others) = core::mem::take(&mut self.sources)
            .into_iter()
            .partition(|source| source.ended);
        self.sources = others;
        for source in ended {
            self.done.push(source.finish(self.output)?);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), PcapError> {
        for mut source in core::mem::take(&mut self.sources) {
            source.capture.stop();
            while !self.output.is_full() && source.copy(self.output)? {}
            self.done.push(source.finish(self.output)?);
        }
        Ok(self.output.finish()?)
    }
}

impl Source {
    /// Copies what the ring has, up to a limit; true if there was something.
    fn copy(&mut self, output: &mut Output) -> Result<bool, PcapError> {
        // Before the ring is read: what was written before the end is found.
        let ended = self.capture.has_ended();
        let pid = self.captured.pid;
        for count in 0..BATCH {
            if output.is_full() {
                return Ok(true);
            }
            let next = self.capture.next_record();
            let next = next.map_err(|cause| PcapError::Capture { pid, cause })?;
            let Some((record, data)) = next else {
                self.ended |= ended;
                return Ok(count > 0);
            };
            self.captured.totals.captured += 1;
            self.captured.totals.dropped = record.dropped;
            if self.only.is_none_or(|only| only.admits(&record, data)) {
                let mut to = To(output, self.interface);
                self.frames.add(&record, data, &mut to)?;
            }
            output.set_totals(self.interface, self.captured.totals);
        }
        Ok(true)
    }

    /// What was captured, the last frames that were dropped included if the adapter has told.
    fn finish(mut self, output: &mut Output) -> Result<Captured, PcapError> {
        if let Some(totals) = self.capture.stop() {
            let dropped = &mut self.captured.totals.dropped;
            *dropped = (*dropped).max(totals.dropped);
        }
        output.set_totals(self.interface, self.captured.totals);
        Ok(self.captured)
    }
}

/// Whether a process is another one, or was started by it directly or indirectly.
pub(crate) fn is_descendant(mut pid: u32, of: u32) -> bool {
    for _ in 0..MAX_ANCESTORS {
        if pid == of {
            return true;
        }
        match parent(pid) {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
