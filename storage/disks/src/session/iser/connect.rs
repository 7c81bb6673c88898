//! Establishing a link on RDMA: a queue pair with its receives, connected to a target. Receives are posted before the target can send, and
//! connecting has a time limit. Nothing here blocks; the login is in `dial`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use verbena::low::{
    Limits, OnFailure, Pd, Personality, Qp, QpAccessFlags, QpOptions, QpState, Registration,
};
use verbena::{Access, Device};
use verbena_iscsi::Terms;
use verbena_iscsi::login::IserOffer;
use verbena_storage_wire::iser::PrivateData;

use super::events::Events;
use super::registrations::Registrations;
use super::requests::{HEADER_BUFFER_LEN, MAX_PIECES};
use super::sequence::SequenceNumbers;
use super::tags::Tags;
use super::unsolicited::DATA_OUTS;
use super::{DATA_BUFFERS, HEADERS_LEN, Iser, MAX_DATA, RECEIVE_LEN};
use crate::error::Error;
use crate::session::link::{Dialling, Link, TransferCounters};
use crate::session::sleep_poll::{Polling, sleep_on_fds};

/// Requests other than commands.
const CONTROL: usize = 32;

/// Polling interval for the answer, which has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Options of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IserOptions {
    /// Most commands outstanding.
    pub(crate) depth: usize,
    /// Time limit for connecting.
    pub(crate) patience: Duration,
    /// Most bytes of data of one command.
    pub(crate) max_data: u32,
    /// How long to poll before sleeping; `None`: adaptive.
    pub(crate) poll: Option<Duration>,
    /// Registrations of commands are one-touch.
    pub(crate) one_touch: bool,
}

/// A connection being established.
pub(crate) struct IserDial {
    link: Option<Iser>,
    answer: Receiver<Result<Vec<u8>, verbena::Error>>,
    patience: Duration,
    end: Instant,
}

impl IserDial {
    pub(crate) fn new(
        device: &Device,
        pd: &Pd,
        to: SocketAddr,
        how: IserOptions,
    ) -> Result<IserDial, Error> {
        // RFC 7145 §8.1: a response for each request, and the unexpected PDUs that we allow.
        let unasked = IserOffer::default().unexpected as usize;
        let receives = how.depth + CONTROL + unasked;
        // For each command a Send and an invalidation.
        let sends = 2 * how.depth + DATA_OUTS as usize + CONTROL;
        let cq = device.cq(sends + receives)?;
        let memory = pd.memory(receives * RECEIVE_LEN, Access::LOCAL_WRITE)?;
        let headers = (how.depth + DATA_OUTS as usize) * HEADER_BUFFER_LEN;
        let headers = pd.memory(headers, Access::LOCAL_READ)?;
        let texts = pd.memory(DATA_BUFFERS as usize * RECEIVE_LEN, Access::LOCAL_READ)?;
        let limits = Limits {
            sends,
            receives,
            max_sge: MAX_PIECES,
            inline: HEADERS_LEN,
        };
        // A command's task number has an STag of its own: registrations do not fail for lack of room.
        let registration = Registration {
            enabled: true,
            on_failure: OnFailure::Anticipatory,
        };
        // With the iWARP personality the end of the connection flushes the receives, so the link needs no other notification of it.
        let options = QpOptions::default()
            .personality(Personality::Iwarp)
            .limits(limits)
            .registration(registration);
        let qp = Qp::new(pd, &cq, &cq, options)?;
        qp.set_access_flags(QpAccessFlags {
            atomic: false,
            flush: false,
            ..QpAccessFlags::default()
        });
        let mut link = Iser {
            qp,
            cq,
            registrations: Registrations::new(pd, how.one_touch),
            receives: memory,
            header_buffers: headers,
            free_headers: (0..DATA_OUTS).collect(),
            data_buffers: texts,
            free: (0..DATA_BUFFERS).collect(),
            depth: how.depth,
            sequence: SequenceNumbers::new(),
            tags: Tags::default(),
            waiting: VecDeque::new(),
            burst: None,
            events: Events::default(),
            immediate_tags: Vec::new(),
            task_request: None,
            limit: usize::MAX,
            polling: Polling::new(how.poll),
            max_data: how.max_data,
            max_send: MAX_DATA,
            terms: Terms::DEFAULT,
            logged_in: false,
            why: None,
            ended: false,
            transferred: TransferCounters::default(),
        };
        link.qp.modify(QpState::Init)?;
        for slot in 0..receives as u64 {
            link.post(slot).map_err(Error::Link)?;
        }
        // As Linux does. The target may invalidate the STag of a command; addresses are virtual addresses.
        let hello = PrivateData {
            zero_based: false,
            invalidate: true,
        };
        let (sender, answer) = channel();
        let done = move |result| {
            // The receiver may have been dropped.
            let _ = sender.send(result);
        };
        link.qp.connect_from(None, to, &hello.emit(), done)?;
        Ok(IserDial {
            link: Some(link),
            answer,
            patience: how.patience,
            end: Instant::now() + how.patience,
        })
    }

    /// The link once it is established.
    pub(super) fn finish(&mut self) -> Result<Option<Iser>, Error> {
        match self.answer.try_recv() {
            // The target's private data is not needed: its addresses are not used, and its STags are not invalidated.
            Ok(Ok(_)) => Ok(self.link.take()),
            Ok(Err(error)) => Err(error.into()),
            Err(TryRecvError::Empty) if Instant::now() < self.end => Ok(None),
            Err(TryRecvError::Empty) => Err(Error::Timeout {
                what: "answer to a connection request",
                limit: self.patience,
            }),
            Err(TryRecvError::Disconnected) => Err(Error::Lost("while connecting".to_owned())),
        }
    }
}

impl Dialling for IserDial {
    fn poll(&mut self) -> Result<Option<Box<dyn Link>>, Error> {
        let link = self.finish()?;
        Ok(link.map(|link| Box::new(link) as Box<dyn Link>))
    }

    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
        // The answer is delivered by a thread of the adapter and has no descriptor.
        sleep_on_fds(beside, None, timeout.min(POLL_INTERVAL))
    }
}
