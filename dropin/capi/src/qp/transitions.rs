//! The state changes of queue pairs, with the attributes that each requires and permits: the table of the InfiniBand specification.
//! What the attributes mean is in `modify`.

use crate::abi::*;

/// A state change.
pub(super) struct Transition {
    from: u32,
    to: u32,
    /// Required attributes: for reliable connections, unreliable connections and datagrams.
    needs: [u32; 3],
    /// Attributes that are permitted besides.
    permits: [u32; 3],
}

const AT_INIT: u32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
const ADDRESS: u32 = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const ALTERNATE: u32 = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
const TRIES: u32 = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
const RIGHTS: u32 = IBV_QP_ACCESS_FLAGS;
const CURRENT: u32 = IBV_QP_CUR_STATE;
const AT_RTS: [u32; 3] = [
    CURRENT | RIGHTS | IBV_QP_MIN_RNR_TIMER | ALTERNATE,
    CURRENT | RIGHTS | ALTERNATE,
    CURRENT | IBV_QP_QKEY,
];

const TABLE: &[Transition] = &[
    Transition {
        from: IBV_QPS_RESET,
        to: IBV_QPS_INIT,
        needs: [AT_INIT | RIGHTS, AT_INIT | RIGHTS, AT_INIT | IBV_QP_QKEY],
        permits: [0; 3],
    },
    Transition {
        from: IBV_QPS_INIT,
        to: IBV_QPS_INIT,
        needs: [0; 3],
        permits: [AT_INIT | RIGHTS, AT_INIT | RIGHTS, AT_INIT | IBV_QP_QKEY],
    },
    Transition {
        from: IBV_QPS_INIT,
        to: IBV_QPS_RTR,
        needs: [
            ADDRESS | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
            ADDRESS,
            0,
        ],
        permits: [
            RIGHTS | IBV_QP_PKEY_INDEX | ALTERNATE,
            RIGHTS | IBV_QP_PKEY_INDEX | ALTERNATE,
            IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
        ],
    },
    Transition {
        from: IBV_QPS_RTR,
        to: IBV_QPS_RTS,
        needs: [
            TRIES | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
            IBV_QP_SQ_PSN,
            IBV_QP_SQ_PSN,
        ],
        permits: AT_RTS,
    },
    Transition {
        from: IBV_QPS_RTS,
        to: IBV_QPS_RTS,
        needs: [0; 3],
        permits: AT_RTS,
    },
    Transition {
        from: IBV_QPS_RTS,
        to: IBV_QPS_SQD,
        needs: [0; 3],
        permits: [IBV_QP_EN_SQD_ASYNC_NOTIFY; 3],
    },
    Transition {
        from: IBV_QPS_SQD,
        to: IBV_QPS_RTS,
        needs: [0; 3],
        permits: AT_RTS,
    },
    Transition {
        from: IBV_QPS_SQD,
        to: IBV_QPS_SQD,
        needs: [0; 3],
        permits: [
            IBV_QP_PORT
                | IBV_QP_AV
                | TRIES
                | IBV_QP_MAX_QP_RD_ATOMIC
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | RIGHTS
                | IBV_QP_PKEY_INDEX
                | IBV_QP_MIN_RNR_TIMER
                | ALTERNATE,
            IBV_QP_AV | RIGHTS | IBV_QP_PKEY_INDEX | ALTERNATE,
            IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
        ],
    },
    Transition {
        from: IBV_QPS_SQE,
        to: IBV_QPS_RTS,
        needs: [0; 3],
        permits: [0, CURRENT | RIGHTS, CURRENT | IBV_QP_QKEY],
    },
];

/// Whether this state change is permitted with these attributes.
pub(super) fn allowed(kind: u32, from: u32, to: u32, mask: u32) -> bool {
    let mask = mask & !IBV_QP_STATE;
    if matches!(to, IBV_QPS_RESET | IBV_QPS_ERR) {
        // From every state, and without attributes.
        return mask & !CURRENT == 0;
    }
    let column = match kind {
        IBV_QPT_RC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => 0,
        IBV_QPT_UC => 1,
        _ => 2,
    };
    // An XRC initiator has no attributes of a responder, and a target none of a requester.
    let foreign = match kind {
        IBV_QPT_XRC_SEND => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QPT_XRC_RECV => IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
        _ => 0,
    };
    let row = TABLE.iter().find(|row| row.from == from && row.to == to);
    row.is_some_and(|row| {
        let (needs, takes) = (row.needs[column] & !foreign, row.permits[column] & !foreign);
        mask & needs == needs && mask & !(needs | takes | CURRENT) == 0
    })
}

#[cfg(test)]
mod tests;
