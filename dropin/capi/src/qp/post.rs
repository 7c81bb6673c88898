//! Work requests in the form of `ibv_post_send` and `ibv_post_recv`: linked lists of structs with unions, whose valid member the opcode decides.
//! Requests before an invalid one are posted, and `bad_wr` points to the invalid one.
//! Opcodes and flags that the queue pair does not support are refused before the request is queued.

use core::ffi::c_int;

use verbena::datagram::Destination;
use verbena::low::{Data, Flags, Qpn, RemoteAddr, SendOp, SendWr, Stag, To};

use super::batch::{Batch, Source};
use super::transport::Transport;
use super::{Pair, of};
use crate::abi::*;
use crate::caller::handle;
use crate::errno::{Errno, number};
use crate::scatter::{BATCH, list, post_receives};
use crate::{ah, mw};

/// The mask of a compare or swap on all bits.
const FULL_MASK: u64 = u64::MAX;
const KNOWN_FLAGS: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

impl Pair {
    /// The adapter's flags of a request.
    pub(super) fn flags(&self, asked: u32) -> Result<Flags, Errno> {
        if asked & !KNOWN_FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let mut flags = if self.signal_all {
            Flags::SIGNALED
        } else {
            Flags::NONE
        };
        for (bit, flag) in [
            (IBV_SEND_FENCE, Flags::FENCE),
            (IBV_SEND_SIGNALED, Flags::SIGNALED),
            (IBV_SEND_SOLICITED, Flags::SOLICITED),
        ] {
            if asked & bit != 0 {
                flags = flags | flag;
            }
        }
        Ok(flags)
    }

    /// The operation of a request; its opcode decides which member of the unions is valid.
    ///
    /// # Safety
    /// The window and region that the request names were created by this library.
    unsafe fn operation(&self, wr: &ibv_send_wr) -> Result<SendOp, Errno> {
        // SAFETY: both members are integers, for which any bytes are valid.
        let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
        let remote = |rkey, to| RemoteAddr {
            stag: Stag::new(rkey),
            to: To::new(to),
        };
        let immediate = Some(u32::from_be(wr.imm_data));
        let send = |invalidate, immediate| SendOp::Send {
            invalidate,
            immediate,
        };
        let op = match wr.opcode {
            IBV_WR_SEND => send(None, None),
            IBV_WR_SEND_WITH_IMM => send(None, immediate),
            IBV_WR_SEND_WITH_INV => send(Some(Stag::new(wr.imm_data)), None),
            IBV_WR_RDMA_WRITE => SendOp::Write {
                remote: remote(rdma.rkey, rdma.remote_addr),
                immediate: None,
            },
            IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::Write {
                remote: remote(rdma.rkey, rdma.remote_addr),
                immediate,
            },
            IBV_WR_RDMA_READ => SendOp::Read {
                remote: remote(rdma.rkey, rdma.remote_addr),
                local_invalidate: None,
            },
            IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CmpSwap {
                remote: remote(atomic.rkey, atomic.remote_addr),
                compare: atomic.compare_add,
                compare_mask: FULL_MASK,
                swap: atomic.swap,
                swap_mask: FULL_MASK,
            },
            IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
                remote: remote(atomic.rkey, atomic.remote_addr),
                add: atomic.compare_add,
                mask: 0,
            },
            IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite {
                remote: remote(rdma.rkey, rdma.remote_addr),
            },
            IBV_WR_LOCAL_INV => SendOp::LocalInvalidate(Stag::new(wr.imm_data)),
            IBV_WR_BIND_MW => {
                // SAFETY: the opcode says that this member was written; the caller guarantees that window and region were created by this library.
                unsafe {
                    let bind = wr.bind_or_tso.bind_mw;
                    mw::bind_request(bind.mw, bind.rkey, &bind.bind_info)?
                }
            }
            _ => return Err(Errno::INVAL),
        };
        self.supports(&op).then_some(op).ok_or(Errno::INVAL)
    }

    /// Whether the type of the queue pair has the operation.
    pub(super) fn supports(&self, op: &SendOp) -> bool {
        match self.kind {
            IBV_QPT_RC | IBV_QPT_XRC_SEND => true,
            IBV_QPT_XRC_RECV => false,
            IBV_QPT_UC => !op.wants_response(),
            _ => matches!(
                op,
                SendOp::Send {
                    invalidate: None,
                    ..
                }
            ),
        }
    }
}

/// Posts send requests; on failure `bad` is set to the refused one.
///
/// # Safety
/// `qp` was created by this library; the requests are valid during the call.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let own = match handle!(of(qp)) {
        Ok(own) => own,
        Err(errno) => return number(Err(errno)),
    };
    // SAFETY: the caller guarantees a valid list of requests at `wr`.
    let posted = unsafe { own.post_list(wr) };
    number(posted.map_err(|(at, errno)| {
        if !bad.is_null() {
            // SAFETY: the caller guarantees that `bad` is valid for writes.
            unsafe { *bad = at };
        }
        errno
    }))
}

impl Pair {
    /// Translates one request and adds it to the batch.
    ///
    /// # Safety
    /// `wr` is valid; its list, its inline data and the objects that it names are valid during the call.
    unsafe fn add(&self, batch: &mut Batch, wr: *mut ibv_send_wr) -> Result<(), Errno> {
        // SAFETY: the caller guarantees that `wr` is valid for reads.
        let request = unsafe { &*wr };
        let flags = self.flags(request.send_flags)?;
        // SAFETY: the caller guarantees that the objects that the request names were created by this library.
        let op = unsafe { self.operation(request)? };
        // SAFETY: the caller guarantees `num_sge` entries at `sg_list`.
        let sges = unsafe { list(request.sg_list, request.num_sge)? };
        if sges.len() > self.cap.max_send_sge as usize {
            return Err(Errno::INVAL);
        }
        let source = if op.is_local() {
            Source::Sges(0..0)
        } else if request.send_flags & IBV_SEND_INLINE != 0 {
            // SAFETY: the caller guarantees that the memory of inline data is valid for reads.
            Source::Inline(unsafe { batch.copy(sges, self.cap.max_inline_data)? })
        } else {
            Source::Sges(batch.gather(sges))
        };
        // SAFETY: for datagrams this member of the union was written; the caller guarantees that its handle is null or was created by this library.
        let to = (self.kind == IBV_QPT_UD).then(|| unsafe { destination(&request.wr.ud) });
        let to = to.transpose()?;
        let srqn = match self.kind == IBV_QPT_XRC_SEND && !op.is_local() {
            // SAFETY: the member is an integer, for which any bytes are valid.
            true => Some(srq_number(unsafe { request.qp_type.xrc.remote_srqn })?),
            false => None,
        };
        batch.add(wr, request.wr_id, op, flags, source);
        if let Some(srqn) = srqn {
            batch.set_srq(srqn);
        }
        if let Some(to) = to {
            batch.set_destination(to);
        }
        Ok(())
    }

    /// # Safety
    /// `wr` is null or a linked list of valid requests.
    unsafe fn post_list(&self, mut wr: *mut ibv_send_wr) -> Result<(), (*mut ibv_send_wr, Errno)> {
        while !wr.is_null() {
            let mut batch = Batch::default();
            let mut wrong = None;
            while !wr.is_null() && batch.len() < BATCH {
                // SAFETY: `wr` is not null, so the caller guarantees a valid request.
                if let Err(errno) = unsafe { self.add(&mut batch, wr) } {
                    wrong = Some((wr, errno));
                    break;
                }
                // SAFETY: `wr` is the valid request that was added; `next` is null or the request that follows it in the list of the caller.
                wr = unsafe { (*wr).next };
            }
            batch.post(self)?;
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
        }
        Ok(())
    }
}

/// The number of a shared receive queue of an XRC target, which has 24 bits.
pub(super) fn srq_number(number: u32) -> Result<u32, Errno> {
    let fits = number >> 24 == 0;
    fits.then_some(number).ok_or(Errno::INVAL)
}

/// The destination of a datagram.
///
/// # Safety
/// The handle is null or was created by this library.
pub(super) unsafe fn destination(to: &ibv_send_wr__wr__ud) -> Result<Destination, Errno> {
    let address = handle!(ah::of(to.ah))?;
    Ok(Destination {
        address: address.peer,
        source: address.local,
        number: Qpn::new(to.remote_qpn).ok_or(Errno::INVAL)?,
        qkey: to.remote_qkey,
    })
}

/// Posts one request that has been translated already.
///
/// # Safety
/// `qp` was created by this library.
pub(crate) unsafe fn post_op(qp: *mut ibv_qp, wr: &ibv_send_wr, op: SendOp) -> Result<(), Errno> {
    let own = handle!(of(qp))?;
    let request = SendWr {
        id: wr.wr_id,
        op,
        flags: own.flags(wr.send_flags)?,
        data: Data::Gather(&[]),
    };
    if !own.supports(&op) {
        return Err(Errno::INVAL);
    }
    let posted = match &own.transport {
        // It is executed here, so the number does not matter.
        Transport::Connected(qp) if own.kind == IBV_QPT_XRC_SEND => qp.post_send_to(0, &[request]),
        Transport::Connected(qp) => qp.post_send(&[request]),
        Transport::Datagram(_) | Transport::Elsewhere(_) => return Err(Errno::INVAL),
    };
    posted.map_err(|error| error.source.into())
}

/// Posts receives; on failure `bad` is set to the refused one.
///
/// # Safety
/// `qp` was created by this library; the requests are valid during the call.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let own = match handle!(of(qp)) {
        Ok(own) => own,
        Err(errno) => return number(Err(errno)),
    };
    // SAFETY: the caller guarantees a valid list of requests at `wr`, and that `bad` is null or valid for writes.
    number(unsafe {
        let pieces = own.cap.max_recv_sge as usize;
        post_receives(wr, bad, pieces, |list| own.transport.post_recv(list))
    })
}
