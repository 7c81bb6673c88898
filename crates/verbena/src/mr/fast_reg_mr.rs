//! An STag for memory registration by work request (M4): the STag is known before the registration is executed.
//! Memory lives as long as it can be accessed by the STag, and the pages reserved for the STag in the table are its own until it is
//! dropped. The registrations are executed by a queue pair, in the order of its send queue.

use core::fmt;
use std::sync::Arc;

use verbena_mem::att::{Page, PageSize};
use verbena_mem::{Access, Att, Draft, Layout, Misuse, Ticket, Tpt};
use verbena_nic::SendOp;
use verbena_wire::{Stag, To};

use super::Memory;
use crate::device::Domain;
use crate::error::Error;
use crate::pd::Pd;
use crate::remote::{RemoteMemory, remote_rights};

/// The page size of [`FastRegMr::register_pages`].
const PAGE: usize = 4096;

/// Registrations of one tag that were prepared and are not over; far fewer than the 256 keys of an STag.
const MAX_OUTSTANDING: usize = 64;

/// An STag of the low layer; made by [`Pd::fast_reg_mr`]. A queue pair whose [`QpOptions`](crate::low::QpOptions) enable it executes the
/// registrations: posted as [`SendOp::Register`], or before a message as [`SendOp::RegisterSend`].
///
/// Registrations are executed once each, in the order in which they were prepared, each after the previous one was invalidated:
/// by [`invalidate`](FastRegMr::invalidate), by the peer's message (`SendOp::Send { invalidate, .. }`), or by the
/// first access to a [one-touch](FastRegMr::one_touch) tag. One that is not posted is [withdrawn](FastRegMr::withdraw); if one was posted and
/// is never executed, make another tag.
///
/// ```
/// use verbena::low::{Data, Flags, OnFailure, Qp, QpOptions, Registration, SendOp, SendWr, Sge, Wc};
/// use verbena::{Access, Device};
///
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(64)?);
/// let registration = Registration { enabled: true, on_failure: OnFailure::Reactive };
/// let options = QpOptions::default().registration(registration);
/// # let [a, b] = [(), ()].map(|()| Qp::new(&pd, &cq, &cq, options));
/// # let (a, b) = (a?, b?);
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let joining = a.connect(listener.local_addr()?, b"")?;
/// # listener.next().wait()?.accept_on(&b, b"")?.wait()?;
/// # joining.wait()?;
/// let memory = pd.memory(4096, Access::LOCAL_WRITE)?;
/// let target = pd.memory(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// memory.write_at(1024, b"registered on the way")?;
///
/// // The second request names what the first one registers, before either has run.
/// let mut tag = pd.fast_reg_mr(1)?;
/// let (ticket, handle) = tag.register(&memory, 1024, 21, Access::LOCAL_READ)?;
/// let flags = Flags::SIGNALED;
/// let register = SendWr { id: 1, op: SendOp::Register(ticket), flags, data: Data::Gather(&[]) };
/// let op = SendOp::Write { remote: target.remote_addr(0)?, immediate: None };
/// let piece = Sge { addr: handle.remote_addr().to.get(), len: 21, stag: ticket.stag() };
/// let write = SendWr { id: 2, op, flags, data: Data::Gather(&[piece]) };
/// a.post_send(&[register, write])?;
/// # let (mut done, mut end) = (0, [Wc::default(); 2]);
/// # while done < 2 { done += cq.wait(&mut end)?; }
/// assert_eq!(target.get::<[u8; 21]>(0)?, *b"registered on the way");
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct FastRegMr {
    domain: Arc<Domain>,
    /// The STag of the next registration.
    next: Stag,
    one_touch: bool,
    /// Registrations that were prepared, and the memory that they give access to.
    held: Vec<(Ticket, Vec<Memory>)>,
}

impl FastRegMr {
    pub(crate) fn new(pd: &Pd, pages: u32) -> Result<FastRegMr, Error> {
        let domain = pd.0.clone();
        let next = domain.function()?.allocate_stag(domain.pd, pages)?;
        Ok(FastRegMr {
            domain,
            next,
            one_touch: false,
            held: Vec::new(),
        })
    }

    /// Makes later registrations one-touch: they are invalidated by the first message of a peer that ends in them, be it a Write, a
    /// read that is served or an atomic, without notice to the peer (M9).
    ///
    /// ```
    /// let pd = verbena::Device::open()?.pd()?;
    /// let tag = pd.fast_reg_mr(1)?.one_touch();
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn one_touch(mut self) -> FastRegMr {
        self.one_touch = true;
        self
    }

    /// Prepares the registration of a part of memory. Returns the ticket for the request that executes it, and the handle, which is
    /// valid after that. It needs one page of the tag's capacity. Fails if 64 registrations are outstanding.
    ///
    /// ```
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// let memory = pd.memory(4096, Access::LOCAL_WRITE)?;
    /// let mut tag = pd.fast_reg_mr(1)?;
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    /// let (ticket, handle) = tag.register(&memory, 1000, 64, rights)?;
    /// assert_eq!(ticket.stag(), handle.remote_addr().stag);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn register(
        &mut self,
        memory: &Memory,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<(Ticket, RemoteMemory), Error> {
        let at = memory.sge(offset, len)?.addr;
        let layout = Layout::Built(Att::direct(memory.pointer(offset), len as u64));
        self.prepare(vec![memory.clone()], (layout, at, len as u64), access)
    }

    /// Prepares the registration of 4 KiB pages, given by memory and offset, as one range of addresses from 0 on. It
    /// needs as many pages of the tag's capacity.
    ///
    /// ```
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// let (first, second) = (pd.memory(8192, Access::LOCAL_WRITE)?, pd.memory(4096, Access::LOCAL_WRITE)?);
    /// let mut tag = pd.fast_reg_mr(2)?;
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    /// let (ticket, handle) = tag.register_pages(&[(&second, 0), (&first, 4096)], rights)?;
    /// assert_eq!(handle.len(), 8192);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn register_pages(
        &mut self,
        list: &[(&Memory, usize)],
        access: Access,
    ) -> Result<(Ticket, RemoteMemory), Error> {
        let mut pages = Vec::with_capacity(list.len());
        for (memory, offset) in list {
            if !offset.is_multiple_of(PAGE) {
                let at = *offset as u64;
                let align = PAGE as u64;
                return Err(Error::Unaligned { at, align });
            }
            memory.sge(*offset, PAGE)?;
            pages.push(Page::at(memory.pointer(*offset)));
        }
        let len = (list.len() * PAGE) as u64;
        let layout = Layout::Pages {
            size: PageSize::K4,
            pages: pages.into(),
            first_offset: 0,
            len,
        };
        let held = list.iter().map(|(memory, _)| (*memory).clone()).collect();
        self.prepare(held, (layout, 0, len), access)
    }

    fn prepare(
        &mut self,
        memory: Vec<Memory>,
        (layout, start, len): (Layout, u64, u64),
        access: Access,
    ) -> Result<(Ticket, RemoteMemory), Error> {
        if !memory.iter().all(|memory| memory.is_in(&self.domain)) {
            return Err(Error::Foreign);
        }
        let tpt = self.domain.function()?.tpt();
        self.held.retain(|(ticket, _)| !tpt.is_finished(*ticket));
        if self.held.len() >= MAX_OUTSTANDING {
            return Err(misuse(Misuse::Full(MAX_OUTSTANDING as u32)));
        }
        let draft = Draft {
            layout,
            start: To::new(start),
            pd: self.domain.pd,
            access,
            one_touch: self.one_touch,
        };
        // SAFETY: a `Memory` is mapped, readable and writable. `self.held` keeps it until the registration is over; `drop` deregisters
        // the STag before it frees the memory, and leaks it otherwise. It is never accessed through references, so others may write it.
        let ticket = unsafe { tpt.prepare_unprobed(self.next, draft) }.map_err(misuse)?;
        self.held.push((ticket, memory));
        self.next = Tpt::next_stag(self.next);
        let handle = RemoteMemory::new(start, len, ticket.stag(), access & remote_rights());
        Ok((ticket, handle))
    }

    /// Withdraws the last registration, which was not posted: the next one has its STag. False if it was executed, or is not the last.
    ///
    /// ```
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let memory = pd.memory(4096, Access::LOCAL_WRITE)?;
    /// let mut tag = pd.fast_reg_mr(1)?;
    /// let (ticket, _) = tag.register(&memory, 0, 64, Access::LOCAL_READ)?;
    /// assert!(tag.withdraw(ticket) && !tag.withdraw(ticket));
    /// let (next, _) = tag.register(&memory, 64, 64, Access::LOCAL_READ)?;
    /// assert_eq!(next.stag(), ticket.stag());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        let is_last = self.held.last().is_some_and(|(last, _)| *last == ticket);
        let function = self.domain.function();
        if !is_last || !function.is_ok_and(|function| function.tpt().discard(ticket)) {
            return false;
        }
        self.held.pop();
        self.next = ticket.stag();
        true
    }

    /// Releases the memory of registrations that are over. Without it, the next registration does that.
    ///
    /// ```
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let memory = pd.memory(4096, Access::LOCAL_WRITE)?;
    /// let mut tag = pd.fast_reg_mr(1)?;
    /// let (ticket, _) = tag.register(&memory, 0, 64, Access::LOCAL_READ)?;
    /// tag.release();
    /// assert!(tag.invalidate().is_some(), "it is not over");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn release(&mut self) {
        if let Ok(function) = self.domain.function() {
            let tpt = function.tpt();
            self.held.retain(|(ticket, _)| !tpt.is_finished(*ticket));
        }
    }

    /// The request that invalidates the last registration: once it has completed, the memory cannot be accessed by it.
    ///
    /// ```
    /// # use verbena::low::SendOp;
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let memory = pd.memory(4096, Access::LOCAL_WRITE)?;
    /// let mut tag = pd.fast_reg_mr(1)?;
    /// let (ticket, _) = tag.register(&memory, 0, 64, Access::LOCAL_READ)?;
    /// assert_eq!(tag.invalidate(), Some(SendOp::LocalInvalidate(ticket.stag())));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn invalidate(&self) -> Option<SendOp> {
        let (last, _) = self.held.last()?;
        Some(SendOp::LocalInvalidate(last.stag()))
    }
}

fn misuse(misuse: Misuse) -> Error {
    verbena_nic::Error::Memory(misuse).into()
}

impl Drop for FastRegMr {
    fn drop(&mut self) {
        let gone = match self.domain.function() {
            Ok(function) => function.deregister_with_windows(self.next).is_ok(),
            // A forked child: the adapter does not run here.
            Err(_) => true,
        };
        if !gone {
            // Not expected; the memory must stay if the table still refers to it.
            core::mem::forget(core::mem::take(&mut self.held));
        }
    }
}

impl fmt::Debug for FastRegMr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastRegMr")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
