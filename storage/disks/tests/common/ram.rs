//! A disk in memory for tests: completes late, out of order and with failures, as configured. Blocks are copied only when a request
//! completes, so that a test detects memory that is reused too early.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena::{Access, Config, Device, Memory};
use verbena_storage::{Blocks, Done, Error, Extent, Failure, Geometry, Request};

/// The adapter of all disks, independent of the environment.
static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    let config = Config::from_parts(None, std::iter::empty()).expect("the defaults");
    Device::with(config).expect("an adapter")
});

/// A disk in memory.
pub(crate) struct RamDisk {
    pub(crate) geometry: Geometry,
    pub(crate) bytes: Vec<u8>,
    pub(crate) depth: usize,
    /// Polls that a request takes.
    pub(crate) delay: u32,
    /// State of the random numbers that choose the next completion; 0 keeps the order.
    pub(crate) rng: u64,
    /// Requests on these blocks fail.
    pub(crate) bad: Vec<(Range<u64>, Failure)>,
    /// Requests after which the disk is lost.
    pub(crate) requests_left: Option<usize>,
    /// Requests on these blocks are not accepted.
    pub(crate) rejected: Vec<Range<u64>>,
    /// Limit on the number of allocations.
    pub(crate) memories: Option<usize>,
    /// Accepts no memory but its own.
    pub(crate) foreign: bool,
    /// Counters.
    pub(crate) counters: RamCounters,
    outstanding: Vec<(u64, Request, u32)>,
}

/// Counters of a disk.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct RamCounters {
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    pub(crate) fua: usize,
    pub(crate) flushes: usize,
    pub(crate) unmaps: usize,
    pub(crate) zeroes: usize,
    /// Most requests outstanding at once.
    pub(crate) deepest: usize,
}

#[allow(dead_code, reason = "not every test uses all of it")]
impl RamDisk {
    /// A disk of zeroes.
    pub(crate) fn new(blocks: u64, block_size: u32) -> RamDisk {
        let bytes = vec![0; (blocks * u64::from(block_size)) as usize];
        RamDisk {
            geometry: Geometry {
                blocks,
                block_size,
                read_only: false,
                can_unmap: true,
                can_zero: true,
                optimal: 0,
                maximal: 1 << 20,
                max_bulk_blocks: 4096,
            },
            bytes,
            depth: 32,
            delay: 0,
            rng: 0,
            bad: Vec::new(),
            requests_left: None,
            rejected: Vec::new(),
            memories: None,
            foreign: false,
            counters: RamCounters::default(),
            outstanding: Vec::new(),
        }
    }

    /// A disk of pseudo-random bytes.
    pub(crate) fn filled(blocks: u64, block_size: u32, seed: u64) -> RamDisk {
        let mut ram = RamDisk::new(blocks, block_size);
        ram.bytes = noise(ram.bytes.len(), seed);
        ram
    }

    /// Completes late, and in any order.
    pub(crate) fn reordering(mut self, delay: u32, dice: u64) -> RamDisk {
        self.delay = delay;
        self.rng = dice;
        self
    }

    fn random_below(&mut self, of: usize) -> usize {
        if self.rng == 0 {
            return 0;
        }
        self.rng = next(self.rng);
        (self.rng >> 33) as usize % of
    }

    fn bytes_of(&self, at: Extent) -> Option<Range<usize>> {
        let end = at.lba.checked_add(u64::from(at.blocks))?;
        let size = u64::from(self.geometry.block_size);
        (end <= self.geometry.blocks).then(|| (at.lba * size) as usize..(end * size) as usize)
    }

    fn execute(&mut self, request: &Request) -> Result<(), Failure> {
        let at = match request {
            Request::Read { at, .. } | Request::Write { at, .. } => *at,
            Request::Unmap(at) | Request::Zero(at) => *at,
            Request::Flush => {
                self.counters.flushes += 1;
                return Ok(());
            }
        };
        let end = at.lba + u64::from(at.blocks);
        let hit = |(range, _): &&(Range<u64>, Failure)| at.lba < range.end && range.start < end;
        if let Some((_, failure)) = self.bad.iter().find(hit) {
            return Err(failure.clone());
        }
        let refused = |what: &str| Failure::Refused(format!("{what}: {at:?}"));
        let range = self.bytes_of(at).ok_or_else(|| refused("out of range"))?;
        let fits = match request {
            Request::Read { .. } | Request::Write { .. } => {
                range.len() <= self.geometry.maximal as usize
            }
            _ => at.blocks <= self.geometry.max_bulk_blocks,
        };
        if range.is_empty() || !fits {
            return Err(refused("length"));
        }
        if self.geometry.read_only && !matches!(request, Request::Read { .. }) {
            return Err(Failure::ReadOnly);
        }
        let seen = &mut self.counters;
        match request {
            Request::Read { into, .. } => {
                seen.reads += 1;
                let put = into.memory.write_at(into.offset, &self.bytes[range]);
                put.map_err(|e| Failure::Refused(e.to_string()))?;
            }
            Request::Write { from, fua, .. } => {
                seen.writes += 1;
                seen.fua += usize::from(*fua);
                let got = from.memory.read_at(from.offset, &mut self.bytes[range]);
                got.map_err(|e| Failure::Refused(e.to_string()))?;
            }
            Request::Unmap(_) if self.geometry.can_unmap => {
                seen.unmaps += 1;
                self.bytes[range].fill(0);
            }
            Request::Zero(_) if self.geometry.can_zero => {
                seen.zeroes += 1;
                self.bytes[range].fill(0);
            }
            Request::Unmap(_) | Request::Zero(_) => return Err(refused("no such command")),
            Request::Flush => {}
        }
        Ok(())
    }
}

impl Blocks for RamDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn memory(&mut self, len: usize) -> Result<Memory, Error> {
        if let Some(left) = &mut self.memories {
            let none = || Error::Setting("no more memory".to_owned());
            *left = left.checked_sub(1).ok_or_else(none)?;
        }
        Ok(DEVICE.memory(len, Access::ALL)?)
    }

    fn accepts_memory(&self, _: &Memory) -> bool {
        !self.foreign
    }

    fn submit(&mut self, id: u64, request: Request) -> Result<(), Error> {
        let depth = self.depth;
        if self.outstanding.len() >= depth {
            return Err(Error::Full { depth });
        }
        let lba = match &request {
            Request::Read { at, .. } | Request::Write { at, .. } => Some(at.lba),
            _ => None,
        };
        let untaken = |range: &Range<u64>| lba.is_some_and(|lba| range.contains(&lba));
        if self.rejected.iter().any(untaken) {
            return Err(Error::Setting("it is not taken".to_owned()));
        }
        assert!(self.outstanding.iter().all(|f| f.0 != id), "id {id} twice");
        self.outstanding.push((id, request, self.delay));
        self.counters.deepest = self.counters.deepest.max(self.outstanding.len());
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), Error> {
        for flying in &mut self.outstanding {
            flying.2 = flying.2.saturating_sub(1);
        }
        // Not all at once.
        let mut ripe = (self.outstanding.iter().filter(|f| f.2 == 0).count()).div_ceil(2);
        while ripe > 0 {
            ripe -= 1;
            let roll = self.random_below(ripe + 1);
            let nth = self
                .outstanding
                .iter()
                .enumerate()
                .filter(|(_, f)| f.2 == 0);
            let Some(at) = nth.map(|(at, _)| at).nth(roll) else {
                break;
            };
            let (id, request, _) = self.outstanding.remove(at);
            if let Some(left) = &mut self.requests_left {
                *left = left.checked_sub(1).ok_or_else(|| {
                    self.outstanding.clear();
                    Error::Setting("the disk was lost".into())
                })?;
            }
            let result = self.execute(&request);
            done.push(Done { id, result });
        }
        Ok(())
    }

    fn wait(&mut self, beside: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<(), Error> {
        if !self.outstanding.is_empty() {
            return Ok(());
        }
        let mut fds: Vec<PollFd<'_>> = beside
            .iter()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        assert!(!fds.is_empty() || timeout.is_some(), "asleep for ever");
        let timeout = timeout.map(|t| Timespec::try_from(t).expect("a time"));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => panic!("poll: {error}"),
        }
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

fn next(state: u64) -> u64 {
    let mixed = state ^ (state << 13);
    let mixed = mixed ^ (mixed >> 7);
    mixed ^ (mixed << 17)
}

/// Pseudo-random bytes.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = next(state);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
