//! The parameters of a connection that a program requests or accepts, and the attributes of the queue pair that follow from them.
//! Values beyond the adapter's limits are reduced to them; private data is copied.

use core::ffi::c_void;

use super::attributes::RNR_TIMER;
use super::datagram::Words;
use crate::abi::*;
use crate::errno::Errno;
use crate::query::READS;

/// The retry count, which programs cannot set: the largest value.
pub(super) const RETRIES: u8 = 7;

/// The attributes that a managed connection sets on its queue pair.
pub(super) const MANAGED: u32 = IBV_QP_PATH_MTU
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MAX_DEST_RD_ATOMIC;

/// Parameters of a connection; defaults if the program gave none.
pub(super) struct Asked {
    pub(super) private_data: Vec<u8>,
    pub(super) inbound: u8,
    pub(super) outbound: u8,
    pub(super) rnr_retry: u8,
    pub(super) number: u32,
}

impl Asked {
    /// # Safety
    /// `param` is null or valid, and its private data is valid for reads.
    pub(super) unsafe fn new(param: *const rdma_conn_param) -> Result<Asked, Errno> {
        // SAFETY: the caller guarantees that `param` is null or valid for reads.
        let Some(param) = (unsafe { param.as_ref() }) else {
            return Ok(Asked {
                private_data: Vec::new(),
                inbound: READS,
                outbound: READS,
                rnr_retry: 7,
                number: 0,
            });
        };
        // SAFETY: the caller guarantees that `param.private_data_len` bytes at `param.private_data` are valid for reads.
        let private_data = unsafe { bytes(param.private_data, param.private_data_len)? };
        Ok(Asked {
            private_data,
            // More than the adapter's limit means the limit.
            inbound: param.responder_resources.min(READS),
            outbound: param.initiator_depth.min(READS),
            rnr_retry: param.rnr_retry_count,
            number: param.qp_num,
        })
    }

    /// The attributes of the queue pair that follow from these parameters.
    pub(super) fn attributes(&self, timeout: u8) -> ibv_qp_attr {
        ibv_qp_attr {
            path_mtu: IBV_MTU_4096,
            timeout,
            retry_cnt: RETRIES,
            rnr_retry: self.rnr_retry.min(7),
            min_rnr_timer: RNR_TIMER,
            max_rd_atomic: self.outbound,
            max_dest_rd_atomic: self.inbound,
            ..ibv_qp_attr::zeroed()
        }
    }

    /// The parameters that apply to datagrams.
    pub(super) fn words(self) -> Words {
        Words {
            private_data: self.private_data,
            number: self.number,
        }
    }
}

/// # Safety
/// `data` points to `len` bytes that are valid for reads.
pub(super) unsafe fn bytes(data: *const c_void, len: u8) -> Result<Vec<u8>, Errno> {
    if len == 0 {
        return Ok(Vec::new());
    }
    if data.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: `data` is not null, so the caller guarantees `len` bytes.
    Ok(unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len.into()) }.to_vec())
}
