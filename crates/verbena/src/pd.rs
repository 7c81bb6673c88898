//! A protection domain of the low layer: where its memory, windows and shared queues come from.
//! It promises that what was made in it keeps it alive, and that queue pairs of other domains reach nothing in it.
//! It refuses the memory of connections: that has a domain of its own, out of reach.

use std::sync::Arc;

use verbena_mem::{Access, WindowType};

use crate::cq::BareCq;
use crate::device::Domain;
use crate::error::Error;
use crate::mr::{Memory, Tag, Window};
use crate::registering::Registering;
use crate::srq::Srq;
use crate::ssq::{Ssq, SsqOptions};

/// A protection domain of the low layer: its memory can be used by its queue pairs, and by no others.
///
/// ```
/// use verbena::{Access, Device};
/// let pd = Device::open()?.pd()?;
/// let memory = pd.memory(4096, Access::ALL)?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pd(pub(crate) Arc<Domain>);

impl Pd {
    /// Memory in this domain.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let memory = Device::open()?.pd()?.memory(4096, Access::LOCAL_WRITE)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory(&self, len: usize, access: Access) -> Result<Memory, Error> {
        Memory::new(&self.0, len, access)
    }

    /// Memory in this domain that is registered later, behind all that was asked for so before (V5). It can be used at
    /// once: requests that need it stand until it is registered, peers that reach for it wait up to five seconds, and
    /// nobody else notices. If the registration fails, so does the work that waited. [`Registering`] has a whole example.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let (memory, registering) = Device::open()?.pd()?.memory_later(1 << 20, Access::ALL)?;
    /// registering.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory_later(&self, len: usize, access: Access) -> Result<(Memory, Registering), Error> {
        Memory::later(&self.0, len, access)
    }

    /// Memory whose registration dies with the first message of a peer that ends in it, be it a Write, a read that is served or
    /// an atomic, and without the peer knowing (M9). The memory itself stays, and its owner's copies in and out work on.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let memory = Device::open()?.pd()?.one_touch_memory(4096, Access::ALL)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn one_touch_memory(&self, len: usize, access: Access) -> Result<Memory, Error> {
        Memory::one_touch(&self.0, len, access)
    }

    /// An STag under which requests register memory (M4), with room for so many pages at once. [`Tag`] has a whole example.
    ///
    /// ```
    /// let tag = verbena::Device::open()?.pd()?.tag(16)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn tag(&self, pages: u32) -> Result<Tag, Error> {
        Tag::new(self, pages)
    }

    /// A window onto memory of this domain, bound to nothing yet.
    ///
    /// ```
    /// use verbena::low::WindowType;
    /// let window = verbena::Device::open()?.pd()?.window(WindowType::TwoB)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn window(&self, ty: WindowType) -> Result<Window, Error> {
        Window::new(self, ty)
    }

    /// A shared send queue in this domain, which completes in this queue (V6). [`Ssq`] has a whole example.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::SsqOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn ssq(&self, cq: &BareCq, options: SsqOptions) -> Result<Ssq, Error> {
        Ssq::new(self, cq, options)
    }

    /// A shared receive queue in this domain: so many receives of at most so many pieces.
    ///
    /// ```
    /// let srq = verbena::Device::open()?.pd()?.srq(1024, 4)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn srq(&self, receives: usize, pieces: usize) -> Result<Srq, Error> {
        Srq::new(self, receives, pieces)
    }
}
