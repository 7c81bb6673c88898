//! Benchmark of a disk: requests of one size at one depth, for a time or a number. Latency is measured from the clock read before a
//! request is submitted to the clock read after its completion was polled. A load with writes overwrites its range.

mod latency;

use core::fmt;
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use crate::blocks::{Blocks, BufferRef, Extent, Request};
use crate::error::Error;
use crate::inflight::Inflight;

pub use latency::Latency;

/// Most memory of a load.
const MAX_MEMORY: usize = 1 << 30;
/// Interval of the progress callback.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Order of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Sequential, starting over at the end of the range.
    Sequential,
    /// Uniformly random.
    Random,
}

/// When to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After this number of requests.
    Requests(u64),
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The bytes accessed: whole blocks.
    pub range: Range<u64>,
    /// Order of the requests.
    pub pattern: Pattern,
    /// Percentage of reads; the others are writes.
    pub reads: u8,
    /// Bytes per request: whole blocks.
    pub size: u32,
    /// Outstanding requests.
    pub depth: usize,
    /// When to end.
    pub limit: Limit,
    /// Seed of the random numbers.
    pub seed: u64,
    /// All reads use the same memory, which stays in the cache; their data is not used.
    pub discard: bool,
}

impl Load {
    /// Buffers of writes: one for each outstanding request.
    fn write_pieces(&self) -> usize {
        if self.reads < 100 { self.depth } else { 0 }
    }

    /// Buffers of reads, which are separate, so that writes do not repeat what was read.
    fn read_pieces(&self) -> usize {
        match self.reads {
            0 => 0,
            _ if self.discard => 1,
            _ => self.depth,
        }
    }

    /// Bytes of memory needed.
    fn memory(&self) -> usize {
        let pieces = self.write_pieces().saturating_add(self.read_pieces());
        pieces.saturating_mul(self.size as usize)
    }

    /// Offset of a slot's buffer.
    fn offset(&self, slot: usize, read: bool) -> usize {
        let piece = match read {
            true if self.discard => self.write_pieces(),
            true => self.write_pieces() + slot,
            false => slot,
        };
        piece * self.size as usize
    }
}

/// Result of a load.
#[derive(Debug, Clone)]
pub struct BenchResult {
    /// Reads that succeeded.
    pub reads: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes per request.
    pub size: u32,
    /// From the first request to the last completion.
    pub elapsed: Duration,
    /// CPU time of the whole process in that time.
    pub cpu: Duration,
    /// Latency distribution.
    pub latency: Latency,
}

impl BenchResult {
    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        (self.reads + self.writes) * u64::from(self.size)
    }

    /// Requests per second.
    pub fn iops(&self) -> f64 {
        ratio(
            (self.reads + self.writes) as f64,
            self.elapsed.as_secs_f64(),
        )
    }

    /// Megabytes (10^6 bytes) per second.
    pub fn megabytes_per_second(&self) -> f64 {
        ratio(self.bytes() as f64 / 1e6, self.elapsed.as_secs_f64())
    }

    /// CPU seconds per gigabyte (10^9 bytes).
    pub fn cpu_per_gigabyte(&self) -> f64 {
        ratio(self.cpu.as_secs_f64(), self.bytes() as f64 / 1e9)
    }
}

fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

impl fmt::Display for BenchResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micro = |time: Duration| time.as_nanos() as f64 / 1e3;
        let BenchResult { reads, writes, .. } = self;
        writeln!(
            f,
            "{:.0} requests/s, {:.1} MB/s ({reads} reads, {writes} writes in {:.2} s)",
            self.iops(),
            self.megabytes_per_second(),
            self.elapsed.as_secs_f64()
        )?;
        writeln!(
            f,
            "latency min {:.1} µs, median {:.1} µs, p99 {:.1} µs, max {:.1} µs",
            micro(self.latency.min()),
            micro(self.latency.quantile(0.5)),
            micro(self.latency.quantile(0.99)),
            micro(self.latency.max())
        )?;
        write!(f, "{:.3} CPU seconds per GB", self.cpu_per_gigabyte())
    }
}

/// An outstanding request.
#[derive(Clone, Copy)]
struct OutstandingRequest {
    begun: Instant,
    read: bool,
    at: u64,
}

/// Runs a load. The callback gets the elapsed time at intervals and may stop it; what was done until then counts.
pub fn run<B: Blocks>(
    blocks: &mut B,
    load: &Load,
    watch: &mut dyn FnMut(Duration) -> ControlFlow<()>,
) -> Result<BenchResult, Error> {
    let places = slot_count(blocks, load)?;
    let memory = blocks.memory(load.memory())?;
    let mut dice = Rng(load.seed ^ 0x9E37_79B9_7F4A_7C15);
    fill(&memory, &mut dice)?;
    let per_place = load.size / blocks.geometry().block_size;
    let first = load.range.start / u64::from(blocks.geometry().block_size);

    let mut flight = Inflight::new(blocks);
    let mut free: Vec<usize> = (0..load.depth).rev().collect();
    let begun = Instant::now();
    let mut shots = vec![
        OutstandingRequest {
            begun,
            read: true,
            at: 0
        };
        load.depth
    ];
    let mut score = BenchResult {
        reads: 0,
        writes: 0,
        size: load.size,
        elapsed: Duration::ZERO,
        cpu: Duration::ZERO,
        latency: Latency::new(),
    };
    let cpu = processor_time();
    let (mut started, mut glanced, mut over) = (0_u64, begun, false);
    while !over || !flight.is_idle() {
        let reaped = flight.reap()?;
        // One clock read per iteration: the end of the requests reaped, and the start of those submitted next.
        let now = Instant::now();
        for done in reaped {
            let slot = done.id as usize;
            let OutstandingRequest { begun, read, at } = shots[slot];
            let what = if read { "a read" } else { "a write" };
            done.result
                .map_err(|failure| Error::Failed { what, at, failure })?;
            score.latency.add(now - begun);
            *(if read {
                &mut score.reads
            } else {
                &mut score.writes
            }) += 1;
            free.push(slot);
        }
        if now - glanced >= PROGRESS_INTERVAL {
            glanced = now;
            over |= watch(now - begun).is_break();
        }
        over |= match load.limit {
            Limit::Time(time) => now - begun >= time,
            Limit::Requests(count) => started >= count,
        };
        while !over && flight.has_room() {
            let Some(slot) = free.pop() else { break };
            let place = match load.pattern {
                Pattern::Sequential => started % places,
                Pattern::Random => dice.below(places),
            };
            let read = dice.below(100) < u64::from(load.reads);
            let at = Extent {
                lba: first + place * u64::from(per_place),
                blocks: per_place,
            };
            let payload = BufferRef::new(&memory, load.offset(slot, read));
            let request = match read {
                true => Request::Read { at, into: payload },
                false => Request::Write {
                    at,
                    from: payload,
                    fua: false,
                },
            };
            let at = load.range.start + place * u64::from(load.size);
            // Requests submitted in one iteration have the same start time.
            shots[slot] = OutstandingRequest {
                begun: now,
                read,
                at,
            };
            if !flight.submit(slot as u64, request)? {
                free.push(slot);
                break;
            }
            started += 1;
            over |= load.limit == Limit::Requests(started);
        }
        if !flight.is_idle() {
            // Returns at once if something has completed.
            flight.wait()?;
        }
    }
    score.elapsed = begun.elapsed();
    score.cpu = processor_time().saturating_sub(cpu);
    Ok(score)
}

/// How many requests fit into the range. An error if the load is invalid for this disk.
fn slot_count<B: Blocks>(blocks: &B, load: &Load) -> Result<u64, Error> {
    let geometry = blocks.geometry();
    let wrong = |what: String| Err(Error::Setting(what));
    let len = load.range.end.saturating_sub(load.range.start);
    let (block, size) = (geometry.block_size, load.size);
    if load.range.start > load.range.end || !geometry.contains(load.range.start, len) {
        let (offset, limit) = (load.range.start, geometry.bytes());
        return Err(Error::Range { offset, len, limit });
    }
    if size == 0 || size % block != 0 || size > geometry.maximal {
        let most = geometry.maximal;
        return wrong(format!(
            "a request of {size} bytes: the disk takes multiples of {block} up to {most}"
        ));
    }
    if !load.range.start.is_multiple_of(u64::from(block)) || len < u64::from(size) {
        return wrong(format!(
            "a range of {len} bytes at {}: it begins between blocks of {block} bytes and holds a request of {size}",
            load.range.start
        ));
    }
    if load.depth == 0 || load.depth > blocks.depth() {
        let most = blocks.depth();
        let depth = load.depth;
        return wrong(format!(
            "{depth} requests at a time: the disk takes 1 to {most}"
        ));
    }
    if load.memory() > MAX_MEMORY {
        return wrong(format!(
            "{} requests of {size} bytes at a time need more than {MAX_MEMORY} bytes of memory",
            load.depth
        ));
    }
    if load.reads > 100 {
        return wrong(format!("{} reads in a hundred requests", load.reads));
    }
    if load.reads < 100 && geometry.read_only {
        return Err(Error::ReadOnly);
    }
    Ok(len / u64::from(size))
}

/// Fills memory with incompressible bytes that do not repeat.
fn fill(memory: &verbena::Memory, dice: &mut Rng) -> Result<(), Error> {
    let mut bytes = [0_u8; 4096];
    for start in (0..memory.len()).step_by(bytes.len()) {
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = dice.next_u64().to_le_bytes();
        }
        let len = bytes.len().min(memory.len() - start);
        memory.write_at(start, &bytes[..len])?;
    }
    Ok(())
}

/// Pseudo-random numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }
}

/// CPU time of this process, all threads.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests;
