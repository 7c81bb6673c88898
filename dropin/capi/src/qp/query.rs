//! Queries of a queue pair: attributes as they were set, and its current state.
//! Vendor-specific options (ECE) are not supported.

use core::ffi::c_int;

use super::of;
use crate::abi::*;
use crate::caller::{arg_mut, handle};
use crate::errno::{Errno, number};

/// The attributes of a queue pair, and those that it was created with.
///
/// # Safety
/// `qp` was created by this library; the others are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let own = handle!(of(qp));
    number(own.and_then(|own| {
        // SAFETY: the caller guarantees that `attr` and `init` are null or valid for reads and writes.
        let (Some(attr), Some(init)) = (unsafe { (attr.as_mut(), init.as_mut()) }) else {
            return Err(Errno::INVAL);
        };
        *attr = own.attributes();
        // SAFETY: `qp` is valid, since `of` succeeded. The fields are written once, except for the state, which the program does not access now.
        unsafe {
            *init = ibv_qp_init_attr {
                qp_context: (*qp).qp_context,
                send_cq: (*qp).send_cq,
                recv_cq: (*qp).recv_cq,
                srq: (*qp).srq,
                cap: own.cap,
                qp_type: own.kind,
                sq_sig_all: own.signal_all.into(),
            };
            (*qp).state = attr.qp_state;
        }
        Ok(())
    }))
}

/// Whether data is placed in order within a message, so that the last byte can be polled. The answer is no: a long message may be
/// placed in parts that take different ways.
///
/// # Safety
/// No requirements: the arguments are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: u32,
    _flags: u32,
) -> c_int {
    0
}

/// Vendor-specific options of a connection: there are none.
///
/// # Safety
/// `ece` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    if let Some(ece) = arg_mut!(ece) {
        *ece = ibv_ece::zeroed();
    }
    number(Err(Errno::NOSUPP))
}

/// Would set vendor-specific options of a connection; not supported.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    number(Err(Errno::NOSUPP))
}
