//! What a program has told its queue pair, kept so that it can ask for it again.
//! It promises to answer with what was set, and with where the queue pair stands now.
//! It refuses to be the truth about the connection: the adapter has that.

use verbena::low::QpState;

use super::Pair;
use crate::abi::*;

/// What was set, as it was set.
pub(super) struct Known {
    pub(super) attr: ibv_qp_attr,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            attr: ibv_qp_attr::zeroed(),
        }
    }
}

// SAFETY: numbers and bytes; the struct has no pointers.
unsafe impl Send for Known {}

/// A field that is copied when its bit is set.
macro_rules! keep {
    ($known:ident, $attr:ident, $mask:ident: $($bit:ident => $($field:ident),+;)+) => {
        $( if $mask & $bit != 0 { $( $known.attr.$field = $attr.$field; )+ } )+
    };
}

impl Known {
    /// Remembers what was set.
    pub(super) fn keep(&mut self, attr: &ibv_qp_attr, mask: u32) {
        let known = self;
        keep! { known, attr, mask:
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

/// A state in the words of C.
pub(super) fn state_of(state: QpState) -> u32 {
    state.verbs().into()
}

impl Pair {
    /// Remembers attributes that the connection manager has set.
    pub(crate) fn note(&self, attr: &ibv_qp_attr, mask: u32) {
        self.known.lock().keep(attr, mask);
    }

    /// Everything that can be asked for.
    pub(super) fn attributes(&self) -> ibv_qp_attr {
        let state = state_of(self.transport.state());
        ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            cap: self.cap,
            path_mig_state: IBV_MIG_MIGRATED,
            ..self.known.lock().attr
        }
    }
}
