//! One pair: its queue pair, the state of its connection, and the number of posted requests. No more is posted than the completion queue
//! has room for, and the end of the connection is reported once, with the first cause.

use verbena::Error;
use verbena::low::{
    BareCq, Data, Flags, Limits, Pd, Personality, Qp, QpOptions, QpState, RecvWr, RnrRetry, SendOp,
    SendWr, Sge, WcOp,
};

use crate::carrier::PairOptions;

/// Requests posted by one call.
const MAX_LIST: usize = 32;
/// A list of fewer bytes may be deferred, for [`MAX_DEFERRALS`] turns.
const SHORT_LIST: u64 = 4096;
const MAX_DEFERRALS: u32 = 4;
/// Fills the array; never posted.
const EMPTY_WR: SendWr<'static> = SendWr {
    id: 0,
    op: SendOp::Send {
        invalidate: None,
        immediate: None,
    },
    flags: Flags::SIGNALED,
    data: Data::Inline(&[]),
};

/// The state of the connection of a pair.
///
/// | | answer: yes | answer: no | an end |
/// | --- | --- | --- | --- |
/// | `Idle` | – | – | – |
/// | `Connecting` | `Connected`, reported | `Ended`, refused | – (checked again after the answer) |
/// | `Connected` | – | – | `Ended`, ended |
/// | `Ended` | – | – | – |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not connected.
    Idle,
    /// A connection was requested or accepted, and the result is open.
    Connecting,
    /// It may send.
    Connected,
    /// It was refused, or has ended.
    Ended,
}

/// A pair.
#[derive(Debug)]
pub(super) struct IwarpPair {
    pub(super) qp: Qp,
    pub(super) stage: Stage,
    options: PairOptions,
    /// Sends since the last turn, posted as one list.
    list: Vec<(u64, SendOp, Sge)>,
    /// Turns for which the list was deferred.
    deferrals: u32,
    /// Posted, and their completions not yet returned to the driver.
    sends: usize,
    receives: usize,
}

impl IwarpPair {
    pub(super) fn new(pd: &Pd, cq: &BareCq, options: PairOptions) -> Result<IwarpPair, Error> {
        let limits = Limits {
            sends: options.sends,
            receives: options.receives,
            max_sge: 1,
            inline: 0,
        };
        // RNR retry instead of an error if the peer has no receive, and a request completes when the peer has executed it.
        let wanted = QpOptions::default()
            .personality(Personality::Roce)
            .limits(limits);
        let qp = Qp::new(pd, cq, cq, wanted)?;
        qp.set_attr(|attr| attr.rnr_retry = RnrRetry::Forever);
        // Receives can be posted from now on.
        qp.modify(QpState::Init)?;
        Ok(IwarpPair {
            qp,
            stage: Stage::Idle,
            options,
            list: Vec::with_capacity(options.sends),
            deferrals: 0,
            sends: 0,
            receives: 0,
        })
    }

    /// The completions that it may need at once.
    pub(super) fn cq_entries(&self) -> usize {
        self.options.sends + self.options.receives
    }

    /// Counts against the completion queue's room, which is free only when the driver has the completion, later than the send queue's.
    pub(super) fn post_send(&mut self, id: u64, op: SendOp, piece: Sge) -> Result<(), String> {
        check(self.sends, self.options.sends, "sends")?;
        self.list.push((id, op, piece));
        self.sends += 1;
        Ok(())
    }

    /// Whether the list is deferred: it is short, and was not deferred often; a system call for it alone would be wasted.
    pub(super) fn defers_list(&mut self) -> bool {
        self.deferrals += 1;
        let bytes = self.list.iter().map(|(_, _, piece)| u64::from(piece.len));
        self.deferrals <= MAX_DEFERRALS && bytes.sum::<u64>() < SHORT_LIST
    }

    /// Whether sends wait for the next turn.
    pub(super) fn has_list(&self) -> bool {
        !self.list.is_empty()
    }

    /// Posts the sends since the last turn.
    pub(super) fn post_list(&mut self) -> Result<(), String> {
        let mut posted = Ok(());
        for some in self.list.chunks(MAX_LIST) {
            let mut wrs: [SendWr<'_>; MAX_LIST] = [EMPTY_WR; MAX_LIST];
            for (to, (id, op, piece)) in wrs.iter_mut().zip(some) {
                *to = SendWr {
                    id: *id,
                    op: *op,
                    flags: Flags::SIGNALED,
                    data: Data::Gather(core::slice::from_ref(piece)),
                };
            }
            let wrs = wrs.get(..some.len()).unwrap_or_default();
            posted = posted.and(
                self.qp
                    .post_send(wrs)
                    .map_err(|error| error.source.to_string()),
            );
        }
        self.list.clear();
        self.deferrals = 0;
        posted
    }

    pub(super) fn post_receive(&mut self, wr: &RecvWr<'_>) -> Result<(), String> {
        check(self.receives, self.options.receives, "receives")?;
        let posted = self.qp.post_recv(core::slice::from_ref(wr));
        posted.map_err(|error| error.source.to_string())?;
        self.receives += 1;
        Ok(())
    }

    /// A completion is returned to the driver.
    pub(super) fn completed(&mut self, op: WcOp) {
        match op {
            WcOp::Receive | WcOp::ReceiveWriteImm => self.receives -= 1,
            _ => self.sends -= 1,
        }
    }

    /// Why its connection ended, if it has and that was not reported yet; flushes what was posted.
    pub(super) fn take_end(&mut self) -> Option<String> {
        if self.stage != Stage::Connected {
            return None;
        }
        let view = self.qp.view();
        if !view.peer_disconnected && !view.state.flushes() {
            return None;
        }
        self.stage = Stage::Ended;
        // A peer that closed without an error leaves receives posted. It fails only when the adapter is closed, which flushed them.
        let _ = self.qp.modify(QpState::Err);
        Some(
            view.cause
                .unwrap_or_else(|| "the peer closed the connection".into()),
        )
    }
}

fn check(posted: usize, limit: usize, what: &str) -> Result<(), String> {
    if posted < limit {
        Ok(())
    } else {
        Err(format!("{posted} {what} are posted, which is the limit"))
    }
}
