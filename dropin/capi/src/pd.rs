//! Protection domains, thread domains and parent domains. A domain in use by another object is not freed (`EBUSY`).
//! A parent domain is the protection domain that it was made from, under an address of its own: keys and objects of both go together.
//! A thread domain has no effect, since a queue that only one thread uses is not faster here.

use core::ffi::c_int;

use verbena::low::Pd;

use crate::abi::*;
use crate::allocator::Allocator;
use crate::caller::{arg_ref, handle};
use crate::context;
use crate::errno::{Errno, number, pointer};
use crate::object::Object;
use crate::uses::{Use, Uses};

/// The library's part of a domain.
pub(crate) struct Domain {
    pub(crate) pd: Pd,
    pub(crate) uses: Uses,
    /// Set in a parent domain.
    parent: Option<Parent>,
    _context: Use,
}

/// What a parent domain has beyond its protection domain.
struct Parent {
    allocator: Option<Allocator>,
    _pd: Use,
    _td: Option<Use>,
}

impl Domain {
    /// The program's allocator for queues of this domain.
    pub(crate) fn allocator(&self) -> Option<&Allocator> {
        self.parent.as_ref()?.allocator.as_ref()
    }

    pub(crate) fn is_parent(&self) -> bool {
        self.parent.is_some()
    }
}

type PdObject = Object<ibv_pd, Domain>;

/// The library's part of a thread domain.
struct ThreadDomain {
    uses: Uses,
    _context: Use,
}

type TdObject = Object<ibv_td, ThreadDomain>;

/// The library's part of the domain behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `pd` is null or was created by this library, and is not destroyed while the result is used.
pub(crate) unsafe fn of<'a>(pd: *const ibv_pd) -> Result<&'a Domain, Errno> {
    handle!(PdObject::of(pd)).ok_or(Errno::INVAL)
}

/// Allocates a domain.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let own = handle!(context::of(context));
    pointer(own.and_then(|own| {
        let domain = Domain {
            pd: own.function.device.pd()?,
            uses: Uses::default(),
            parent: None,
            _context: own.uses.begin(),
        };
        Ok(PdObject::allocate(ibv_pd { context, handle: 0 }, domain))
    }))
}

/// Frees a domain or a parent domain that no object uses.
///
/// # Safety
/// `pd` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let own = handle!(of(pd));
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        // SAFETY: `pd` came from `PdObject::allocate` or `fill`, no object uses it, and the caller does not use it after this call.
        drop(unsafe { PdObject::take(pd) });
        Ok(())
    }))
}

/// Allocates a thread domain.
///
/// # Safety
/// `context` is open; `attr` is null or valid during the call.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    let (own, attr) = (handle!(context::of(context)), arg_ref!(attr));
    pointer(own.and_then(|own| {
        if attr.ok_or(Errno::INVAL)?.comp_mask != 0 {
            return Err(Errno::INVAL);
        }
        let domain = ThreadDomain {
            uses: Uses::default(),
            _context: own.uses.begin(),
        };
        Ok(TdObject::allocate(ibv_td { context }, domain))
    }))
}

/// Frees a thread domain that no parent domain has.
///
/// # Safety
/// `td` was created by this library, and is not used after this call.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    let own = handle!(TdObject::of(td)).ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        // SAFETY: `td` came from `TdObject::allocate`, no parent domain has it, and the caller does not use it after this call.
        drop(unsafe { TdObject::take(td) });
        Ok(())
    }))
}

const PARENT_MASK: u32 =
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

/// Makes a parent domain of a protection domain, with a thread domain, an allocator, both or neither.
///
/// # Safety
/// `context` is open; `attr` is null or valid during the call, and the domains that it names are null or were created by this library. Its
/// allocator returns null, `IBV_ALLOCATOR_USE_DEFAULT`, or memory of the size that it is asked for.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let (own, attr) = (handle!(context::of(context)), arg_ref!(attr));
    pointer(own.and_then(|own| {
        let attr = attr.ok_or(Errno::INVAL)?;
        // SAFETY: the caller guarantees that the domains are null or were created by this library.
        let (domain, td) = unsafe { (of(attr.pd)?, TdObject::of(attr.td)) };
        // SAFETY: `attr.pd` is not null, since `of` succeeded; the field is written once.
        let of_context = unsafe { (*attr.pd).context } == context;
        if attr.comp_mask & !PARENT_MASK != 0 || !of_context || domain.is_parent() {
            return Err(Errno::INVAL);
        }
        let has = |part| attr.comp_mask & part != 0;
        let object = PdObject::new_uninit();
        let pd_context = match has(IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) {
            true => attr.pd_context,
            false => core::ptr::null_mut(),
        };
        let allocator = match (attr.alloc, attr.free) {
            _ if !has(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) => None,
            (Some(alloc), Some(free)) => {
                let parent = object.as_ptr();
                // SAFETY: the caller guarantees what its functions `alloc` and `free` do.
                Some(unsafe { Allocator::new(alloc, free, parent, pd_context) })
            }
            _ => return Err(Errno::INVAL),
        };
        let parent = Domain {
            pd: domain.pd.clone(),
            uses: Uses::default(),
            parent: Some(Parent {
                allocator,
                _pd: domain.uses.begin(),
                _td: td.map(|td| td.uses.begin()),
            }),
            _context: own.uses.begin(),
        };
        Ok(object.fill(ibv_pd { context, handle: 0 }, parent))
    }))
}

/// Would import a domain of another process; not supported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_pd(_context: *mut ibv_context, _handle: u32) -> *mut ibv_pd {
    pointer(Err(Errno::NOSUPP))
}

/// Undoes [`ibv_import_pd`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}
