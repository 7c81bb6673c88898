//! `ibv_modify_qp`. In the `roce` personality the program moves a queue pair through InfiniBand's states; in the `iwarp` personality, and for
//! managed connections, the connection manager does. A state change that is not in the table is refused without effect; reasons are logged.
//! A peer is named by a GID: a LID is refused, since the port is Ethernet.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use core::time::Duration;

use verbena::low::{
    Mtu, Personality, Psn, Psns, Qp, QpAccessFlags, QpAttr, QpEndpoint, QpState, RnrRetry, RnrTimer,
};
use verbena::unstable::Wire;

use super::attributes::state_of;
use super::transitions::allowed;
use super::transport::Transport;
use super::{Pair, of};
use crate::abi::*;
use crate::caller::{arg_ref, handle};
use crate::errno::{Errno, number};
use crate::log;
use crate::port::{PORT, address_of};
use crate::query::MAX_READS;
use crate::{check, context};

/// Changes attributes and state of a queue pair.
///
/// # Safety
/// `qp` was created by this library; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let (own, attr) = (handle!(of(qp)), arg_ref!(attr));
    number(own.and_then(|own| {
        let attr = attr.ok_or(Errno::INVAL)?;
        let mask = mask as u32;
        // SAFETY: `qp` is valid, since `of` succeeded; its context stays open as long as the queue pair exists.
        let context = unsafe { context::of((*qp).context)? };
        let reached = own.modify(context, attr, mask)?;
        // SAFETY: `qp` is valid, and the program does not access its state while this call runs.
        unsafe { (*qp).state = reached };
        if let Some(checker) = check::checker() {
            match reached {
                IBV_QPS_RESET => checker.pair_reset(qp as usize),
                IBV_QPS_RTR | IBV_QPS_RTS => checker.connected(),
                _ => {}
            }
        }
        Ok(())
    }))
}

impl Pair {
    /// Applies the attributes; returns the state that the program sees then.
    fn modify(
        &self,
        context: &context::Context,
        attr: &ibv_qp_attr,
        mask: u32,
    ) -> Result<u32, Errno> {
        if let Transport::Elsewhere(_) = self.transport {
            log::info(|| {
                "queue pair: a target is modified in the process that created it".to_owned()
            });
            return Err(Errno::NOSUPP);
        }
        let now = state_of(self.transport.state());
        let from = if mask & IBV_QP_CUR_STATE != 0 {
            attr.cur_qp_state
        } else {
            now
        };
        let to = if mask & IBV_QP_STATE != 0 {
            attr.qp_state
        } else {
            from
        };
        // Peers of managed connections have numbers that cannot be connected to out of band.
        let names_managed_peer = mask & IBV_QP_DEST_QPN != 0
            && attr.dest_qp_num < MIN_OOB_QPN
            && !names_roce_peer(context, attr, mask);
        let managed = names_managed_peer || self.managed.load(Ordering::Acquire);
        if managed && self.kind != IBV_QPT_UD || self.personality == Personality::Iwarp {
            let reached = self.modify_managed(attr, mask, to)?;
            if names_managed_peer {
                self.manage();
            }
            return Ok(reached);
        }
        if from != now || !allowed(self.kind, from, to, mask) {
            log::info(|| {
                format!(
                    "queue pair: invalid transition from state {from} to {to} with attributes {mask:#x}"
                )
            });
            return Err(Errno::INVAL);
        }
        check(attr, mask)?;
        self.apply(context, attr, mask, to)?;
        let mut known = self.stored_attr.lock();
        known.store(attr, mask);
        if to == IBV_QPS_RESET {
            *known = super::StoredAttr::default();
        }
        Ok(to)
    }

    /// An iWARP queue pair is moved by its connection manager; `ibv_modify_qp` can only prepare and end it, as with kernel drivers for iWARP.
    fn modify_managed(&self, attr: &ibv_qp_attr, mask: u32, to: u32) -> Result<u32, Errno> {
        check(attr, mask)?;
        self.enable(attr, mask);
        let done = match to {
            // Done by the connection manager; programs that request it as well are not refused.
            IBV_QPS_RTR | IBV_QPS_RTS => true,
            IBV_QPS_INIT if self.transport.state().receives() => true,
            _ => state(to).is_some_and(|to| self.transport.modify(to).is_ok()),
        };
        if !done {
            return Err(Errno::INVAL);
        }
        self.stored_attr.lock().store(attr, mask);
        Ok(to)
    }

    fn apply(
        &self,
        context: &context::Context,
        attr: &ibv_qp_attr,
        mask: u32,
        to: u32,
    ) -> Result<(), Errno> {
        self.enable(attr, mask);
        match &self.transport {
            Transport::Connected(qp) => {
                qp.set_attr(|attrs| {
                    apply_attributes(attrs, attr, mask, &self.stored_attr.lock().attr);
                });
                if to == IBV_QPS_RTR && mask & IBV_QP_AV != 0 {
                    return set_peer(qp, context, attr);
                }
            }
            Transport::Datagram(ud) if mask & IBV_QP_QKEY != 0 => ud.set_qkey(attr.qkey),
            Transport::Datagram(_) | Transport::Elsewhere(_) => {}
        }
        let unchanged = state_of(self.transport.state()) == to && mask & IBV_QP_STATE == 0;
        let to = state(to).ok_or(Errno::INVAL)?;
        if unchanged || self.transport.modify(to).is_ok() {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Sets the operations that the peer may use.
    fn enable(&self, attr: &ibv_qp_attr, mask: u32) {
        if mask & IBV_QP_ACCESS_FLAGS == 0 {
            return;
        }
        let has = |right| attr.qp_access_flags & right != 0;
        if let Transport::Connected(qp) = &self.transport {
            qp.set_access_flags(QpAccessFlags {
                write: has(IBV_ACCESS_REMOTE_WRITE),
                read: has(IBV_ACCESS_REMOTE_READ),
                atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
                flush: has(IBV_ACCESS_FLUSH_GLOBAL),
            });
        }
    }
}

/// The smallest queue pair number that can be connected to out of band.
const MIN_OOB_QPN: u32 = 1024 << 8;

/// The adapter's state for an `IBV_QPS_` constant.
fn state(state: u32) -> Option<QpState> {
    Some(match state {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_ERR => QpState::Err,
        _ => return None,
    })
}

/// The peer that the attributes name is an adapter that is reached over RoCEv2, where numbers are arbitrary.
fn names_roce_peer(context: &context::Context, attr: &ibv_qp_attr, mask: u32) -> bool {
    let peer = address_of(attr.ah_attr.grh.dgid);
    let config = context.function.device.config();
    // `rdma_init_qp_attr` names queue pair 1 (see `cm/attributes.rs`), which is the connection manager's and no peer of a connection.
    mask & IBV_QP_AV != 0
        && attr.ah_attr.is_global != 0
        && attr.dest_qp_num > 1
        && config.wire_to(peer) != Wire::Tcp
}

/// Refuses values that are invalid in every state.
fn check(attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    let has = |bit| mask & bit != 0;
    let wrong = (has(IBV_QP_PORT) && attr.port_num != PORT)
        || (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0)
        || (has(IBV_QP_PATH_MTU) && !(IBV_MTU_256..=IBV_MTU_4096).contains(&attr.path_mtu))
        || (has(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > MAX_READS)
        || (has(IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > MAX_READS)
        || (has(IBV_QP_MIN_RNR_TIMER) && RnrTimer::new(attr.min_rnr_timer).is_none())
        || (has(IBV_QP_TIMEOUT) && attr.timeout > 31)
        || (has(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7)
        || (has(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7);
    if wrong {
        return Err(Errno::INVAL);
    }
    if has(IBV_QP_ALT_PATH) || has(IBV_QP_CAP) {
        return Err(Errno::NOSUPP);
    }
    Ok(())
}

/// Sets the attributes of the connection.
fn apply_attributes(qp_attr: &mut QpAttr, attr: &ibv_qp_attr, mask: u32, before: &ibv_qp_attr) {
    let has = |bit| mask & bit != 0;
    if has(IBV_QP_RNR_RETRY) {
        qp_attr.rnr_retry = RnrRetry::from_verbs(attr.rnr_retry);
    }
    if let Some(timer) = RnrTimer::new(attr.min_rnr_timer).filter(|_| has(IBV_QP_MIN_RNR_TIMER)) {
        qp_attr.rnr_timer = timer;
    }
    if has(IBV_QP_PATH_MTU) {
        qp_attr.path_mtu = Mtu::from_code(attr.path_mtu as u8);
    }
    if has(IBV_QP_MAX_DEST_RD_ATOMIC) {
        qp_attr.ird = Some(attr.max_dest_rd_atomic.into());
    }
    if has(IBV_QP_MAX_QP_RD_ATOMIC) {
        qp_attr.ord = Some(attr.max_rd_atomic.into());
    }
    if has(IBV_QP_TIMEOUT) || has(IBV_QP_RETRY_CNT) {
        let timeout = if has(IBV_QP_TIMEOUT) {
            attr.timeout
        } else {
            before.timeout
        };
        let tries = if has(IBV_QP_RETRY_CNT) {
            attr.retry_cnt
        } else {
            before.retry_cnt
        };
        qp_attr.peer_timeout = patience(timeout, tries, qp_attr.peer_timeout);
        qp_attr.ack_timeout = ack_timeout(timeout);
        qp_attr.retry_count = Some(tries);
        qp_attr.grace = grace(timeout, tries);
    }
    let (send, receive) = (
        if has(IBV_QP_SQ_PSN) {
            attr.sq_psn
        } else {
            before.sq_psn
        },
        if has(IBV_QP_RQ_PSN) {
            attr.rq_psn
        } else {
            before.rq_psn
        },
    );
    if has(IBV_QP_SQ_PSN) || has(IBV_QP_RQ_PSN) {
        qp_attr.psns = Some(Psns {
            send: Psn::wrapping(send),
            receive: Psn::wrapping(receive),
        });
    }
}

/// The shortest silence after which a peer is considered dead, if none was set before: the default of the setting `dead_after`.
const DEFAULT_DEAD_AFTER: Duration = Duration::from_secs(10);
/// The longest time that requests wait after the connection to the peer was lost.
const MAX_GRACE: Duration = Duration::from_secs(2);

/// How long a silent peer is waited for: 4.096 µs · 2^timeout · 4 · (retries + 1); no limit for timeout 0. At least the setting
/// `dead_after`: values that are usual for adapters are too short for processes, which may pause for two seconds.
pub(crate) fn patience(timeout: u8, tries: u8, least: Option<Duration>) -> Option<Duration> {
    if timeout == 0 {
        return None;
    }
    let nanos = (4096_u64 << timeout) * 4 * (u64::from(tries) + 1);
    Some(Duration::from_nanos(nanos).max(least.unwrap_or(DEFAULT_DEAD_AFTER)))
}

/// How long a request may be unanswered before it is repeated: 4.096 µs · 2^timeout; no limit for timeout 0.
fn ack_timeout(timeout: u8) -> Option<Duration> {
    (timeout > 0).then(|| Duration::from_nanos(4096_u64 << timeout))
}

/// How long requests wait after the connection to the peer was lost, as if the loss was noticed by the retransmission timer only;
/// at most [`MAX_GRACE`].
pub(crate) fn grace(timeout: u8, tries: u8) -> Duration {
    let nanos = match timeout {
        0 => u64::MAX,
        _ => (4096_u64 << timeout) * (u64::from(tries) + 1),
    };
    Duration::from_nanos(nanos).min(MAX_GRACE)
}

/// Sets the peer, and moves the queue pair to RTR.
fn set_peer(qp: &Qp, context: &context::Context, attr: &ibv_qp_attr) -> Result<(), Errno> {
    let route = &attr.ah_attr.grh;
    if attr.ah_attr.is_global == 0 {
        log::warn(|| {
            "the program names its peer by a LID, and this port is Ethernet: tell it to use a GID (for example -g 0)".to_owned()
        });
        return Err(Errno::INVAL);
    }
    if attr.ah_attr.port_num != PORT {
        return Err(Errno::INVAL);
    }
    let local = context.address(route.sgid_index).ok_or(Errno::INVAL)?;
    let peer = QpEndpoint {
        address: address_of(route.dgid),
        number: attr.dest_qp_num,
    };
    Ok(qp.set_peer_from(local, peer)?)
}
