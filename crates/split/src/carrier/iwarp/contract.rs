//! The [`Carrier`] implementation over the adapter. Sends are posted by the next turn, as one list, and a turn returns completions before
//! the ends that followed them. A request for which the completion queue has no room is not posted.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use verbena::Access;
use verbena::low::{Arm, BLANK, RecvWr, SendOp};
use verbena_nic::Wc;
use verbena_nic::wr::{Remote, Sge};

use super::bell::Told;
use super::memory::Registered;
use super::seat::{Seat, Stage};
use super::{IwarpCarrier, SOME, Way, unknown};
use crate::carrier::{
    Beside, Carrier, CarrierError, Memory, News, Pair, PairOptions, Reach, Result, Sleeper, Ticket,
};

impl Carrier for IwarpCarrier {
    fn local(&self) -> String {
        match &self.way {
            Way::Listens(_, local) => local.to_string(),
            Way::Dials(unit) => format!("to {unit}"),
        }
    }

    fn name(&self) -> &'static str {
        "iwarp"
    }

    fn can_lose(&self) -> bool {
        false
    }

    fn separate(&mut self) -> Result<()> {
        // The one before lives as long as the objects in it.
        self.pd = self.device.pd()?;
        Ok(())
    }

    fn memory(&mut self, len: usize, reach: Reach) -> Result<Box<dyn Memory>> {
        let own = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let access = match reach {
            Reach::Local => own,
            Reach::RemoteWrite => own | Access::REMOTE_WRITE,
        };
        let refused = |error: verbena::Error| CarrierError::Memory {
            len,
            why: error.to_string(),
        };
        let memory = self.pd.memory(len, access).map_err(refused)?;
        Ok(Box::new(Registered::new(memory).map_err(refused)?))
    }

    fn create(&mut self, options: PairOptions) -> Result<Pair> {
        let needed = self.needed + options.sends + options.receives;
        self.make_room(needed)?;
        let seat = Seat::new(&self.pd, &self.cq, options)?;
        let pair = self.number();
        self.names.insert(seat.qp.number(), pair);
        self.seats.insert(pair, seat);
        self.needed = needed;
        Ok(pair)
    }

    fn connect(&mut self, pair: Pair, private: &[u8]) -> Result<()> {
        let Way::Dials(unit) = self.way else {
            return Err(CarrierError::Address {
                address: self.local(),
                why: "it listens, and knows nobody to dial".into(),
            });
        };
        let bell = self.bell.clone();
        let seat = self.seat(pair)?;
        let done = move |answer| bell.tell(Told::Answer(pair, answer));
        seat.qp.connect_from(None, unit, private, done)?;
        seat.stage = Stage::Asking;
        Ok(())
    }

    fn accept(&mut self, ticket: Ticket, pair: Pair, private: &[u8]) -> Result<()> {
        let bell = self.bell.clone();
        let seat = self.seats.get_mut(&pair).ok_or_else(|| unknown(pair))?;
        let Some(request) = self.tickets.remove(&ticket) else {
            let why = format!("request {} was answered before", ticket.0);
            return Err(CarrierError::Post { pair, why });
        };
        // A request that found no free ticket can be taken now.
        self.more |= self.asked;
        // The acceptor got the peer's private data with the request.
        let done = move |answer: core::result::Result<Vec<u8>, verbena::Error>| {
            bell.tell(Told::Answer(pair, answer.map(|_| Vec::new())));
        };
        request.accept_telling(&seat.qp, private, done)?;
        seat.stage = Stage::Asking;
        Ok(())
    }

    fn reject(&mut self, ticket: Ticket, private: &[u8]) {
        if let Some(request) = self.tickets.remove(&ticket) {
            self.more |= self.asked;
            request.reject(private);
        }
    }

    fn destroy(&mut self, pair: Pair) {
        let Some(seat) = self.seats.remove(&pair) else {
            return;
        };
        let number = seat.qp.number();
        self.names.remove(&number);
        self.needed -= seat.room();
        // After this drop nothing is placed and nothing completes, and its completions are removed from the queue.
        drop(seat);
        self.early.retain(|wc| wc.qpn != number);
        self.news.retain(|news| !about(news, pair));
    }

    fn post_receive(&mut self, pair: Pair, id: u64, piece: Option<Sge>) -> Result<()> {
        self.seat(pair)?
            .post_receive(&RecvWr {
                id,
                scatter: piece.as_slice(),
            })
            .map_err(|why| CarrierError::Post { pair, why })
    }

    fn post_send(&mut self, pair: Pair, id: u64, piece: Sge) -> Result<()> {
        let op = SendOp::Send {
            invalidate: None,
            immediate: None,
        };
        self.post(pair, id, piece, op)
    }

    fn post_write(
        &mut self,
        pair: Pair,
        id: u64,
        piece: Sge,
        to: Remote,
        immediate: Option<u32>,
    ) -> Result<()> {
        let op = SendOp::Write {
            remote: to,
            immediate,
        };
        self.post(pair, id, piece, op)
    }

    fn turn(&mut self, _now: Instant, done: &mut Vec<Wc>) -> Result<()> {
        let streams = self.streams;
        if !streams {
            self.post_lists(false);
        }
        // Before polling: completions that came before an end are in the queue when the end is reported.
        self.bell.take(&mut self.rung);
        while let Some(told) = self.rung.pop_front() {
            self.note(told);
        }
        let before = done.len();
        self.more = !self.complete(done);
        if streams {
            self.post_lists(done.len() > before);
        }
        while let Some(told) = self.next_told() {
            self.hear(told);
        }
        self.greet()
    }

    fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        // The adapter has its own timers.
        None
    }

    fn sleepers<'a>(&'a self, on: &mut Vec<Sleeper<'a>>) {
        on.push(Sleeper {
            fd: self.bell.as_fd(),
            write: false,
        });
    }

    fn doze(&mut self) -> bool {
        if self.seats.values().any(Seat::is_listed) {
            return false;
        }
        if self.more || !self.told.is_empty() || !self.news.is_empty() || !self.early.is_empty() {
            return false;
        }
        self.cq.arm(Arm::Next);
        let mut some = [BLANK; SOME];
        let n = self.cq.poll(&mut some);
        self.early.extend_from_slice(&some[..n]);
        n == 0 && !self.bell.is_rung()
    }

    fn works_asleep(&self) -> bool {
        true
    }

    fn sleep(&self, others: &mut [Beside<'_>], timeout: Option<Duration>) -> Result<()> {
        Ok(self.bell.sleep(&self.cq, others, timeout)?)
    }
}

impl IwarpCarrier {
    /// Posts the sends since the last turn. While completions keep coming, a short list is deferred: it is most often answers to a stream,
    /// and each system call would carry one.
    fn post_lists(&mut self, came: bool) {
        for (pair, seat) in &mut self.seats {
            if seat.is_listed()
                && !(came && seat.waits_for_more())
                && let Err(why) = seat.post_list()
            {
                // Not all of its requests will complete, so the pair cannot be used further.
                seat.stage = Stage::Over;
                self.news.push_back(News::Ended { pair: *pair, why });
            }
        }
    }

    fn post(&mut self, pair: Pair, id: u64, piece: Sge, op: SendOp) -> Result<()> {
        self.seat(pair)?
            .post_send(id, op, piece)
            .map_err(|why| CarrierError::Post { pair, why })
    }
}

/// Whether an event is about this pair.
fn about(news: &News, of: Pair) -> bool {
    match news {
        News::Request { .. } | News::Rejected { .. } => false,
        News::Connected { pair, .. } | News::Refused { pair, .. } | News::Ended { pair, .. } => {
            *pair == of
        }
    }
}
