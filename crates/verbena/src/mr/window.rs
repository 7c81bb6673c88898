//! A memory window: remote access rights that are granted and revoked by work requests, without registering memory.
//! Memory lives as long as a window is bound to it, and a handle is invalid after the window was invalidated, bound again or dropped.
//! The requests are executed by a queue pair, in the order of its send queue.

use core::fmt;
use std::sync::Arc;

use verbena_engine::ControlQueue;
use verbena_mem::{Access, Bind, WindowExport, WindowType};
use verbena_nic::SendOp;
use verbena_wire::Stag;

use super::Memory;
use crate::device::Domain;
use crate::error::Error;
use crate::pd::Pd;
use crate::registering::Registering;
use crate::remote::{RemoteMemory, remote_rights};

/// A memory window of the low layer; made by [`Pd::window`].
///
/// A window of type 1 can be accessed through every queue pair of its domain. One of type 2 belongs to the queue pair that bound it,
/// and the peer can invalidate it with a message (`SendOp::Send { invalidate, .. }`).
///
/// Its requests are posted once each, in the order in which they were made, each after the previous one completed; if
/// one fails, make another window.
///
/// ```
/// use verbena::low::{Data, Flags, Qp, QpOptions, SendOp, SendWr, Wc};
/// use verbena::mr::WindowType;
/// use verbena::{Access, Device};
///
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(64)?);
/// # let [a, b] = [(), ()].map(|()| Qp::new(&pd, &cq, &cq, QpOptions::default()));
/// # let (a, b) = (a?, b?);
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let joining = a.connect(listener.local_addr()?, b"")?;
/// # listener.next().wait()?.accept_on(&b, b"")?.wait()?;
/// # joining.wait()?;
/// let memory = pd.memory(4096, Access::LOCAL_WRITE | Access::BIND)?;
/// let mut window = pd.window(WindowType::TwoB)?;
///
/// // The peer may write these 64 bytes, and no others.
/// let (bind, handle) = window.bind(&memory, 1024, 64, Access::REMOTE_WRITE)?;
/// let nothing = Data::Gather(&[]);
/// let flags = Flags::SIGNALED;
/// b.post_send(&[SendWr { id: 1, op: bind, flags, data: nothing }])?;
/// # let mut end = [Wc::default()];
/// # cq.wait(&mut end)?;
///
/// // `handle` is sent to the peer, which writes:
/// let op = SendOp::Write { remote: handle.remote_addr(), immediate: None };
/// a.post_send(&[SendWr { id: 2, op, flags, data: Data::Inline(b"hello") }])?;
/// # cq.wait(&mut end)?;
/// assert_eq!(memory.get::<[u8; 5]>(1024)?, *b"hello");
///
/// // And it is over:
/// let op = window.unbind();
/// b.post_send(&[SendWr { id: 3, op, flags, data: nothing }])?;
/// # cq.wait(&mut end)?;
/// # assert_eq!(end[0].status, verbena::Status::Success);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Window {
    domain: Arc<Domain>,
    ty: WindowType,
    /// Its STag once every request made so far was executed.
    stag: Stag,
    /// Whether it is bound then.
    bound: bool,
    one_touch: bool,
    /// The memory it is bound to then, and the one before: requests may not have been executed yet.
    held: [Option<Memory>; 2],
}

/// A window on its way to another process (V1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowState {
    /// Its entry.
    pub(crate) export: WindowExport,
    /// Its STag once every request made so far was executed, and whether it is bound then.
    pub(crate) stag: Stag,
    pub(crate) bound: bool,
    /// Later bindings are one-touch.
    pub(crate) one_touch: bool,
}

impl Window {
    pub(crate) fn new(pd: &Pd, ty: WindowType) -> Result<Window, Error> {
        let domain = pd.0.clone();
        let stag = domain.function()?.allocate_window(ty, domain.pd)?;
        Ok(Window::unbound(domain, ty, stag))
    }

    /// A window whose allocation is a request of a control queue pair, with this id.
    pub(crate) fn new_queued(
        pd: &Pd,
        ty: WindowType,
        control: (&ControlQueue, u64),
    ) -> Result<(Window, Registering), Error> {
        pd.0.function()?;
        let (stag, registering) = Registering::window(&pd.0, control, ty)?;
        Ok((Window::unbound(pd.0.clone(), ty, stag), registering))
    }

    fn unbound(domain: Arc<Domain>, ty: WindowType, stag: Stag) -> Window {
        Window {
            domain,
            ty,
            stag,
            bound: false,
            one_touch: false,
            held: [None, None],
        }
    }

    /// Makes later bindings one-touch: they are invalidated by the first message of a peer that ends in them, be it a Write, a read
    /// that is served or an atomic, without notice to the peer (M9). After that the window may be bound again, or invalidated, which
    /// has no effect.
    ///
    /// ```
    /// use verbena::mr::WindowType;
    /// let window = verbena::Device::open()?.pd()?.window(WindowType::TwoB)?.one_touch();
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn one_touch(mut self) -> Window {
        self.one_touch = true;
        self
    }

    /// The request that binds it to a part of memory, and the handle for peers, which is valid once the request has completed.
    ///
    /// Fails with [`Error::MissingAccess`] unless the memory has [`Access::BIND`]; the window grants peers `access`, whatever else the memory
    /// grants them. A window of type 1 may already be bound, one of type 2 may not.
    ///
    /// ```
    /// # use verbena::mr::WindowType;
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// let memory = pd.memory(4096, Access::LOCAL_WRITE | Access::BIND)?;
    /// let mut window = pd.window(WindowType::One)?;
    /// let (op, handle) = window.bind(&memory, 0, 64, Access::REMOTE_READ)?;
    /// assert_eq!((handle.len(), handle.access()), (64, Access::REMOTE_READ));
    /// assert!(window.bind(&memory, 4000, 97, Access::REMOTE_READ).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bind(
        &mut self,
        memory: &Memory,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<(SendOp, RemoteMemory), Error> {
        let piece = memory.sge(offset, len)?;
        if !memory.is_in(&self.domain) {
            return Err(Error::Foreign);
        }
        for (has, needs) in [(memory.access(), Access::BIND), (remote_rights(), access)] {
            if !has.contains(needs) {
                return Err(Error::MissingAccess { has, needs });
            }
        }
        if len == 0 {
            // The adapter would take this as unbinding.
            return Err(Error::OutOfBounds {
                offset: offset as u64,
                len: 0,
                limit: memory.len() as u64,
            });
        }
        let op = self.bind_request(piece.stag, piece.addr, len as u64, access);
        self.advance_key();
        self.bound = true;
        self.held = [Some(memory.clone()), self.held[0].take()];
        let handle = RemoteMemory::new(piece.addr, len as u64, self.stag, access);
        Ok((op, handle))
    }

    /// The request that unbinds it: once it has completed, peers have no access.
    ///
    /// The memory is kept until the window was bound to other memory twice, or is dropped.
    ///
    /// ```
    /// # use verbena::mr::WindowType;
    /// # use verbena::{Access, Device};
    /// # let pd = Device::open()?.pd()?;
    /// # let memory = pd.memory(4096, Access::LOCAL_WRITE | Access::BIND)?;
    /// let mut window = pd.window(WindowType::TwoA)?;
    /// let (bind, handle) = window.bind(&memory, 0, 64, Access::REMOTE_READ)?;
    /// let unbind = window.unbind();
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn unbind(&mut self) -> SendOp {
        match self.ty {
            WindowType::One => {
                let op = self.bind_request(self.stag, 0, 0, Access::NONE);
                if core::mem::take(&mut self.bound) {
                    self.advance_key();
                }
                op
            }
            WindowType::TwoA | WindowType::TwoB => SendOp::LocalInvalidate(self.stag),
        }
    }

    /// Its STag, for peers once it is bound.
    ///
    /// ```
    /// use verbena::mr::WindowType;
    /// let window = verbena::Device::open()?.pd()?.window(WindowType::One)?;
    /// assert_ne!(window.stag().get(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// A request to bind it, for programs that track the key and the lifetime of the memory themselves. The queue pair checks it when
    /// it is executed; `len` 0 unbinds a window of type 1.
    ///
    /// ```
    /// use verbena::Access;
    /// use verbena::low::SendOp;
    /// use verbena::mr::WindowType;
    /// let pd = verbena::Device::open()?.pd()?;
    /// let window = pd.window(WindowType::TwoB)?;
    /// let memory = pd.memory(4096, Access::ALL)?;
    /// let piece = memory.sge(0, 4096)?;
    /// let op = window.bind_stag(window.stag(), piece.stag, piece.addr, 4096, Access::REMOTE_READ);
    /// assert!(matches!(op, SendOp::Bind(_)));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bind_stag(
        &self,
        window: Stag,
        region: Stag,
        at: u64,
        len: u64,
        access: Access,
    ) -> SendOp {
        SendOp::Bind(Bind {
            window,
            key: window.key(),
            ..self.bind_to(region, at, len, access)
        })
    }

    /// What another process needs to continue with it. Fails while one of its requests has not been executed.
    pub(crate) fn export(&self) -> Result<WindowState, Error> {
        let tpt = self.domain.function()?.tpt();
        let export = tpt.export_window(self.stag, self.bound);
        Ok(WindowState {
            export: export.map_err(verbena_nic::Error::from)?,
            stag: self.stag,
            bound: self.bound,
            one_touch: self.one_touch,
        })
    }

    /// Continues with a window of another process, bound to this memory if it is bound.
    pub(crate) fn import(
        pd: &Pd,
        state: &WindowState,
        memory: Option<Memory>,
    ) -> Result<Window, Error> {
        let domain = pd.0.clone();
        let function = domain.function()?;
        function.import_window(&state.export, domain.pd)?;
        Ok(Window {
            ty: state.export.window_type,
            stag: state.stag,
            bound: state.bound,
            one_touch: state.one_touch,
            held: [memory, None],
            domain,
        })
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    fn bind_request(&self, region: Stag, at: u64, len: u64, access: Access) -> SendOp {
        SendOp::Bind(self.bind_to(region, at, len, access))
    }

    fn bind_to(&self, region: Stag, at: u64, len: u64, access: Access) -> Bind {
        Bind {
            window: self.stag,
            region,
            addr: at,
            len,
            access,
            // Replaced by the queue pair that executes it.
            pd: self.domain.pd,
            qp: 0,
            key: self.stag.key().wrapping_add(1),
            zero_based: false,
            one_touch: self.one_touch,
        }
    }

    /// Moves to the next key, so that handles given out before are invalid.
    fn advance_key(&mut self) {
        let next = self.stag.key().wrapping_add(1);
        self.stag = Stag::from_parts(self.stag.index(), next).unwrap_or(self.stag);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Returns when no access by a peer is under way; a window can always be deallocated.
        if let Ok(function) = self.domain.function() {
            let _ = function.deregister(self.stag);
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("stag", &self.stag)
            .field("type", &self.ty)
            .finish_non_exhaustive()
    }
}
