//! Address translation: from an offset in a region to the address of its bytes (M3).
//! Direct, first-order and second-order translation with every page size of M3; the pages of a list need not be contiguous.
//! A run never leaves the memory of the translation; rights and bounds of an access are checked in [`crate::check`].
//! Reads and writes translate to the same bytes, except in the null translation, where reads find zeros and writes are discarded.

use std::sync::Arc;

use crate::mapping::NullPages;
use crate::memory::Memory;
use crate::refusal::Misuse;
use crate::span::Span;

/// Page sizes (M3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageSize {
    /// 4 KiB.
    K4,
    /// 8 KiB.
    K8,
    /// 64 KiB.
    K64,
    /// 1 MiB.
    M1,
    /// 16 MiB.
    M16,
    /// 256 MiB.
    M256,
}

impl PageSize {
    /// Every page size.
    pub const ALL: [PageSize; 6] = [
        PageSize::K4,
        PageSize::K8,
        PageSize::K64,
        PageSize::M1,
        PageSize::M16,
        PageSize::M256,
    ];

    /// Bits of an offset that lie inside a page.
    pub const fn shift(self) -> u32 {
        match self {
            PageSize::K4 => 12,
            PageSize::K8 => 13,
            PageSize::K64 => 16,
            PageSize::M1 => 20,
            PageSize::M16 => 24,
            PageSize::M256 => 28,
        }
    }

    /// Bytes of a page.
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
}

/// The address of a host page; in M3, a physical page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page(*mut u8);

// SAFETY: a page is an address, and no function here dereferences it.
unsafe impl Send for Page {}
// SAFETY: threads that share a page can only copy the address.
unsafe impl Sync for Page {}

impl Page {
    /// The page at `start`.
    pub const fn at(start: *mut u8) -> Page {
        Page(start)
    }

    fn span(self, offset: u64, len: u64) -> Span {
        Span::new(self.0.wrapping_add(offset as usize), len as usize)
    }
}

/// Second-order translation: binary logarithm of the entries of a second-level table.
const FAN_OUT_SHIFT: u32 = 9;
/// Entries of one second-level table.
pub const FAN_OUT: usize = 1 << FAN_OUT_SHIFT;
/// Page lists above this many pages use second-order translation.
pub const FIRST_ORDER_MAX: usize = FAN_OUT;

/// The translation of one region, shared with its windows and shared registrations.
#[derive(Debug)]
pub struct Att {
    control: Control,
    /// Where the region's first byte lies in the first page.
    first_offset: u64,
    len: u64,
    /// The lowest address of all pages, and the end of the highest.
    address_bounds: (usize, usize),
    /// Whether its pages are mapped is decided by each access, not by the registration.
    on_demand: bool,
    /// Keeps memory of the adapter allocated as long as an entry translates to it.
    _memory: Option<Arc<Memory>>,
}

/// ATT control (M3).
#[derive(Debug)]
enum Control {
    /// One contiguous run.
    Direct(Page),
    /// A table of pages.
    FirstOrder(PageSize, Box<[Page]>),
    /// A table of tables of pages.
    SecondOrder(PageSize, Box<[Box<[Page]>]>),
    /// No memory: reads find zeros, and writes go to pages that are never read.
    Null(&'static NullPages),
}

impl Att {
    /// One contiguous run of `len` bytes.
    pub fn direct(start: *mut u8, len: u64) -> Att {
        Att {
            control: Control::Direct(Page::at(start)),
            first_offset: 0,
            len,
            address_bounds: (start.addr(), start.addr().saturating_add(len as usize)),
            on_demand: false,
            _memory: None,
        }
    }

    /// The same for memory that need not be mapped when it is registered (on-demand paging): an access faults its pages in, or fails
    /// if there is no mapping.
    pub fn on_demand(start: *mut u8, len: u64) -> Att {
        Att {
            on_demand: true,
            ..Att::direct(start, len)
        }
    }

    /// All addresses of the process, on demand.
    pub fn address_space() -> Att {
        Att::on_demand(core::ptr::with_exposed_provenance_mut(0), u64::MAX)
    }

    /// Any address: reads find zeros, and writes are discarded. Fails if the system has no pages for it.
    pub fn null() -> Result<Att, Misuse> {
        Ok(Att {
            control: Control::Null(NullPages::get()?),
            first_offset: 0,
            len: u64::MAX,
            address_bounds: (0, 0),
            on_demand: true,
            _memory: None,
        })
    }

    /// Its memory need not be mapped when it is registered.
    pub fn is_on_demand(&self) -> bool {
        self.on_demand
    }

    /// Number of its entries in the translation tables.
    pub fn pages(&self) -> usize {
        match &self.control {
            Control::Direct(_) | Control::Null(_) => 1,
            Control::FirstOrder(_, pages) => pages.len(),
            Control::SecondOrder(_, tables) => tables.iter().map(|table| table.len()).sum(),
        }
    }

    /// All of some memory of the adapter, which is freed after this at the earliest.
    pub(crate) fn owned(memory: Arc<Memory>) -> Att {
        let att = Att::direct(memory.start(), memory.len() as u64);
        Att {
            _memory: Some(memory),
            ..att
        }
    }

    /// `len` bytes scattered over pages; the first byte lies `first_offset` bytes into the first page.
    pub fn paged(
        size: PageSize,
        pages: &[Page],
        first_offset: u64,
        len: u64,
    ) -> Result<Att, Misuse> {
        let end = first_offset.checked_add(len);
        let room = (pages.len() as u64).checked_mul(size.bytes());
        let fits = matches!((end, room), (Some(end), Some(room)) if end <= room);
        if first_offset >= size.bytes() || !fits {
            return Err(Misuse::PageList {
                pages: pages.len(),
                page: size.bytes(),
                first_offset,
                len,
            });
        }
        let control = if pages.len() <= FIRST_ORDER_MAX {
            Control::FirstOrder(size, pages.into())
        } else {
            Control::SecondOrder(size, pages.chunks(FAN_OUT).map(Into::into).collect())
        };
        let starts = || pages.iter().map(|page| page.0.addr());
        let end = |start: usize| start.saturating_add(size.bytes() as usize);
        Ok(Att {
            control,
            first_offset,
            len,
            address_bounds: (starts().min().unwrap_or(0), starts().max().map_or(0, end)),
            on_demand: false,
            _memory: None,
        })
    }

    /// Bytes translated.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Nothing is translated.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The order of indirection: 0, 1 or 2.
    pub fn order(&self) -> u8 {
        match self.control {
            Control::Direct(_) | Control::Null(_) => 0,
            Control::FirstOrder(..) => 1,
            Control::SecondOrder(..) => 2,
        }
    }

    /// The page size; direct translation has none.
    #[cfg(test)]
    pub(crate) fn page_size(&self) -> Option<PageSize> {
        match self.control {
            Control::Direct(_) | Control::Null(_) => None,
            Control::FirstOrder(size, _) | Control::SecondOrder(size, _) => Some(size),
        }
    }

    /// The longest contiguous run to read at `offset`, at most `len` bytes; empty at and beyond the end.
    pub fn run(&self, offset: u64, len: u64) -> Span {
        self.run_for(offset, len, false)
    }

    /// The same to write.
    pub fn run_mut(&self, offset: u64, len: u64) -> Span {
        self.run_for(offset, len, true)
    }

    #[inline]
    pub(crate) fn run_for(&self, offset: u64, len: u64, write: bool) -> Span {
        let len = len.min(self.len.saturating_sub(offset));
        if len == 0 {
            return Span::new(core::ptr::null_mut(), 0);
        }
        let at = self.first_offset + offset;
        if let Control::Direct(page) = &self.control {
            return page.span(at, len);
        }
        self.run_indirect(at, len, write)
    }

    /// Apart from [`run_for`](Att::run_for), whose code for direct translation stays short.
    #[inline(never)]
    fn run_indirect(&self, at: u64, len: u64, write: bool) -> Span {
        match &self.control {
            Control::Direct(page) => page.span(at, len),
            Control::FirstOrder(size, pages) => {
                let (page, inside) = split(at, *size);
                in_page(pages.get(page), inside, len, *size)
            }
            Control::SecondOrder(size, tables) => {
                let (page, inside) = split(at, *size);
                let table = tables.get(page >> FAN_OUT_SHIFT);
                let page = table.and_then(|t| t.get(page & (FAN_OUT - 1)));
                in_page(page, inside, len, *size)
            }
            Control::Null(pages) => pages.span(len, write),
        }
    }

    /// Both may translate to the same bytes; if false, they do not.
    pub(crate) fn may_overlap(&self, other: &Att) -> bool {
        self.address_bounds.0 < other.address_bounds.1
            && other.address_bounds.0 < self.address_bounds.1
    }

    /// Every contiguous run of the translation.
    pub fn runs(&self) -> impl Iterator<Item = Span> + '_ {
        let mut offset = 0;
        core::iter::from_fn(move || {
            let span = self.run(offset, u64::MAX);
            offset += span.len() as u64;
            (!span.is_empty()).then_some(span)
        })
    }
}

/// High bits select the page, low bits the byte in it.
fn split(at: u64, size: PageSize) -> (usize, u64) {
    ((at >> size.shift()) as usize, at & (size.bytes() - 1))
}

fn in_page(page: Option<&Page>, inside: u64, len: u64, size: PageSize) -> Span {
    match page {
        Some(page) => page.span(inside, len.min(size.bytes() - inside)),
        None => Span::new(core::ptr::null_mut(), 0),
    }
}

#[cfg(test)]
mod tests;
