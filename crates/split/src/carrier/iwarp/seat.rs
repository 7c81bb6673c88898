//! One pair: its queue pair, where its connection stands, and how much was posted.
//! It promises that no more is posted than completions have room for, and that its end is told once, with the first cause.
//! It refuses to know who is told.

use verbena::low::{
    BareCq, Data, Flags, Limits, Personality, QpState, RecvWr, RnrRetry, SendOp, SendWr, Sge, WcOp,
};
use verbena::{Error, Pd, Qp, QpOptions};

use crate::carrier::PairOptions;

/// Requests that leave together.
const TOGETHER: usize = 32;
/// So few bytes may wait for more, for so many turns.
const LITTLE: u64 = 4096;
const TURNS: u32 = 4;
/// One that is not posted.
const NONE: SendWr<'static> = SendWr {
    id: 0,
    op: SendOp::Send {
        invalidate: None,
        immediate: None,
    },
    flags: Flags::SIGNALED,
    data: Data::Inline(&[]),
};

/// Where the connection of a pair stands.
///
/// | | answer: yes | answer: no | an end |
/// | --- | --- | --- | --- |
/// | `Idle` | – | – | – |
/// | `Asking` | `Connected`, told | `Over`, refused | – (the answer comes, and looks again) |
/// | `Connected` | – | – | `Over`, ended |
/// | `Over` | – | – | – |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nobody was asked.
    Idle,
    /// It asked, or accepted, and is not answered yet.
    Asking,
    /// It may send.
    Connected,
    /// It is refused, or was ended.
    Over,
}

/// A pair.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) qp: Qp,
    pub(super) stage: Stage,
    options: PairOptions,
    /// What was asked for since the last turn: a list leaves together.
    list: Vec<(u64, SendOp, Sge)>,
    /// Turns in which it was put off.
    put_off: u32,
    /// Posted, and not handed to the driver yet.
    sends: usize,
    receives: usize,
}

impl Seat {
    pub(super) fn new(pd: &Pd, cq: &BareCq, options: PairOptions) -> Result<Seat, Error> {
        let wanted = QpOptions {
            // A consumer that is slow is waited for, and a request completes when the peer has carried it out.
            personality: Some(Personality::Roce),
            limits: Limits {
                sends: options.sends,
                receives: options.receives,
                pieces: 1,
                inline: 0,
            },
            ..QpOptions::default()
        };
        let qp = Qp::new(pd, cq, cq, wanted)?;
        qp.set_manners(|manners| manners.rnr_retry = RnrRetry::Forever);
        // Receives may be posted from now on.
        qp.modify(QpState::Init);
        Ok(Seat {
            qp,
            stage: Stage::Idle,
            options,
            list: Vec::with_capacity(options.sends),
            put_off: 0,
            sends: 0,
            receives: 0,
        })
    }

    /// Completions that may wait.
    pub(super) fn room(&self) -> usize {
        self.options.sends + self.options.receives
    }

    /// The adapter's queues have room again when a request has ended, but the completion queue only when the driver knows.
    pub(super) fn post_send(&mut self, id: u64, op: SendOp, piece: Sge) -> Result<(), String> {
        check(self.sends, self.options.sends, "sends")?;
        self.list.push((id, op, piece));
        self.sends += 1;
        Ok(())
    }

    /// Little is listed, and it was not put off often: a call for it alone would be waste while there is other work.
    pub(super) fn waits_for_more(&mut self) -> bool {
        self.put_off += 1;
        let bytes = self.list.iter().map(|(_, _, piece)| u64::from(piece.len));
        self.put_off <= TURNS && bytes.sum::<u64>() < LITTLE
    }

    /// Something waits for the next turn.
    pub(super) fn is_listed(&self) -> bool {
        !self.list.is_empty()
    }

    /// Posts what was asked for since the last turn.
    pub(super) fn post_list(&mut self) -> Result<(), String> {
        let mut posted = Ok(());
        for some in self.list.chunks(TOGETHER) {
            let mut wrs: [SendWr<'_>; TOGETHER] = [NONE; TOGETHER];
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
                    .map_err(|(_, error)| error.to_string()),
            );
        }
        self.list.clear();
        self.put_off = 0;
        posted
    }

    pub(super) fn post_receive(&mut self, wr: &RecvWr<'_>) -> Result<(), String> {
        check(self.receives, self.options.receives, "receives")?;
        let posted = self.qp.post_recv(core::slice::from_ref(wr));
        posted.map_err(|(_, error)| error.to_string())?;
        self.receives += 1;
        Ok(())
    }

    /// The driver is told of a completion.
    pub(super) fn completed(&mut self, op: WcOp) {
        match op {
            WcOp::Receive | WcOp::ReceiveWriteImm => self.receives -= 1,
            _ => self.sends -= 1,
        }
    }

    /// Why its connection is over, if it is and nobody was told; what was posted is flushed then.
    pub(super) fn end(&mut self) -> Option<String> {
        if self.stage != Stage::Connected {
            return None;
        }
        let view = self.qp.view();
        if !view.peer_gone && !view.state.flushes() {
            return None;
        }
        self.stage = Stage::Over;
        // A peer that went without a word leaves receives where they are.
        self.qp.modify(QpState::Err);
        Some(view.cause.unwrap_or_else(|| "the peer ended it".into()))
    }
}

fn check(posted: usize, limit: usize, what: &str) -> Result<(), String> {
    if posted < limit {
        Ok(())
    } else {
        Err(format!("{posted} {what} are posted, which is the limit"))
    }
}
