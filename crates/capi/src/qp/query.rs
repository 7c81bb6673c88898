//! What can be asked of a queue pair.
//! It promises what was set and where the queue pair stands now. It refuses options that only makers of cards know.

use core::ffi::c_int;

use super::of;
use crate::abi::*;
use crate::errno::{Errno, number};

/// What a queue pair was made of, what it was told, and where it stands.
///
/// # Safety
/// `qp` was made here; the others are the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { of(qp) };
    number(own.and_then(|own| {
        // SAFETY: the program's word.
        let (Some(attr), Some(init)) = (unsafe { (attr.as_mut(), init.as_mut()) }) else {
            return Err(Errno::INVAL);
        };
        *attr = own.attributes();
        // SAFETY: fields that are written once, but for the state, which this call changes for the program.
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

/// Whether data of requests is placed in order, as the caller would like to rely on: from the first byte to the last it is,
/// but a program may see the last of a long message before all of a piece that went another way.
///
/// # Safety
/// As of a function that looks at nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: u32,
    _flags: u32,
) -> c_int {
    0
}

/// Options of a connection's makers: there are none.
///
/// # Safety
/// `ece` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program's word.
    if let Some(ece) = unsafe { ece.as_mut() } {
        *ece = ibv_ece::zeroed();
    }
    number(Err(Errno::NOSUPP))
}

/// Sets options of a connection's makers: there are none.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    number(Err(Errno::NOSUPP))
}
