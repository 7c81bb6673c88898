//! A connection's queue pair as plain data: what moves with it to another function, or to another process (V1, DESIGN §9).
//! It promises that everything which was not done goes along, at whatever byte it stands, and that a queue pair which cannot move
//! stays as it was. It refuses to wait for the peer, and to know the descriptor that the bytes pass.
//!
//! | goes along | how |
//! | --- | --- |
//! | the stream: numbers, orders, the segment under way, reads both ways | as it is |
//! | bytes that came and are not understood | as they are |
//! | frames that have not left | our own bytes as they are; payload by its STag, looked up anew where it arrives |
//! | requests and receives that are not done | as they were posted, with how far they have come |
//! | completions that nobody has taken | told where it arrives, under its new number |
//! | answers we owe, with what was copied for them, acknowledgements, timers | as they are; times are the machine's |
//! | counters | stay: a function counts what went through it |

use serde::{Deserialize, Serialize};
use verbena_wire::crc::crc32c;

use super::inner::{Current, Inner, Response};
use super::register::Registration;
use super::wait::{AnswerWait, Blocked};
use super::{Limits, Qp, QpInit};
use crate::event::Outbox;
use crate::receive::Receive;
use crate::state::{Personality, QpState, QpType};
use crate::wc::{Wc, WcOp};
use crate::wr::SendOp;

/// What an encoded image begins with.
const MAGIC: [u8; 4] = *b"vbni";
/// The form of an image. It changes with every field of what is in it: a process takes only images of its own form.
const VERSION: u16 = 2;
/// Magic, version, sum.
const HEAD: usize = 4 + 2 + 4;
/// The largest image that is looked at.
const MAX_IMAGE: usize = 64 << 20;

/// What a queue pair was made of, as far as its next place must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits {
    /// Whose manners it has.
    pub personality: Personality,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// Its limits.
    pub limits: Limits,
    /// Whether its requests may register memory.
    pub registration: Registration,
    /// Its receives come from a shared queue.
    pub shared_receives: bool,
}

/// A queue pair on its way.
#[derive(Debug, Serialize, Deserialize)]
pub struct Image {
    traits: Traits,
    inner: Inner,
    receives: Vec<Receive>,
    /// Completions that nobody has taken.
    completions: Vec<Wc>,
}

/// Why a queue pair does not move. It goes on where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// It has no connection that could move.
    #[error("it is in {0:?}, without a connection that flows")]
    State(QpState),
    /// Its peer has not proved who it is.
    #[error("its peer has not proved who it is")]
    Unproven,
    /// Peers call it by a number that stays here.
    #[error("peers call it by number, which stays with its adapter")]
    Called,
    /// Its keys stay here.
    #[error("it is encrypted (setting `tls`), and its keys do not leave the adapter")]
    Encrypted,
    /// V6: its sends come from a queue that stays.
    #[error("it is a channel of a shared send queue")]
    Channel,
    /// V5: it waits for memory that is promised here.
    #[error("it waits for memory whose registration is pending; try again when that is done")]
    Pending,
    /// It has come from as many functions as it may.
    #[error("it has memory in {} functions already", crate::grounds::MAX_STAYS)]
    Wandered,
    /// M9: it is about to spend one-touch memory of this process.
    #[error("a message is ending in one-touch memory; try again when it has")]
    Touching,
    /// A request is about windows or registrations, which do not leave the process.
    #[error("request {id} binds, invalidates or registers memory of this process")]
    Request {
        /// The consumer's number of it.
        id: u64,
    },
    /// It is too large.
    #[error("an image of {0} bytes, at most {MAX_IMAGE}")]
    Size(usize),
}

/// Why bytes are no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// They do not begin like one.
    #[error("not the image of a queue pair")]
    Magic,
    /// Another form.
    #[error("an image of form {got}, this process reads form {VERSION}")]
    Version {
        /// Its form.
        got: u16,
    },
    /// They changed on the way.
    #[error("an image whose sum is wrong")]
    Sum,
    /// The sum is right and they say nothing.
    #[error("an image that makes no sense")]
    Nonsense,
}

impl Image {
    /// The form of images that this process writes and reads.
    pub const FORM: u16 = VERSION;

    /// What it was made of.
    pub fn traits(&self) -> Traits {
        self.traits
    }

    /// Completions that go along.
    pub fn completions(&self) -> usize {
        self.completions.len()
    }

    /// Those of sends among them, and those of receives.
    pub fn completions_by_queue(&self) -> (usize, usize) {
        let received = self.completions.iter().filter(|wc| is_received(wc)).count();
        (self.completions.len() - received, received)
    }

    /// As bytes, for another process on the same machine.
    pub fn encode(&self) -> Result<Vec<u8>, Stays> {
        if !self.inner.touches.is_idle() || self.inner.spends() {
            return Err(Stays::Touching);
        }
        let ours = |op: &SendOp| op.is_local() || matches!(op, SendOp::RegisterSend { .. });
        if let Some(wqe) = self.inner.sends.iter().find(|wqe| ours(&wqe.op)) {
            return Err(Stays::Request { id: wqe.id });
        }
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        // Everything else in it has a form: only what was refused above has none.
        let bytes = postcard::to_extend(self, bytes).map_err(|_| Stays::Size(usize::MAX))?;
        if bytes.len() > MAX_IMAGE {
            return Err(Stays::Size(bytes.len()));
        }
        Ok(summed(bytes))
    }

    /// The image that these bytes are. A process trusts them as it trusts whoever handed it the connection; what is looked at
    /// is whether they are whole and of this form.
    pub fn decode(bytes: &[u8]) -> Result<Image, ImageError> {
        let (head, body) = bytes.split_at_checked(HEAD).ok_or(ImageError::Magic)?;
        if head[..4] != MAGIC {
            return Err(ImageError::Magic);
        }
        let got = u16::from_le_bytes([head[4], head[5]]);
        if got != VERSION {
            return Err(ImageError::Version { got });
        }
        if head[6..] != crc32c(body).to_le_bytes() {
            return Err(ImageError::Sum);
        }
        let image: Image = postcard::from_bytes(body).map_err(|_| ImageError::Nonsense)?;
        if image.is_sound() {
            Ok(image)
        } else {
            Err(ImageError::Nonsense)
        }
    }

    /// Its parts fit together.
    fn is_sound(&self) -> bool {
        let (inner, limits) = (&self.inner, self.traits.limits);
        inner.stream.is_some()
            && inner.begun <= inner.sends.len()
            && inner.sends.len() <= limits.sends
            && self.receives.len() <= limits.receives
            && inner.outgo.is_sound()
            && inner.stage.is_sound()
    }
}

fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c(&bytes[HEAD..]);
    bytes[6..HEAD].copy_from_slice(&sum.to_le_bytes());
    bytes
}

impl Qp {
    /// Takes everything out of the queue pair, which is in `Reset` afterwards: it can be destroyed, or have its image back. `last` runs in the moment in which
    /// nobody is at work with it any more: from there on its descriptor may be touched by whoever has the image.
    pub fn depart(&self, last: impl FnOnce(), out: &mut Outbox) -> Result<Image, Stays> {
        let (inner, receives) = self.attend(out, |inner, init, out| {
            inner.stays(init)?;
            last();
            Ok(inner.leave(init, out))
        })?;
        let init = &self.init;
        let mut completions = init.send_cq.take_of(init.name);
        completions.extend(init.recv_cq.take_of(init.name));
        Ok(Image {
            traits: traits(init),
            inner,
            receives,
            completions,
        })
    }

    /// It goes on with what came; the image is given back if it does not fit this queue pair, which must be fresh and made
    /// with the traits that the image names.
    pub fn arrive(&self, image: Image, out: &mut Outbox) -> Result<(), Box<Image>> {
        if image.traits != traits(&self.init) || self.state() != QpState::Reset {
            return Err(Box::new(image));
        }
        let Image {
            inner,
            receives,
            completions,
            ..
        } = image;
        self.attend(out, |own, init, out| {
            // Nobody was told of what comes behind them.
            for wc in completions {
                let wc = Wc {
                    qpn: init.name,
                    ..wc
                };
                let cq = if is_received(&wc) {
                    &init.recv_cq
                } else {
                    &init.send_cq
                };
                cq.push(wc, out);
            }
            self.tails.refill(inner.sends.len(), receives);
            own.come(init, inner, out);
        });
        Ok(())
    }
}

fn is_received(wc: &Wc) -> bool {
    matches!(wc.op, WcOp::Receive | WcOp::ReceiveWriteImm)
}

fn traits(init: &QpInit) -> Traits {
    Traits {
        personality: init.personality,
        qp_type: init.qp_type,
        limits: init.limits,
        registration: init.registration,
        shared_receives: init.srq.is_some(),
    }
}

impl Inner {
    /// A response that is owed spends one-touch memory (M9).
    fn spends(&self) -> bool {
        let spends = |response: &Response| response.spend.is_some();
        self.owed.iter().any(spends)
            || matches!(&self.current, Some(Current::Answer(response, _)) if spends(response))
    }

    /// Why it does not move, if it does not.
    fn stays(&self, init: &QpInit) -> Result<(), Stays> {
        let open = self.stream.as_ref().is_some_and(|s| s.state().is_open());
        let flows = open && self.state.receives() && !self.gone && !self.severed;
        if !flows || self.ending.is_some() || self.retired {
            return Err(Stays::State(self.state));
        }
        if self.proof.is_some() || self.demanded.is_some() {
            return Err(Stays::Unproven);
        }
        if init.send_cq.is_feeding() {
            return Err(Stays::Channel);
        }
        let waits = self.blocked.is_some_and(Blocked::for_memory);
        if waits || self.answer_wait != AnswerWait::No || init.tpt.has_pending() {
            return Err(Stays::Pending);
        }
        Ok(())
    }

    /// Leaves nothing behind but counters.
    fn leave(&mut self, init: &QpInit, out: &mut Outbox) -> (Inner, Vec<Receive>) {
        self.leave_line(init, out);
        let receives = core::iter::from_fn(|| self.heads.next_receive()).collect();
        self.heads.ended(self.sends.len());
        let (heads, counters) = (core::mem::take(&mut self.heads), self.counters);
        let mut gone = core::mem::replace(self, Inner::new(heads));
        self.counters = counters;
        gone.counters = Default::default();
        (gone, receives)
    }

    /// Goes on with what another one was doing.
    fn come(&mut self, init: &QpInit, other: Inner, out: &mut Outbox) {
        let heads = core::mem::take(&mut self.heads);
        *self = Inner { heads, ..other };
        // It stood in the line of the shared receive queue where it was, if it missed a receive.
        let awaits = self.awaits_receive() && self.claimed.is_none();
        if let Some(srq) = init.srq.as_ref().filter(|_| awaits)
            && let Some(receive) = srq.take(init.number, out)
        {
            self.claimed = Some(receive);
            self.receive_is_there(init, out);
        }
        if self.claimed.is_some() {
            self.begin_holding(init, self.now);
        }
    }
}

#[cfg(test)]
mod tests;
