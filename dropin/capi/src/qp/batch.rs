//! Send requests that have been translated from C and are posted together, with their data.
//! They are posted in one call per batch, in order.

use core::ops::Range;

use smallvec::SmallVec;
use verbena::datagram::{Destination, UdSendWr};
use verbena::low::{Data, Flags, PostError, PostSendError, Qp, SendOp, SendWr, Sge, Stag};

use super::Pair;
use super::transport::Transport;
use crate::abi::*;
use crate::check::{Direction, SendInfo};
use crate::errno::Errno;
use crate::scatter::{BATCH, SgeList, gather};

/// The data of a request: scatter/gather entries, or copied bytes.
pub(super) enum Source {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

/// A translated request.
struct Request {
    wr: *mut ibv_send_wr,
    id: u64,
    op: SendOp,
    flags: Flags,
    source: Source,
    /// For datagrams.
    to: Option<Destination>,
    /// The shared receive queue of an XRC target.
    srqn: Option<u32>,
}

/// Translated requests and their data.
#[derive(Default)]
pub(super) struct Batch {
    requests: SmallVec<[Request; BATCH]>,
    sges: SgeList,
    bytes: SmallVec<[u8; 256]>,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a request.
    pub(super) fn add(
        &mut self,
        wr: *mut ibv_send_wr,
        id: u64,
        op: SendOp,
        flags: Flags,
        source: Source,
    ) {
        self.requests.push(Request {
            wr,
            id,
            op,
            flags,
            source,
            to: None,
            srqn: None,
        });
    }

    /// Sets the data of the request that was added last.
    pub(super) fn set_source(&mut self, source: Source) {
        if let Some(last) = self.requests.last_mut() {
            last.source = source;
        }
    }

    /// Sets the destination of the datagram that was added last.
    pub(super) fn set_destination(&mut self, to: Destination) {
        if let Some(last) = self.requests.last_mut() {
            last.to = Some(to);
        }
    }

    /// Sets the shared receive queue that the request that was added last is for.
    pub(super) fn set_srq(&mut self, srqn: u32) {
        if let Some(last) = self.requests.last_mut() {
            last.srqn = Some(srqn);
        }
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.bytes.clear();
    }

    /// Adds scatter/gather entries.
    pub(super) fn gather(&mut self, sges: &[ibv_sge]) -> Range<usize> {
        gather(&mut self.sges, sges)
    }

    /// Copies inline data.
    ///
    /// # Safety
    /// The memory of all entries is valid for reads.
    pub(super) unsafe fn copy(
        &mut self,
        sges: &[ibv_sge],
        limit: u32,
    ) -> Result<Range<usize>, Errno> {
        let first = self.bytes.len();
        let total: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
        if total > limit.into() {
            return Err(Errno::INVAL);
        }
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let at = sge.addr as *const u8;
            // SAFETY: the caller guarantees that the memory of each entry is valid for reads.
            let bytes = unsafe { core::slice::from_raw_parts(at, sge.length as usize) };
            self.bytes.extend_from_slice(bytes);
        }
        Ok(first..self.bytes.len())
    }

    /// What `verbena check` has to know of the requests.
    #[cold]
    pub(super) fn infos(&self) -> Vec<SendInfo> {
        self.requests
            .iter()
            .map(|request| self.info(request))
            .collect()
    }

    fn info(&self, request: &Request) -> SendInfo {
        let (operation, direction, remote) = match request.op {
            SendOp::Send { .. } => ("Send", Direction::Source, None),
            SendOp::Write { remote, .. } => ("Write", Direction::Source, Some(remote)),
            SendOp::AtomicWrite { remote } => ("Atomic Write", Direction::Source, Some(remote)),
            SendOp::Read { remote, .. } => ("Read", Direction::Sink, Some(remote)),
            SendOp::CmpSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
                ("atomic", Direction::Sink, Some(remote))
            }
            _ => ("request without data", Direction::None, None),
        };
        let (direction, sges) = match &request.source {
            Source::Sges(range) => (direction, &self.sges[range.clone()]),
            Source::Inline(_) => (Direction::None, &[][..]),
        };
        let to_c = |sge: &Sge| ibv_sge {
            addr: sge.addr,
            length: sge.len,
            lkey: sge.stag.get(),
        };
        SendInfo {
            id: request.id,
            operation,
            signaled: request.flags.contains(Flags::SIGNALED),
            direction,
            sges: sges.iter().map(to_c).collect(),
            rkey: remote.map(|remote| remote.stag.get()),
            invalidates: match request.op {
                SendOp::Send { invalidate, .. } => invalidate.map(Stag::get),
                _ => None,
            },
            invalidates_own: match request.op {
                SendOp::LocalInvalidate(stag) => Some(stag.get()),
                _ => None,
            },
        }
    }

    /// Whether no request would be refused for its content, so that either all of them are posted or none.
    pub(super) fn is_valid(&self, pair: &Pair) -> bool {
        self.requests.iter().all(|request| {
            let len = self.data(request).len();
            let inline = matches!(request.source, Source::Inline(_));
            let lost = match pair.kind {
                IBV_QPT_UD => request.to.is_none(),
                IBV_QPT_XRC_SEND => request.srqn.is_none() && !request.op.is_local(),
                _ => false,
            };
            let fits = len.is_some_and(|len| {
                let fixed = request.op.fixed_len();
                fixed.is_none_or(|fixed| len == fixed)
            });
            fits && !lost && (!inline || request.op.takes_inline())
        })
    }

    /// Posts them; on failure returns the request that was refused, and why.
    pub(super) fn post(&self, pair: &Pair) -> Result<(), (*mut ibv_send_wr, Errno)> {
        let posted = match &pair.transport {
            Transport::Connected(qp) if pair.kind == IBV_QPT_XRC_SEND => self.post_to_srqs(qp),
            Transport::Connected(qp) => qp.post_send(&self.requests()),
            Transport::Datagram(ud) => {
                let (list, lost) = self.datagrams();
                let posted = ud.post_send(&list);
                // Datagrams before the first one without a destination are posted.
                posted.and(lost.map_or(Ok(()), |at| {
                    Err(PostSendError {
                        posted: at,
                        source: PostError::Length,
                    })
                }))
            }
            Transport::Elsewhere(_) => Err(PostSendError {
                posted: 0,
                source: PostError::Xrc,
            }),
        };
        posted.map_err(|error| (self.requests[error.posted].wr, error.source.into()))
    }

    /// Posts requests of an XRC initiator, those for the same queue together.
    fn post_to_srqs(&self, qp: &Qp) -> Result<(), PostSendError> {
        let list = self.requests();
        let mut from = 0;
        let same = |a: &Request, b: &Request| a.srqn == b.srqn;
        for run in self.requests.chunk_by(same) {
            let (srqn, to) = (run[0].srqn.unwrap_or(0), from + run.len());
            let posted = qp.post_send_to(srqn, &list[from..to]);
            posted.map_err(|error| PostSendError {
                posted: from + error.posted,
                ..error
            })?;
            from = to;
        }
        Ok(())
    }

    fn data(&self, request: &Request) -> Data<'_> {
        match &request.source {
            Source::Sges(range) => Data::Gather(&self.sges[range.clone()]),
            Source::Inline(range) => Data::Inline(&self.bytes[range.clone()]),
        }
    }

    fn requests(&self) -> SmallVec<[SendWr<'_>; BATCH]> {
        let all = self.requests.iter();
        all.map(|request| SendWr {
            id: request.id,
            op: request.op,
            flags: request.flags,
            data: self.data(request),
        })
        .collect()
    }

    /// Datagrams up to the first one without a destination, and the index of that one.
    fn datagrams(&self) -> (SmallVec<[UdSendWr<'_>; BATCH]>, Option<usize>) {
        let mut list = SmallVec::new();
        for request in &self.requests {
            let Some(to) = request.to else {
                let lost = list.len();
                return (list, Some(lost));
            };
            let immediate = match request.op {
                SendOp::Send { immediate, .. } => immediate,
                _ => None,
            };
            list.push(UdSendWr {
                id: request.id,
                immediate,
                flags: request.flags,
                data: self.data(request),
                to,
            });
        }
        (list, None)
    }
}

// SAFETY: the pointers to requests are returned to the program and never dereferenced here.
unsafe impl Send for Batch {}
