//! Changes of a queue pair: InfiniBand's states by hand in the `roce` personality, iWARP's by its connection manager.
//! It promises that a refused change leaves the queue pair as it was, and says in the log what a number cannot.
//! It refuses a peer without an address: on Ethernet a GID is needed.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use core::time::Duration;

use verbena::low::{Enabled, Manners, Personality, Psn, Psns, QpState, RnrRetry, RnrTimer};
use verbena::{Name, Qp};

use super::attributes::state_of;
use super::transitions::allowed;
use super::transport::Transport;
use super::{Pair, of};
use crate::abi::*;
use crate::context;
use crate::errno::{Errno, number};
use crate::log;
use crate::port::{PORT, address_of};
use crate::query::READS;

/// Changes a queue pair.
///
/// # Safety
/// `qp` was made here; `attr` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the program's word.
    let (own, attr) = unsafe { (of(qp), attr.as_ref()) };
    number(own.and_then(|own| {
        let attr = attr.ok_or(Errno::INVAL)?;
        let mask = mask as u32;
        // SAFETY: a field that is written once; its context is open.
        let context = unsafe { context::of((*qp).context)? };
        let reached = own.modify(context, attr, mask)?;
        // SAFETY: the program waits for this call to change it.
        unsafe { (*qp).state = reached };
        Ok(())
    }))
}

impl Pair {
    /// Does what the program asks; returns the state that it believes the queue pair to be in then.
    fn modify(
        &self,
        context: &context::Context,
        attr: &ibv_qp_attr,
        mask: u32,
    ) -> Result<u32, Errno> {
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
        // The peers of managed connections have numbers that nobody can call.
        if mask & IBV_QP_DEST_QPN != 0 && attr.dest_qp_num < CALLABLE {
            self.manage();
        }
        let managed = self.managed.load(Ordering::Acquire) && self.kind != IBV_QPT_UD;
        if managed || self.personality == Personality::Iwarp {
            return self.modify_managed(attr, mask, to);
        }
        if from != now || !allowed(self.kind, from, to, mask) {
            log::info(|| {
                format!("queue pair: no way from state {from} to {to} with attributes {mask:#x}")
            });
            return Err(Errno::INVAL);
        }
        check(attr, mask)?;
        self.settle(context, attr, mask, to)?;
        let mut known = self.known.lock();
        known.keep(attr, mask);
        if to == IBV_QPS_RESET {
            *known = super::Known::default();
        }
        Ok(to)
    }

    /// An iWARP queue pair is moved by its connection manager; `ibv_modify_qp` can only prepare and end it, as with kernel drivers for iWARP.
    fn modify_managed(&self, attr: &ibv_qp_attr, mask: u32, to: u32) -> Result<u32, Errno> {
        check(attr, mask)?;
        self.enable(attr, mask);
        let done = match to {
            // The manager does it: harmless for who insists.
            IBV_QPS_RTR | IBV_QPS_RTS => true,
            IBV_QPS_INIT if self.transport.state().receives() => true,
            _ => state(to).is_some_and(|to| self.transport.modify(to)),
        };
        if !done {
            return Err(Errno::INVAL);
        }
        self.known.lock().keep(attr, mask);
        Ok(to)
    }

    fn settle(
        &self,
        context: &context::Context,
        attr: &ibv_qp_attr,
        mask: u32,
        to: u32,
    ) -> Result<(), Errno> {
        self.enable(attr, mask);
        match &self.transport {
            Transport::Connected(qp) => {
                qp.set_manners(|manners| learn(manners, attr, mask, &self.known.lock().attr));
                if to == IBV_QPS_RTR && mask & IBV_QP_AV != 0 {
                    return expect(qp, context, attr);
                }
            }
            Transport::Datagram(ud) if mask & IBV_QP_QKEY != 0 => ud.set_qkey(attr.qkey),
            Transport::Datagram(_) => {}
        }
        let unchanged = state_of(self.transport.state()) == to && mask & IBV_QP_STATE == 0;
        let to = state(to).ok_or(Errno::INVAL)?;
        if unchanged || self.transport.modify(to) {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    }

    /// What peers may do.
    fn enable(&self, attr: &ibv_qp_attr, mask: u32) {
        if mask & IBV_QP_ACCESS_FLAGS == 0 {
            return;
        }
        let has = |right| attr.qp_access_flags & right != 0;
        if let Transport::Connected(qp) = &self.transport {
            qp.enable(Enabled {
                write: has(IBV_ACCESS_REMOTE_WRITE),
                read: has(IBV_ACCESS_REMOTE_READ),
                atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
            });
        }
    }
}

/// The first number that a peer can be called by.
const CALLABLE: u32 = 1024 << 8;

/// A state in the adapter's words.
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

/// Values that make no sense wherever they come.
fn check(attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    let has = |bit| mask & bit != 0;
    let wrong = (has(IBV_QP_PORT) && attr.port_num != PORT)
        || (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0)
        || (has(IBV_QP_PATH_MTU) && !(IBV_MTU_256..=IBV_MTU_4096).contains(&attr.path_mtu))
        || (has(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > READS)
        || (has(IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > READS)
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

/// Tells the connection how to behave.
fn learn(manners: &mut Manners, attr: &ibv_qp_attr, mask: u32, before: &ibv_qp_attr) {
    let has = |bit| mask & bit != 0;
    if has(IBV_QP_RNR_RETRY) {
        manners.rnr_retry = RnrRetry::from_verbs(attr.rnr_retry);
    }
    if let Some(timer) = RnrTimer::new(attr.min_rnr_timer).filter(|_| has(IBV_QP_MIN_RNR_TIMER)) {
        manners.rnr_timer = timer;
    }
    if has(IBV_QP_MAX_DEST_RD_ATOMIC) {
        manners.ird = Some(attr.max_dest_rd_atomic.into());
    }
    if has(IBV_QP_MAX_QP_RD_ATOMIC) {
        manners.ord = Some(attr.max_rd_atomic.into());
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
        manners.patience = patience(timeout, tries, manners.patience);
        manners.grace = grace(timeout, tries);
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
        manners.psns = Some(Psns {
            send: Psn::wrapping(send),
            receive: Psn::wrapping(receive),
        });
    }
}

/// The least silence that makes a peer dead, where a program asked for none before: the default of the setting `dead_after`.
const LEAST: Duration = Duration::from_secs(10);
/// The longest that a request waits for a peer that is lost.
const MOST_GRACE: Duration = Duration::from_secs(2);

/// How long a silent peer is waited for: 4.096 µs · 2^timeout · 4 · (retries + 1); 0 is for ever. Not less than the setting
/// `dead_after`: what is usual on a network of adapters is short for one of processes, and does not survive a pause of two seconds.
pub(crate) fn patience(timeout: u8, tries: u8, least: Option<Duration>) -> Option<Duration> {
    if timeout == 0 {
        return None;
    }
    let nanos = (4096_u64 << timeout) * 4 * (u64::from(tries) + 1);
    Some(Duration::from_nanos(nanos).max(least.unwrap_or(LEAST)))
}

/// How long a request waits for a peer that is lost, as it would if nobody but a timer told of it; not longer than
/// programs of our day like to wait.
pub(crate) fn grace(timeout: u8, tries: u8) -> Duration {
    let nanos = match timeout {
        0 => u64::MAX,
        _ => (4096_u64 << timeout) * (u64::from(tries) + 1),
    };
    Duration::from_nanos(nanos).min(MOST_GRACE)
}

/// Names the peer, and makes the queue pair ready to receive.
fn expect(qp: &Qp, context: &context::Context, attr: &ibv_qp_attr) -> Result<(), Errno> {
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
    let peer = Name {
        address: address_of(route.dgid),
        number: attr.dest_qp_num,
    };
    Ok(qp.expect_at(local, peer)?)
}
