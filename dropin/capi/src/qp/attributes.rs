//! The attributes that a program has set on its queue pair, for `ibv_query_qp`.
//! The state that it reports is the adapter's; the other attributes are returned as they were set.

use verbena::low::QpState;

use super::Pair;
use crate::abi::*;

/// Attributes as they were set.
pub(super) struct StoredAttr {
    pub(super) attr: ibv_qp_attr,
}

impl Default for StoredAttr {
    fn default() -> StoredAttr {
        StoredAttr {
            attr: ibv_qp_attr::zeroed(),
        }
    }
}

// SAFETY: the struct has integers only and no pointers.
unsafe impl Send for StoredAttr {}

/// Copies fields whose bit is set in the mask.
macro_rules! store {
    ($known:ident, $attr:ident, $mask:ident: $($bit:ident => $($field:ident),+;)+) => {
        $( if $mask & $bit != 0 { $( $known.attr.$field = $attr.$field; )+ } )+
    };
}

impl StoredAttr {
    /// Stores the attributes of the mask.
    pub(super) fn store(&mut self, attr: &ibv_qp_attr, mask: u32) {
        let known = self;
        store! { known, attr, mask:
            IBV_QP_EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify;
            IBV_QP_ACCESS_FLAGS => qp_access_flags;
            IBV_QP_PKEY_INDEX => pkey_index;
            IBV_QP_PORT => port_num;
            IBV_QP_QKEY => qkey;
            IBV_QP_AV => ah_attr;
            IBV_QP_PATH_MTU => path_mtu;
            IBV_QP_TIMEOUT => timeout;
            IBV_QP_RETRY_CNT => retry_cnt;
            IBV_QP_RNR_RETRY => rnr_retry;
            IBV_QP_RQ_PSN => rq_psn;
            IBV_QP_MAX_QP_RD_ATOMIC => max_rd_atomic;
            IBV_QP_MIN_RNR_TIMER => min_rnr_timer;
            IBV_QP_SQ_PSN => sq_psn;
            IBV_QP_MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
            IBV_QP_DEST_QPN => dest_qp_num;
        }
    }
}

/// The `IBV_QPS_` constant of a state.
pub(super) fn state_of(state: QpState) -> u32 {
    state.verbs().into()
}

impl Pair {
    /// Stores attributes that the connection manager has set.
    pub(crate) fn store_attributes(&self, attr: &ibv_qp_attr, mask: u32) {
        self.stored_attr.lock().store(attr, mask);
    }

    /// All attributes that can be queried.
    pub(super) fn attributes(&self) -> ibv_qp_attr {
        let state = state_of(self.transport.state());
        ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            cap: self.cap,
            path_mig_state: IBV_MIG_MIGRATED,
            ..self.stored_attr.lock().attr
        }
    }
}
