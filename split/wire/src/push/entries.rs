//! The repeated parts of messages: pools, ranges of elements, references, and written elements. A parsed list has at least one
//! entry and no bytes behind the last; entries are decoded from the borrowed bytes on iteration. Whether a pool exists is checked
//! by the session.

use core::fmt;
use core::marker::PhantomData;

use verbena_wire::{Stag, To};

/// An entry of a fixed length.
pub trait Entry: Sized {
    /// Bytes on the wire.
    const LEN: usize;

    /// Reads one from exactly [`Entry::LEN`] bytes; `None` for any other number.
    fn parse(bytes: &[u8]) -> Option<Self>;

    /// Appends the entry.
    fn emit(&self, out: &mut Vec<u8>);
}

/// A list of entries, still encoded.
pub struct Entries<'a, T> {
    bytes: &'a [u8],
    of: PhantomData<T>,
}

impl<'a, T: Entry> Entries<'a, T> {
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Entries<'a, T>> {
        let whole = !bytes.is_empty() && bytes.len().is_multiple_of(T::LEN);
        whole.then_some(Entries {
            bytes,
            of: PhantomData,
        })
    }

    /// Entries in the list.
    pub fn len(&self) -> usize {
        self.bytes.len() / T::LEN
    }

    /// Always false for a parsed list.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        self.bytes.chunks_exact(T::LEN).filter_map(T::parse)
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

// Not derived, because the derives would require `T` to have these traits.
impl<T> Clone for Entries<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Entries<'_, T> {}

impl<T> PartialEq for Entries<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T> Eq for Entries<'_, T> {}

impl<T: Entry + fmt::Debug> fmt::Debug for Entries<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes(*word))
}

/// A pool: an array of buffers of one size in memory that may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The pool's number; the highest bit is not used, see [`Element`].
    pub reference: u32,
    /// Number of elements.
    pub count: u32,
    /// Bytes of each element.
    pub size: u32,
    /// STag of the memory.
    pub handle: Stag,
    /// The first byte of the first element.
    pub at: To,
    /// A value chosen by the owner.
    pub context: u64,
}

impl Entry for Pool {
    const LEN: usize = 32;

    fn parse(bytes: &[u8]) -> Option<Pool> {
        (bytes.len() == Pool::LEN).then_some(())?;
        Some(Pool {
            reference: u32_at(bytes, 0)?,
            count: u32_at(bytes, 4)?,
            size: u32_at(bytes, 8)?,
            handle: Stag::new(u32_at(bytes, 12)?),
            at: To::new(u64_at(bytes, 16)?),
            context: u64_at(bytes, 24)?,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        for word in [self.reference, self.count, self.size, self.handle.get()] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.at.get().to_be_bytes());
        out.extend_from_slice(&self.context.to_be_bytes());
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "[pool={} {}x{} handle={} at={} context={:#x}]",
            self.reference, self.count, self.size, self.handle, self.at, self.context
        )
    }
}

/// Elements of a pool that may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The pool.
    pub pool: u32,
    /// The first element.
    pub first: u32,
    /// Number of elements.
    pub count: u32,
}

impl Entry for Range {
    const LEN: usize = 12;

    fn parse(bytes: &[u8]) -> Option<Range> {
        (bytes.len() == Range::LEN).then_some(())?;
        Some(Range {
            pool: u32_at(bytes, 0)?,
            first: u32_at(bytes, 4)?,
            count: u32_at(bytes, 8)?,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        for word in [self.pool, self.first, self.count] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[pool={} {}+{}]", self.pool, self.first, self.count)
    }
}

/// The number of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reference(pub u32);

impl Entry for Reference {
    const LEN: usize = 4;

    fn parse(bytes: &[u8]) -> Option<Reference> {
        let word = bytes.try_into().ok()?;
        Some(Reference(u32::from_be_bytes(word)))
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[pool={}]", self.0)
    }
}

/// An element that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Named by pool and index.
    Index {
        /// The pool; the highest bit is not sent.
        pool: u32,
        /// The element in it.
        element: u32,
        /// Bytes stored.
        length: u32,
    },
    /// Named by address, for the outbound direction.
    Address {
        /// The pool; the highest bit is not sent.
        pool: u32,
        /// The first byte.
        at: To,
        /// Bytes stored.
        length: u32,
    },
}

impl Element {
    /// Marks the form with an address.
    const BY_ADDRESS: u32 = 0x8000_0000;
    const INDEX_LEN: usize = 12;
    const ADDRESS_LEN: usize = 16;

    /// Reads the element at the front; the number is its length.
    fn parse(bytes: &[u8]) -> Option<(Element, usize)> {
        let reference = u32_at(bytes, 0)?;
        let pool = reference & !Element::BY_ADDRESS;
        if reference & Element::BY_ADDRESS == 0 {
            let element = Element::Index {
                pool,
                element: u32_at(bytes, 4)?,
                length: u32_at(bytes, 8)?,
            };
            return Some((element, Element::INDEX_LEN));
        }
        let element = Element::Address {
            pool,
            at: To::new(u64_at(bytes, 4)?),
            length: u32_at(bytes, 12)?,
        };
        Some((element, Element::ADDRESS_LEN))
    }

    /// Appends the element.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Element::Index {
                pool,
                element,
                length,
            } => {
                for word in [*pool & !Element::BY_ADDRESS, *element, *length] {
                    out.extend_from_slice(&word.to_be_bytes());
                }
            }
            Element::Address { pool, at, length } => {
                out.extend_from_slice(&(pool | Element::BY_ADDRESS).to_be_bytes());
                out.extend_from_slice(&at.get().to_be_bytes());
                out.extend_from_slice(&length.to_be_bytes());
            }
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Index {
                pool,
                element,
                length,
            } => write!(f, "[pool={pool} element={element} length={length}]"),
            Element::Address { pool, at, length } => {
                write!(f, "[pool={pool} at={at} length={length}]")
            }
        }
    }
}

/// Elements of both forms, still encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Elements<'a> {
    bytes: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Elements<'a>> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (_, len) = Element::parse(rest)?;
            rest = rest.get(len..)?;
        }
        (!bytes.is_empty()).then_some(Elements { bytes })
    }

    /// The elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = Element> + use<'a> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let (element, len) = Element::parse(rest)?;
            rest = rest.get(len..).unwrap_or_default();
            Some(element)
        })
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl fmt::Debug for Elements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
