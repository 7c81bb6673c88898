//! One request of a client in progress: validated once, split into pieces that the disk accepts, and combined again. A piece never exceeds
//! its request, and the first error is the one that is reported.

use verbena::Memory;

use super::codec::{Command, Errno, Head};
use super::slots::Run;
use crate::blocks::{BufferRef, Extent, Geometry, Request};
use crate::error::Failure;

/// The longest payload of a request: announced as the maximum block size, and enforced.
pub(super) const MAX_REQUEST: u32 = 4 << 20;

/// The operation on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write { fua: bool },
    Zero,
    Trim,
    Flush,
}

/// One request.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) cookie: u64,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Memory of its payload, if any.
    pub(super) run: Option<Run>,
    /// Bytes submitted to the disk.
    started: u32,
    /// Pieces outstanding.
    outstanding: u32,
    /// A flush has to follow after all pieces.
    flush: bool,
    error: Option<Errno>,
}

/// Validates a request. Returns the operation, and whether a flush has to follow.
pub(super) fn validate(head: &Head, geometry: &Geometry) -> Result<(Kind, bool), Errno> {
    let command = head.command.ok_or(Errno::Inval)?;
    let (kind, flush) = match command {
        Command::Read => (Kind::Read, false),
        Command::Write { fua } => (Kind::Write { fua }, false),
        // UNMAP and WRITE SAME have no FUA bit: a flush afterwards is equivalent.
        Command::Trim { fua } if geometry.can_unmap => (Kind::Trim, fua),
        // Zeroed blocks stay allocated in any case, so NBD_CMD_FLAG_NO_HOLE is satisfied.
        Command::Zero { fua, no_hole: _ } => (Kind::Zero, fua),
        Command::Flush => return Ok((Kind::Flush, true)),
        Command::Trim { .. } | Command::Disconnect => return Err(Errno::Inval),
    };
    let changes = kind != Kind::Read;
    if changes && geometry.read_only {
        return Err(Errno::Perm);
    }
    let payload = matches!(kind, Kind::Read | Kind::Write { .. });
    if head.len == 0 || (payload && head.len > MAX_REQUEST) {
        return Err(Errno::Inval);
    }
    if !geometry.contains(head.offset, head.len.into()) {
        let grows = matches!(kind, Kind::Write { .. } | Kind::Zero);
        return Err(if grows { Errno::NoSpace } else { Errno::Inval });
    }
    // NBD_OPT_INFO and NBD_OPT_GO announce the minimum block size; unaligned requests are rejected in any case.
    let aligned = geometry.extent(head.offset, head.len.into());
    aligned.map(|_| (kind, flush)).ok_or(Errno::Inval)
}

/// Resources of pieces.
pub(super) struct PieceContext<'a> {
    pub(super) geometry: Geometry,
    /// The client's memory.
    pub(super) memory: &'a Memory,
    /// Zeroes, for disks without [`Request::Zero`].
    pub(super) zeroes: &'a Memory,
}

impl Job {
    pub(super) fn new(head: &Head, (kind, flush): (Kind, bool), run: Option<Run>) -> Job {
        let len = if kind == Kind::Flush { 0 } else { head.len };
        Job {
            cookie: head.cookie,
            kind,
            offset: head.offset,
            len,
            run,
            started: 0,
            outstanding: 0,
            flush,
            error: None,
        }
    }

    /// The next piece and its length; `None` if there is nothing to submit now.
    pub(super) fn next(&self, material: &PieceContext<'_>) -> Option<(Request, u32)> {
        let left = self.len - self.started;
        if self.error.is_some() {
            return None;
        }
        if left == 0 {
            return (self.flush && self.outstanding == 0).then_some((Request::Flush, 0));
        }
        let geometry = &material.geometry;
        let most = match self.kind {
            Kind::Zero if !geometry.can_zero => geometry.request_size(material.zeroes.len() as u32),
            Kind::Zero | Kind::Trim => {
                let bulk = geometry
                    .max_bulk_blocks
                    .max(1)
                    .saturating_mul(geometry.block_size);
                // After saturation the value may not be a multiple of the block size.
                bulk / geometry.block_size.max(1) * geometry.block_size
            }
            Kind::Read | Kind::Write { .. } | Kind::Flush => geometry.request_size(MAX_REQUEST),
        };
        let bytes = left.min(most);
        let offset = self.offset + u64::from(self.started);
        let at = geometry.extent(offset, bytes.into())?;
        Some((self.request(at, material), bytes))
    }

    fn request(&self, at: Extent, material: &PieceContext<'_>) -> Request {
        let start = self.run.as_ref().map_or(0, Run::offset);
        let place = || BufferRef::new(material.memory, start + self.started as usize);
        match self.kind {
            Kind::Read => Request::Read { at, into: place() },
            Kind::Write { fua } => Request::Write {
                at,
                from: place(),
                fua,
            },
            Kind::Zero if material.geometry.can_zero => Request::Zero(at),
            Kind::Zero => Request::Write {
                at,
                from: BufferRef::new(material.zeroes, 0),
                fua: false,
            },
            Kind::Trim => Request::Unmap(at),
            Kind::Flush => Request::Flush,
        }
    }

    /// The piece of [`next`](Job::next) was submitted.
    pub(super) fn started(&mut self, bytes: u32) {
        self.outstanding += 1;
        self.started += bytes;
        if bytes == 0 {
            self.flush = false;
        }
    }

    /// A piece has completed.
    pub(super) fn complete_piece(&mut self, result: Result<(), &Failure>) {
        self.outstanding = self.outstanding.saturating_sub(1);
        if let Err(failure) = result {
            self.error.get_or_insert(errno(failure));
        }
    }

    /// No piece is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// The result, if it has ended.
    pub(super) fn outcome(&self) -> Option<Result<(), Errno>> {
        if self.outstanding > 0 {
            return None;
        }
        match self.error {
            Some(error) => Some(Err(error)),
            None => (self.started == self.len && !self.flush).then_some(Ok(())),
        }
    }
}

/// The error value for a disk's failure.
fn errno(failure: &Failure) -> Errno {
    match failure {
        Failure::ReadOnly => Errno::Perm,
        Failure::NoSpace => Errno::NoSpace,
        Failure::Refused(_) => Errno::Inval,
        Failure::Medium(_) | Failure::Lost(_) | Failure::Cancelled => Errno::Io,
    }
}
