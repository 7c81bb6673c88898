//! An open device: its function of the adapter, and the queue of asynchronous events.
//! A context with objects left is not freed when it is closed, so that these stay valid until the process ends.

use core::ffi::c_int;
use core::mem::offset_of;
use std::fs::File;
use std::sync::Arc;

use crate::abi::*;
use crate::async_event::Events;
use crate::caller::handle;
use crate::check;
use crate::errno::{Errno, number};
use crate::function::AdapterFunction;
use crate::uses::Uses;

/// The library's part of a context.
pub(crate) struct Context {
    pub(crate) function: Arc<AdapterFunction>,
    pub(crate) events: Arc<Events>,
    pub(crate) uses: Uses,
    /// Shown as `cmd_fd`: programs duplicate it and pass it to another process before they ask whether a device can be imported by it.
    _commands: Option<File>,
}

#[repr(C)]
struct OpenContext {
    verbs: verbs_context,
    own: Context,
}

const CONTEXT_OFFSET: usize = offset_of!(OpenContext, verbs) + offset_of!(verbs_context, context);

/// The library's part of the context behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `context` is null or was opened by this library and is not closed while the answer is used.
pub(crate) unsafe fn of<'a>(context: *const ibv_context) -> Result<&'a Context, Errno> {
    if context.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller guarantees that `context` is the field of an `OpenContext` that `allocate` made.
    let opened = unsafe { context.byte_sub(CONTEXT_OFFSET) }.cast::<OpenContext>();
    // SAFETY: `opened` is that `OpenContext`, which the caller does not close while the result is used. C code has no access to the field that is borrowed.
    Ok(unsafe { &(*opened).own })
}

/// Allocates a context; it is freed by [`ibv_close_device`].
pub(crate) fn allocate(
    verbs: verbs_context,
    function: Arc<AdapterFunction>,
    events: Arc<Events>,
    commands: Option<File>,
) -> *mut ibv_context {
    let uses = Uses::default();
    let opened = Box::into_raw(Box::new(OpenContext {
        verbs,
        own: Context {
            function,
            events,
            uses,
            _commands: commands,
        },
    }));
    // SAFETY: `opened` was allocated above; only the address of a field is taken.
    let context = unsafe { &raw mut (*opened).verbs.context };
    if let Some(checker) = check::checker() {
        checker.created(context as usize, "ibv_context");
    }
    context
}

/// Closes a device.
///
/// # Safety
/// `context` was opened by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let own = match handle!(of(context)) {
        Ok(own) => own,
        Err(errno) => return number(Err(errno)),
    };
    if let Some(checker) = check::checker() {
        checker.destroyed(context as usize);
    }
    if !own.uses.any() {
        // SAFETY: `context` lies in the box that `allocate` leaked; no object uses it, and the caller does not use it after this call.
        drop(unsafe { Box::from_raw(context.byte_sub(CONTEXT_OFFSET).cast::<OpenContext>()) });
    }
    0
}
