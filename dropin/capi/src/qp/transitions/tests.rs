//! Required and permitted attributes of state changes. A change that the table does not have is refused.

use super::*;

const RC_RTR: u32 = ADDRESS | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_STATE;

#[test]
fn rc_transitions_from_reset_to_rts_are_allowed() {
    let init = IBV_QP_STATE | AT_INIT | RIGHTS;
    let rts = IBV_QP_STATE | TRIES | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    assert!(allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, init));
    assert!(allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR));
    assert!(allowed(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, rts));
    for state in IBV_QPS_RESET..=IBV_QPS_ERR {
        assert!(allowed(IBV_QPT_RC, state, IBV_QPS_RESET, IBV_QP_STATE));
        assert!(allowed(IBV_QPT_RC, state, IBV_QPS_ERR, IBV_QP_STATE));
    }
}

#[test]
fn each_missing_required_attribute_is_refused() {
    for bit in (0..32).map(|bit| 1 << bit).filter(|bit| RC_RTR & bit != 0) {
        let fine = bit == IBV_QP_STATE;
        let less = RC_RTR & !bit;
        assert_eq!(
            allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, less),
            fine,
            "{bit:#x}"
        );
    }
}

#[test]
fn unexpected_attributes_and_transitions_are_refused() {
    let with = |bit| allowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR | bit);
    assert!(with(IBV_QP_ACCESS_FLAGS));
    assert!(!with(IBV_QP_QKEY));
    assert!(!with(IBV_QP_SQ_PSN));
    assert!(!with(1 << 30));
    assert!(!allowed(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTR, RC_RTR));
    assert!(!allowed(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RTS, IBV_QP_STATE));
}

#[test]
fn ud_transitions_need_qkey_and_no_peer() {
    let init = IBV_QP_STATE | AT_INIT | IBV_QP_QKEY;
    assert!(allowed(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, init));
    assert!(!allowed(
        IBV_QPT_UD,
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        init | RIGHTS
    ));
    assert!(allowed(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE));
    assert!(!allowed(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR));
}
