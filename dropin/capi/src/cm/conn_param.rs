//! The parameters of a connection that a program requests or accepts, and the attributes of the queue pair that follow from them.
//! Values beyond the adapter's limits are reduced to them; private data is copied.

use core::ffi::c_void;

use super::datagram::SidrParam;
use crate::abi::*;
use crate::caller::arg_ref;
use crate::errno::Errno;
use crate::query::MAX_READS;

/// The retry count, which programs cannot set: the largest value.
pub(super) const RETRY_COUNT: u8 = 7;

/// The minimum RNR timer: 0.64 ms.
pub(super) const RNR_TIMER: u8 = 12;

/// What the peer of a managed connection may do.
pub(super) const MANAGED_ACCESS: u32 = IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_FLUSH_GLOBAL;

/// The attributes that a managed connection sets on its queue pair.
pub(super) const MANAGED_ATTR_MASK: u32 = IBV_QP_PATH_MTU
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MAX_DEST_RD_ATOMIC;

/// Parameters of a connection; defaults if the program gave none.
pub(super) struct ConnParam {
    pub(super) private_data: Vec<u8>,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) rnr_retry: u8,
    pub(super) qp_num: u32,
}

impl ConnParam {
    /// # Safety
    /// `param` is null or valid, and its private data is valid for reads.
    pub(super) unsafe fn new(param: *const rdma_conn_param) -> Result<ConnParam, Errno> {
        let Some(param) = arg_ref!(param) else {
            return Ok(ConnParam {
                private_data: Vec::new(),
                responder_resources: MAX_READS,
                initiator_depth: MAX_READS,
                rnr_retry: 7,
                qp_num: 0,
            });
        };
        // SAFETY: the caller guarantees that `param.private_data_len` bytes at `param.private_data` are valid for reads.
        let private_data =
            unsafe { copy_private_data(param.private_data, param.private_data_len)? };
        Ok(ConnParam {
            private_data,
            // More than the adapter's limit means the limit.
            responder_resources: param.responder_resources.min(MAX_READS),
            initiator_depth: param.initiator_depth.min(MAX_READS),
            rnr_retry: param.rnr_retry_count,
            qp_num: param.qp_num,
        })
    }

    /// The attributes of the queue pair that follow from these parameters.
    pub(super) fn attributes(&self, timeout: u8) -> ibv_qp_attr {
        ibv_qp_attr {
            path_mtu: IBV_MTU_4096,
            timeout,
            retry_cnt: RETRY_COUNT,
            rnr_retry: self.rnr_retry.min(7),
            min_rnr_timer: RNR_TIMER,
            max_rd_atomic: self.initiator_depth,
            max_dest_rd_atomic: self.responder_resources,
            ..ibv_qp_attr::zeroed()
        }
    }

    /// The parameters that apply to datagrams.
    pub(super) fn sidr_param(self) -> SidrParam {
        SidrParam {
            private_data: self.private_data,
            qp_num: self.qp_num,
        }
    }
}

/// # Safety
/// `data` points to `len` bytes that are valid for reads.
pub(super) unsafe fn copy_private_data(data: *const c_void, len: u8) -> Result<Vec<u8>, Errno> {
    if len == 0 {
        return Ok(Vec::new());
    }
    if data.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: `data` is not null, so the caller guarantees `len` bytes.
    Ok(unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len.into()) }.to_vec())
}
