//! The startup of an observed stream: the Request, the Reply, and their result (RFC 5044 §7.1). In both directions FPDUs begin directly
//! after the frames, with the parameters that both sides derive from them. A Reply that accepts is taken as valid.

use verbena_stream::RnrRetry;
use verbena_stream::accounting::Accounting;
use verbena_wire::mpa::{Frame, Kind, StartupError};

use super::super::agree::{Terms, agree};
use super::super::record::{Body, Dir, Out, Record, Startup};
use super::super::summary::Ending;
use super::follow::Follower;
use super::{State, Stream};
use crate::pcap::frames::JOINED;

/// The frames seen, as on the wire.
#[derive(Debug, Default)]
pub(super) struct Frames {
    request: Option<Vec<u8>>,
    reply: Option<Vec<u8>>,
}

impl Frames {
    fn of(&mut self, dir: Dir) -> &mut Option<Vec<u8>> {
        match dir {
            Dir::ToResponder => &mut self.request,
            Dir::ToInitiator => &mut self.reply,
        }
    }
}

impl Stream {
    /// Parses a startup frame, if this direction has not had one.
    pub(super) fn startup(&mut self, dir: Dir, out: &mut Out<'_>) {
        let at = dir.index();
        if !matches!(self.sides[at].state, State::Startup) {
            return;
        }
        if self.frames.of(dir).is_none() {
            match self.read_frame(dir, out) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    self.report_violation(dir, 0, format!("startup frame: {error}"), out);
                    self.stop(dir.reverse());
                    return;
                }
            }
        }
        self.try_agree();
        self.check_early_data(out);
    }

    /// Takes the frame off the stage once it is complete.
    fn read_frame(&mut self, dir: Dir, out: &mut Out<'_>) -> Result<bool, StartupError> {
        let (kind, name) = match dir {
            Dir::ToResponder => (Kind::Request, "MpaRequest"),
            Dir::ToInitiator => (Kind::Reply, "MpaReply"),
        };
        let (from, to) = self.summary.addresses(dir);
        let side = &mut self.sides[dir.index()];
        let Some((frame, len)) = Frame::parse(kind, &side.stage)? else {
            return Ok(false);
        };
        let revision = frame.revision().get();
        out.records.push(Record {
            time: out.time,
            stream: self.summary.stream,
            dir,
            kind: name,
            segments: 1,
            len: frame.private_data().len() as u64,
            offset: side.offset,
            body: Body::Startup(Startup::new(&frame, from, to)),
        });
        *self.frames.of(dir) = side.stage.get(..len).map(<[u8]>::to_vec);
        side.consume(len);
        self.summary.revision.get_or_insert(revision);
        *self.summary.messages[dir.index()].entry(name).or_default() += 1;
        Ok(true)
    }

    /// With both frames, FPDUs begin, or the stream was rejected.
    fn try_agree(&mut self) {
        let (Some(request), Some(reply)) = (&self.frames.request, &self.frames.reply) else {
            return;
        };
        let parsed = (
            Frame::parse(Kind::Request, request),
            Frame::parse(Kind::Reply, reply),
        );
        let (Ok(Some((request, _))), Ok(Some((reply, _)))) = parsed else {
            return;
        };
        if reply.flags().reject {
            self.summary.ending = Ending::Rejected;
            self.stop(Dir::ToResponder);
            self.stop(Dir::ToInitiator);
            return;
        }
        if request.private_data() == JOINED {
            // Sequence numbers, reads and features of the stream are not known.
            self.summary.joined = true;
            self.stop(Dir::ToResponder);
            self.stop(Dir::ToInitiator);
            return;
        }
        let terms = agree(&request, &reply);
        self.summary.terms = Some(terms);
        self.accounting = Some(terms.depth.map(|depth| new_accounting(&terms, depth)));
        for (at, side) in self.sides.iter_mut().enumerate() {
            side.state = State::Running(Box::new(Follower::new(&terms, at)));
        }
    }

    /// RFC 5044 §7.1.2: after its Request the initiator sends nothing until it has the Reply.
    fn check_early_data(&mut self, out: &mut Out<'_>) {
        let side = &self.sides[Dir::ToResponder.index()];
        let surplus = side.stage.len();
        let waiting = self.frames.request.is_some() && self.frames.reply.is_none();
        if waiting && surplus > 0 {
            let message = format!("{surplus} bytes behind the Request, before the Reply");
            self.report_violation(Dir::ToResponder, side.offset, message, out);
        }
    }
}

/// The accounting of a side that serves at most `depth` reads; its own reads are not limited.
fn new_accounting(terms: &Terms, depth: u16) -> Accounting {
    Accounting::new(terms.extensions, depth, u16::MAX, RnrRetry::Forever)
}
