//! `rdma_init_qp_attr`: attributes for a queue pair that the program moves through the states itself.
//! The connection manager makes the connection all the same: the peer's number is one that cannot be connected to out of band.

use core::ffi::c_int;

use super::conn_param::{MANAGED_ACCESS, RETRY_COUNT, RNR_TIMER};
use super::{datagram, id};
use crate::abi::*;
use crate::caller::{handle, this_id};
use crate::errno::{Errno, minus_one};
use crate::query::MAX_READS;

/// The number that peers of managed connections have in attributes: it cannot be connected to out of band.
const MANAGED_PEER_QPN: u32 = 1;

/// The attributes for the next state of a queue pair that the program moves itself.
///
/// # Safety
/// `id` was created by this library; the others are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    let own = handle!(id::of(id));
    minus_one(own.and_then(|own| {
        // SAFETY: the caller guarantees that `attr` and `mask` are null or valid for reads and writes.
        let (Some(attr), Some(mask)) = (unsafe { (attr.as_mut(), mask.as_mut()) }) else {
            return Err(Errno::INVAL);
        };
        if this_id!(datagram::is_for_datagrams(id)) {
            *mask = datagram::init_attr(attr)? as c_int;
            return Ok(());
        }
        let (peer, timeout) = {
            let inner = own.inner.lock();
            (inner.peer, inner.options.timeout())
        };
        let needs = match attr.qp_state {
            IBV_QPS_INIT => {
                attr.pkey_index = 0;
                attr.port_num = 1;
                attr.qp_access_flags = MANAGED_ACCESS;
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
            }
            IBV_QPS_RTR => {
                let peer = peer.ok_or(Errno::INVAL)?;
                attr.ah_attr = ibv_ah_attr::zeroed();
                attr.ah_attr.grh.dgid = crate::port::gid_of(peer.ip());
                attr.ah_attr.grh.hop_limit = 64;
                attr.ah_attr.is_global = 1;
                attr.ah_attr.port_num = 1;
                attr.path_mtu = IBV_MTU_4096;
                attr.dest_qp_num = MANAGED_PEER_QPN;
                attr.rq_psn = 0;
                attr.max_dest_rd_atomic = MAX_READS;
                attr.min_rnr_timer = RNR_TIMER;
                IBV_QP_STATE
                    | IBV_QP_AV
                    | IBV_QP_PATH_MTU
                    | IBV_QP_DEST_QPN
                    | IBV_QP_RQ_PSN
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_MIN_RNR_TIMER
            }
            IBV_QPS_RTS => {
                attr.timeout = timeout;
                attr.retry_cnt = RETRY_COUNT;
                attr.rnr_retry = 7;
                attr.sq_psn = 0;
                attr.max_rd_atomic = MAX_READS;
                IBV_QP_STATE
                    | IBV_QP_TIMEOUT
                    | IBV_QP_RETRY_CNT
                    | IBV_QP_RNR_RETRY
                    | IBV_QP_SQ_PSN
                    | IBV_QP_MAX_QP_RD_ATOMIC
            }
            IBV_QPS_ERR => IBV_QP_STATE,
            _ => return Err(Errno::INVAL),
        };
        *mask = needs as c_int;
        Ok(())
    }))
}
