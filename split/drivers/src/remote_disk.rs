//! A disk of a unit, at the host: requests are submitted, and complete later in any order. One connection serves one disk; when it is lost,
//! every request in progress fails and the disk is gone, since a write may or may not have been executed. The caller drives it from one loop.
//!
//! Order of calls: [`RemoteDisk::open`]; then [`submit`](RemoteDisk::submit), [`poll`](RemoteDisk::poll) and [`wait`](RemoteDisk::wait);
//! [`close`](RemoteDisk::close) at the end.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use verbena_push::{Arrangement, IndicationMode};
use verbena_split_wire::push::Status;

use crate::capped_timer::CappedTimer;
use crate::carrier::{Carrier, CarrierError, CarrierEvent, Memory};
use crate::channel_kinds::{InvalidKinds, KindChoice};
use crate::disk::{
    BlockOperation, BlockReply, BlockRequest, BlockStatus, DiskInfo, HEAD, MAX_DATA, MAX_DEPTH,
    max_data,
};
use crate::lane::Lane;
use crate::link::{Link, LinkError, LinkEvent, LinkOptions};
use crate::request_channels::request_channels;
use crate::service::ConfigRequest;
use crate::sleep::sleep;
use crate::welcome::Welcome;

/// Interval at which the unit is probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// A unit must connect all channels and attach the disk within this time, or within `patience` if that is longer.
const FORMING_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of an orderly disconnect.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of a disk at a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDiskOptions {
    /// The disk's name at the unit; empty for the only one.
    pub disk: String,
    /// The name that the unit shows in its status.
    pub name: String,
    /// The number of queues of the unit: the first serves its disks.
    pub lane: Lane,
    /// The arrangement of the connection (P5).
    pub arrangement: Arrangement,
    /// The attributes of the channels (P2), which must be acknowledged where packets can be lost.
    pub kinds: KindChoice,
    /// How packets are indicated in arrangement B (P7).
    pub indication: IndicationMode,
    /// Packets in flight, in each direction.
    pub elements: u32,
    /// A unit that was silent for this long is considered lost.
    pub patience: Duration,
}

impl RemoteDiskOptions {
    /// The defaults.
    pub fn new(disk: &str) -> RemoteDiskOptions {
        RemoteDiskOptions {
            disk: disk.to_owned(),
            name: String::new(),
            lane: Lane::ONLY,
            arrangement: Arrangement::Writes,
            kinds: KindChoice::default(),
            indication: IndicationMode::Immediate,
            elements: MAX_DEPTH as u32,
            patience: Duration::from_secs(3),
        }
    }
}

/// Why a disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteDiskError {
    /// The channels do not fit the arrangement.
    #[error(transparent)]
    Kinds(#[from] InvalidKinds),
    /// Packets could be lost.
    #[error(
        "a disk needs acknowledged channels: use --delivery acknowledged, or arrangement b or c"
    )]
    Unacknowledged,
    /// The link or its carrier.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The unit refused the disk.
    #[error("the unit answers {status} to open-disk: {why}")]
    Refused {
        /// The status.
        status: Status,
        /// The unit's message.
        why: String,
    },
    /// The unit did not complete the start in time.
    #[error("the unit did not attach the disk within {0:.1?}")]
    Timeout(Duration),
    /// The connection is lost.
    #[error("{0}")]
    Lost(String),
}

impl From<CarrierError> for RemoteDiskError {
    fn from(error: CarrierError) -> RemoteDiskError {
        LinkError::from(error).into()
    }
}

/// Why a request was not accepted. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many requests as possible are in progress.
    #[error("{0} requests are in progress")]
    Full(usize),
    /// A request with this context is in progress.
    #[error("request {0} is in progress already")]
    Context(u64),
    /// The request does not fit the disk.
    #[error(transparent)]
    Invalid(#[from] BlockStatus),
    /// The data is not as long as the request says.
    #[error("{got} bytes of data, and the request has {wanted}")]
    Data {
        /// Bytes given.
        got: usize,
        /// Bytes of the request.
        wanted: usize,
    },
    /// The connection is lost.
    #[error("{0}")]
    Lost(String),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockFailure {
    /// The unit's answer.
    Status(BlockStatus),
    /// The connection was lost; the request may have been executed.
    Lost(String),
}

/// A completed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedRequest {
    /// Its context.
    pub context: u64,
    /// What was read, or empty; or why it failed.
    pub result: Result<Vec<u8>, BlockFailure>,
}

/// A disk of a unit.
#[derive(Debug)]
pub struct RemoteDisk {
    carrier: Box<dyn Carrier>,
    link: Link,
    info: DiskInfo,
    outstanding: BTreeMap<u64, BlockRequest>,
    /// Requests that wait for room, at most as many as are outstanding.
    waiting: VecDeque<Vec<u8>>,
    finished: Vec<FinishedRequest>,
    /// The request to attach the disk, and its answer.
    opening: Option<u64>,
    answer: Option<(Status, Vec<u8>)>,
    lost: Option<String>,
    last_probe: Instant,
    patience: Duration,
    /// Replies that are malformed, or to no request of ours.
    stray_replies: u64,
}

impl RemoteDisk {
    /// Connects to the unit to which the carrier leads, and attaches a disk; blocks until that is done or has failed.
    pub fn open(
        mut carrier: Box<dyn Carrier>,
        options: &RemoteDiskOptions,
    ) -> Result<RemoteDisk, RemoteDiskError> {
        let kinds = options.kinds.kinds(options.arrangement)?;
        if carrier.is_lossy() && !kinds.acknowledged {
            return Err(RemoteDiskError::Unacknowledged);
        }
        let now = Instant::now();
        let size = MAX_DATA + HEAD as u32;
        let link_options = LinkOptions {
            kinds,
            indication: options.indication,
            ..LinkOptions::new(options.arrangement, options.elements, size)
        };
        let link = Link::new(&mut *carrier, link_options, now)?;
        request_channels(&mut *carrier, &link, options.lane, &options.name)?;
        let mut disk = RemoteDisk {
            carrier,
            link,
            info: DiskInfo {
                block_size: 0,
                read_only: true,
                blocks: 0,
                max_data: 0,
            },
            outstanding: BTreeMap::new(),
            waiting: VecDeque::new(),
            finished: Vec::new(),
            opening: None,
            answer: None,
            lost: None,
            last_probe: now,
            patience: options.patience,
            stray_replies: 0,
        };
        disk.attach(&options.disk)?;
        Ok(disk)
    }

    /// Waits until the unit has attached the disk and lent its elements.
    fn attach(&mut self, name: &str) -> Result<(), RemoteDiskError> {
        let mut timer = CappedTimer::new(Instant::now());
        let limit = FORMING_TIMEOUT.max(self.patience);
        loop {
            let now = Instant::now();
            self.turn(now);
            if let Some(why) = self.lost.take() {
                return Err(RemoteDiskError::Lost(why));
            }
            if self.link.is_open() && self.opening.is_none() {
                let (operation, data) = ConfigRequest::OpenDisk(name.to_owned()).encode();
                let asked = self.link.request(operation, &data);
                self.opening = Some(asked.map_err(LinkError::from)?);
                self.link.drive(&mut *self.carrier)?;
            }
            if let Some((status, data)) = self.answer.take() {
                self.info = self.opened(status, &data)?;
            }
            if self.info.blocks > 0 && self.link.has_room() {
                return Ok(());
            }
            if timer.advance(now) > limit {
                return Err(RemoteDiskError::Timeout(limit));
            }
            self.wait(&[], None)?;
        }
    }

    fn opened(&self, status: Status, data: &[u8]) -> Result<DiskInfo, RemoteDiskError> {
        let why = match (status, DiskInfo::parse(data)) {
            (Status::Ok, Some(info)) => {
                // Neither side sends more than the other's elements hold.
                let most = max_data(self.link.options().size) / info.block_size * info.block_size;
                let max_data = info.max_data.min(most);
                if max_data > 0 {
                    return Ok(DiskInfo { max_data, ..info });
                }
                "its blocks do not fit our packets".to_owned()
            }
            (Status::Ok, None) => "the properties of the disk are invalid".to_owned(),
            (Status::UnknownOperation, _) => "the unit is too old, and has no disks".to_owned(),
            _ => String::from_utf8_lossy(data).escape_default().to_string(),
        };
        Err(RemoteDiskError::Refused { status, why })
    }

    /// Its properties.
    pub fn info(&self) -> DiskInfo {
        self.info
    }

    /// Most requests in progress.
    pub fn depth(&self) -> usize {
        MAX_DEPTH.min(self.link.options().elements as usize)
    }

    /// Replies that were malformed, or to no request of ours, and ignored.
    pub fn stray_replies(&self) -> u64 {
        self.stray_replies
    }

    /// Submits a request; the data of a write is copied. Contexts of requests in progress must differ.
    pub fn submit(&mut self, request: BlockRequest, data: &[u8]) -> Result<(), SubmitError> {
        if let Some(why) = &self.lost {
            return Err(SubmitError::Lost(why.clone()));
        }
        request.check(&self.info)?;
        if data.len() != request.data_len() {
            let (got, wanted) = (data.len(), request.data_len());
            return Err(SubmitError::Data { got, wanted });
        }
        if self.outstanding.len() >= self.depth() {
            return Err(SubmitError::Full(self.outstanding.len()));
        }
        if self.outstanding.contains_key(&request.context) {
            return Err(SubmitError::Context(request.context));
        }
        self.outstanding.insert(request.context, request);
        let head = request.to_bytes();
        let sent =
            self.waiting.is_empty() && self.link.has_room() && self.link.send(&head, data).is_ok();
        if !sent {
            self.waiting.push_back([&head[..], data].concat());
        }
        Ok(())
    }

    /// Makes progress without waiting, and appends completed requests. When the connection is lost, all requests complete first; the next
    /// call fails.
    pub fn poll(&mut self, finished: &mut Vec<FinishedRequest>) -> Result<(), RemoteDiskError> {
        self.turn(Instant::now());
        if !self.finished.is_empty() {
            finished.append(&mut self.finished);
            return Ok(());
        }
        match &self.lost {
            Some(why) => Err(RemoteDiskError::Lost(why.clone())),
            None => Ok(()),
        }
    }

    /// Waits until something may have completed, one of `beside` is readable, or the time is over.
    pub fn wait(
        &mut self,
        beside: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<(), RemoteDiskError> {
        let work = self.lost.is_some() || !self.finished.is_empty();
        if work || !self.carrier.prepare_sleep() {
            return Ok(());
        }
        let now = Instant::now();
        let deadlines = [
            self.carrier.deadline(),
            self.link.deadline(),
            timeout.and_then(|timeout| now.checked_add(timeout)),
            Some(now + PROBE_INTERVAL),
        ];
        let until = deadlines.into_iter().flatten().min();
        let carrier = core::iter::once(&*self.carrier);
        sleep(carrier, None, beside.iter().copied(), until)?;
        Ok(())
    }

    /// Disconnects: the unit is told, and pools are recalled. True if that was confirmed in time.
    pub fn close(mut self) -> bool {
        let start = Instant::now();
        let (operation, data) = ConfigRequest::Shutdown.encode();
        let asked = self.link.request(operation, &data).is_ok() && self.link.recall().is_ok();
        let mut in_order = false;
        while asked && self.lost.is_none() && !in_order && start.elapsed() < LEAVE_TIMEOUT {
            self.turn(Instant::now());
            in_order = self.link.is_freed() && self.link.is_idle() && self.link.waiting() == 0;
            // Not even this can fail but by a lost connection.
            if !in_order && self.wait(&[], Some(LEAVE_TIMEOUT)).is_err() {
                break;
            }
        }
        self.link.close(&mut *self.carrier);
        // The end of the channels leaves with the next turn; if it is lost, the unit notices by its patience.
        let _ = self.carrier.turn(Instant::now(), &mut Vec::new());
        in_order
    }

    fn turn(&mut self, now: Instant) {
        if self.lost.is_none()
            && let Err(why) = self.try_turn(now)
        {
            for context in core::mem::take(&mut self.outstanding).into_keys() {
                let result = Err(BlockFailure::Lost(why.clone()));
                self.finished.push(FinishedRequest { context, result });
            }
            self.waiting.clear();
            self.lost = Some(why);
        }
    }

    fn try_turn(&mut self, now: Instant) -> Result<(), String> {
        let text = |lost: LinkError| lost.to_string();
        let mut done = Vec::new();
        let turned = self.carrier.turn(now, &mut done);
        turned.map_err(|error| error.to_string())?;
        for wc in done {
            let handled = self.link.handle(&mut *self.carrier, &wc, now);
            handled.map_err(text)?;
        }
        while let Some(news) = self.carrier.next_event() {
            self.handle_event(news)?;
        }
        while let Some(event) = self.link.next_event() {
            self.serve(event).map_err(text)?;
        }
        self.take_replies().map_err(text)?;
        while self.link.has_room()
            && let Some(packet) = self.waiting.pop_front()
        {
            if self.link.send(&packet, &[]).is_err() {
                self.waiting.push_front(packet);
                break;
            }
        }
        if self.link.is_lost(&mut *self.carrier, now, self.patience) {
            return Err(format!("silent for {:.1?}", self.link.silence(now)));
        }
        if self.link.is_open() && now > self.last_probe + PROBE_INTERVAL {
            self.last_probe = now;
            // The answer shows that the unit is alive.
            if self.link.waiting() == 0 {
                let (operation, data) = ConfigRequest::Statistics.encode();
                let asked = self.link.request(operation, &data);
                asked.map_err(|misuse| misuse.to_string())?;
            }
        }
        self.link.tick(&mut *self.carrier, now).map_err(text)
    }

    fn handle_event(&mut self, news: CarrierEvent) -> Result<(), String> {
        match news {
            CarrierEvent::Connected { pair, private_data } if self.link.owns(pair) => {
                if self.link.options().kinds.connectionless {
                    let number = Welcome::data_pair(&private_data);
                    let number = number.ok_or("the unit did not name its data channel")?;
                    let bound = self.link.bind_datagrams(&mut *self.carrier, number);
                    bound.map_err(|lost| lost.to_string())?;
                }
                let connected = self.link.connected(&mut *self.carrier, pair);
                connected.map(drop).map_err(|lost| lost.to_string())
            }
            CarrierEvent::Refused {
                pair,
                why,
                private_data,
            } if self.link.owns(pair) => {
                let said = String::from_utf8_lossy(&private_data);
                Err(match said.is_empty() {
                    true => why,
                    false => format!("{why}: {}", said.escape_default()),
                })
            }
            CarrierEvent::Ended { pair, why }
                if self.link.owns(pair) && !self.link.outlives(pair) =>
            {
                Err(why)
            }
            // A host accepts no connections.
            CarrierEvent::Request { ticket, .. } => {
                self.carrier.reject(ticket, b"this is a host");
                Ok(())
            }
            CarrierEvent::Connected { .. }
            | CarrierEvent::Refused { .. }
            | CarrierEvent::Ended { .. }
            | CarrierEvent::Rejected { .. } => Ok(()),
        }
    }

    fn serve(&mut self, event: LinkEvent) -> Result<(), LinkError> {
        match event {
            LinkEvent::Reply {
                context,
                status,
                data,
                ..
            } => {
                if self.opening == Some(context) {
                    self.answer = Some((status, data));
                }
            }
            // The state of the LAN's link does not matter to a disk, and nothing else is requested of a host.
            LinkEvent::Request {
                context,
                operation,
                data,
            } => {
                let status = match ConfigRequest::parse(operation, &data) {
                    Ok(ConfigRequest::SetLink(_) | ConfigRequest::Shutdown) => Status::Ok,
                    Ok(_) => Status::NotAllowed,
                    Err(status) => status,
                };
                self.link.reply(context, status, &[])?;
            }
        }
        Ok(())
    }

    fn take_replies(&mut self) -> Result<(), LinkError> {
        while let Some(taken) = self.link.with_packet(take_reply)? {
            match taken.and_then(|(reply, data)| self.finish(reply, data)) {
                Some(finished) => self.finished.push(finished),
                None => self.stray_replies += 1,
            }
        }
        Ok(())
    }

    /// The result of the request that a reply belongs to, if there is one.
    fn finish(&mut self, reply: BlockReply, data: Vec<u8>) -> Option<FinishedRequest> {
        let request = self.outstanding.remove(&reply.context)?;
        let wanted = match (request.operation, reply.status) {
            (BlockOperation::Read, BlockStatus::Ok) => request.len as usize,
            _ => 0,
        };
        let result = match reply.status {
            // A reply with more or less than was requested cannot be trusted.
            _ if data.len() != wanted => Err(BlockFailure::Status(BlockStatus::Io)),
            BlockStatus::Ok => Ok(data),
            status => Err(BlockFailure::Status(status)),
        };
        Some(FinishedRequest {
            context: reply.context,
            result,
        })
    }
}

/// Copies a reply out of the pool; `None` if it is not one.
fn take_reply(memory: &dyn Memory, offset: usize, len: usize) -> Option<(BlockReply, Vec<u8>)> {
    let mut head = [0; HEAD];
    if len < HEAD || !memory.read(offset, &mut head) {
        return None;
    }
    let reply = BlockReply::parse(&head, len)?;
    let mut data = vec![0; reply.len as usize];
    let read = memory.read(offset + HEAD, &mut data);
    read.then_some((reply, data))
}

#[cfg(test)]
mod tests;
