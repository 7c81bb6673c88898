//! Queries of a queue pair: attributes as they were set, and its current state.
//! Of the vendor-specific options of a connection (ECE) there are none: they can be set and queried, without an effect.

use core::ffi::c_int;

use super::of;
use crate::abi::*;
use crate::caller::{arg_mut, arg_ref, handle};
use crate::errno::{Errno, number};
use crate::identity::VENDOR_ID;

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

/// Vendor-specific options of a connection: the vendor, and no options.
///
/// # Safety
/// `qp` was created by this library; `ece` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    let (own, ece) = (handle!(of(qp)), arg_mut!(ece));
    number(own.and_then(|_| {
        *ece.ok_or(Errno::INVAL)? = ibv_ece {
            vendor_id: VENDOR_ID,
            ..ibv_ece::zeroed()
        };
        Ok(())
    }))
}

/// Sets vendor-specific options of a connection: those that the adapter does not have, which is all, are left out, as adapters do. The options
/// of another vendor are `EINVAL`; those of no vendor, which a peer without options has, are `EOPNOTSUPP`.
///
/// # Safety
/// `qp` was created by this library; `ece` is null or valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    let (own, ece) = (handle!(of(qp)), arg_ref!(ece));
    number(own.and_then(|_| match ece.ok_or(Errno::INVAL)? {
        ibv_ece { vendor_id: 0, .. } => Err(Errno::NOSUPP),
        ibv_ece {
            vendor_id: VENDOR_ID,
            comp_mask: 0,
            ..
        } => Ok(()),
        _ => Err(Errno::INVAL),
    }))
}
