//! A window onto memory: rights for peers that come and go by requests, without registering anything.
//! It promises that memory which a window is bound to lives as long, and that what peers were told is void once the window
//! was taken back, bound anew or dropped. It refuses to act by itself: a queue pair carries its requests out, in their turn.

use core::fmt;
use std::sync::Arc;

use verbena_mem::{Access, Bind, WindowType};
use verbena_nic::SendOp;
use verbena_wire::Stag;

use super::Memory;
use crate::device::Domain;
use crate::error::Error;
use crate::pd::Pd;
use crate::remote::{RemoteMemory, peers};

/// A memory window of the low layer; made by [`Pd::window`].
///
/// A window of type 1 is open to every queue pair of its domain. One of type 2 belongs to the queue pair that bound it,
/// and the peer can give it back with the message that says it is done (`SendOp::Send { invalidate, .. }`).
///
/// Its requests are posted once each and in the order in which they were made, the next when the one before is done; if
/// one fails, make another window.
///
/// ```
/// use verbena::low::{BLANK, Data, Flags, SendOp, SendWr, WindowType};
/// use verbena::{Access, Device, Qp, QpOptions};
///
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(64)?);
/// # let [a, b] = [(), ()].map(|()| Qp::new(&pd, &cq, &cq, QpOptions::default()));
/// # let (a, b) = (a?, b?);
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let joining = a.connect(listener.local()?, b"")?;
/// # listener.next().wait()?.accept_on(&b, b"")?.wait()?;
/// # joining.wait()?;
/// let memory = pd.memory(4096, Access::LOCAL_WRITE | Access::BIND)?;
/// let mut window = pd.window(WindowType::TwoB)?;
///
/// // The peer may write these 64 bytes, and no others.
/// let (bind, handle) = window.bind(&memory, 1024, 64, Access::REMOTE_WRITE)?;
/// let nothing = Data::Gather(&[]);
/// let flags = Flags::SIGNALED;
/// b.post_send(&[SendWr { id: 1, op: bind, flags, data: nothing }]).map_err(|(_, e)| e)?;
/// # let mut end = [BLANK];
/// # cq.wait(&mut end)?;
///
/// // `handle` travels to the peer, who writes:
/// let op = SendOp::Write { remote: handle.place(), immediate: None };
/// a.post_send(&[SendWr { id: 2, op, flags, data: Data::Inline(b"hello") }]).map_err(|(_, e)| e)?;
/// # cq.wait(&mut end)?;
/// assert_eq!(memory.get::<[u8; 5]>(1024)?, *b"hello");
///
/// // And it is over:
/// let op = window.unbind();
/// b.post_send(&[SendWr { id: 3, op, flags, data: nothing }]).map_err(|(_, e)| e)?;
/// # cq.wait(&mut end)?;
/// # assert_eq!(end[0].status, verbena::Status::Success);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Window {
    domain: Arc<Domain>,
    ty: WindowType,
    /// What it is called once every request made so far was carried out.
    stag: Stag,
    /// It is bound then.
    bound: bool,
    one_touch: bool,
    /// What it is bound to then, and what before: requests may not have been carried out yet.
    held: [Option<Memory>; 2],
}

impl Window {
    pub(crate) fn new(pd: &Pd, ty: WindowType) -> Result<Window, Error> {
        let domain = pd.0.clone();
        let stag = domain.function()?.allocate_window(ty, domain.pd)?;
        Ok(Window {
            domain,
            ty,
            stag,
            bound: false,
            one_touch: false,
            held: [None, None],
        })
    }

    /// What it shows from its next bind on dies with the first message of a peer that ends in it, be it a Write, a read that
    /// is served or an atomic, and without the peer knowing (M9). Then it may be bound again, or be taken back as if nothing
    /// had happened.
    ///
    /// ```
    /// use verbena::low::WindowType;
    /// let window = verbena::Device::open()?.pd()?.window(WindowType::TwoB)?.one_touch();
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn one_touch(mut self) -> Window {
        self.one_touch = true;
        self
    }

    /// The request that binds it to a part of memory, and the handle for peers, which is good once the request is done.
    ///
    /// The memory needs the right [`Access::BIND`]; the window grants peers what `access` says, whatever else the memory
    /// grants them. A window of type 1 may be bound already, one of type 2 may not.
    ///
    /// ```
    /// # use verbena::{Access, Device, low::WindowType};
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
        for (has, needs) in [(memory.access(), Access::BIND), (peers(), access)] {
            if !has.contains(needs) {
                return Err(Error::Right { has, needs });
            }
        }
        if len == 0 {
            // To the adapter that would mean to take the window back.
            return Err(Error::Bounds {
                offset: offset as u64,
                len: 0,
                limit: memory.len() as u64,
            });
        }
        let op = self.request(piece.stag, piece.at, len as u64, access);
        self.step();
        self.bound = true;
        self.held = [Some(memory.clone()), self.held[0].take()];
        let handle = RemoteMemory::of(piece.at, len as u64, self.stag, access);
        Ok((op, handle))
    }

    /// The request that takes it back: once it is done, peers are refused.
    ///
    /// The memory is kept until the window was bound to other memory twice, or is dropped.
    ///
    /// ```
    /// # use verbena::{Access, Device, low::WindowType};
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
                let op = self.request(self.stag, 0, 0, Access::NONE);
                if core::mem::take(&mut self.bound) {
                    self.step();
                }
                op
            }
            WindowType::TwoA | WindowType::TwoB => SendOp::LocalInvalidate(self.stag),
        }
    }

    /// What requests name it by, and peers once it is bound.
    ///
    /// ```
    /// use verbena::low::WindowType;
    /// let window = verbena::Device::open()?.pd()?.window(WindowType::One)?;
    /// assert_ne!(window.stag().get(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// A request to bind it, for programs that keep the books themselves: which key it has now or shall have, and how
    /// long the memory lives. The queue pair judges it when its turn comes; `len` 0 takes a window of type 1 back.
    ///
    /// ```
    /// use verbena::Access;
    /// use verbena::low::{SendOp, WindowType};
    /// let pd = verbena::Device::open()?.pd()?;
    /// let window = pd.window(WindowType::TwoB)?;
    /// let memory = pd.memory(4096, Access::ALL)?;
    /// let piece = memory.sge(0, 4096)?;
    /// let op = window.bind_stag(window.stag(), piece.stag, piece.at, 4096, Access::REMOTE_READ);
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

    fn request(&self, region: Stag, at: u64, len: u64, access: Access) -> SendOp {
        SendOp::Bind(self.bind_to(region, at, len, access))
    }

    fn bind_to(&self, region: Stag, at: u64, len: u64, access: Access) -> Bind {
        Bind {
            window: self.stag,
            region,
            at,
            len,
            access,
            // The queue pair that carries it out puts its own in their place.
            pd: self.domain.pd,
            qp: 0,
            key: self.stag.key().wrapping_add(1),
            zero_based: false,
            one_touch: self.one_touch,
        }
    }

    /// What was told to peers before is void: the next instance of the same index.
    fn step(&mut self) {
        let next = self.stag.key().wrapping_add(1);
        self.stag = Stag::from_parts(self.stag.index(), next).unwrap_or(self.stag);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Returns when no peer is at work in it; a window of ours can always be freed.
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
