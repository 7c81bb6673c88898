//! From the events of threads to slices and flows: a post is followed to its segments, its acknowledgement, its completion and its poll, and over connections
//! whose both ends are traced to its arrival. Events come in order of time, but for threads that were interrupted between reading the clock and writing.
//! What belongs together is found by numbers that the adapter gave, so that lost events lose their own flows only. Every table has a limit.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::io;
use std::net::SocketAddr;

use verbena::Status;
use verbena::unstable::trace::record::{Frame, FrameKind, Record, SleepPlace, What};
use verbena::unstable::{TraceEvent, WcOp};

use super::frames::{Role, Seen, fpdu_len};
use super::output::{Output, Point};
use super::summary::Summary;

/// Requests, completions and messages that are followed at once; the oldest is forgotten for a new one.
const MAX_FOLLOWED: usize = 1 << 18;
/// Queue pairs, connections and threads that are known; further ones have no flows.
const MAX_KNOWN: usize = 1 << 16;
/// Messages of a queue pair that have arrived and not been completed.
const MAX_ARRIVED: usize = 1 << 14;
/// How long something is shown that takes no time, if nothing follows sooner.
const SHORT: u64 = 300;

/// An adapter of a process, by its number among those that are traced.
pub(super) type Source = u32;

/// A table that forgets the oldest entry when it is full.
#[derive(Debug)]
struct Recent<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Hash + Eq + Copy, V> Recent<K, V> {
    fn new() -> Recent<K, V> {
        Recent {
            entries: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        // Keys that were taken out stay in the order until they are the oldest.
        while self.order.len() > MAX_FOLLOWED {
            if let Some(oldest) = self.order.pop_front() {
                self.entries.remove(&oldest);
            }
        }
    }

    fn take(&mut self, key: &K) -> Option<V> {
        let taken = self.entries.remove(key);
        // The usual case: they are taken out in the order in which they came.
        while let Some(first) = self.order.front() {
            if self.entries.contains_key(first) {
                break;
            }
            self.order.pop_front();
        }
        taken
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }
}

/// A request: adapter, queue pair, and its number there.
type RequestKey = (Source, u32, u64);

#[derive(Debug, Clone, Copy, Default)]
struct Request {
    posted: Option<Point>,
    sent: Option<Point>,
    /// It was segmented before.
    begun: bool,
}

/// The end of a message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum MessageKey {
    /// The connection, and the bytes of its direction up to the end of the message.
    Stream(SocketAddr, SocketAddr, u64),
    /// The queue pair that its last packet is for, and the number of that packet.
    Packet(u32, u32),
}

/// One end of a message; the other one has not been seen.
#[derive(Debug, Clone, Copy)]
enum Half {
    Sent { posted: Point, sent: Point },
    Arrived(Point),
}

/// What is known of a queue pair.
#[derive(Debug, Default)]
struct QueuePair {
    /// The addresses of this side and of the peer.
    ends: Option<(SocketAddr, SocketAddr)>,
    /// The acknowledgement or response that arrived last.
    arrived: Option<Point>,
    /// The ends of messages that take a receive, by message number.
    messages: BTreeMap<u32, Point>,
}

/// A slice whose length is not known yet.
#[derive(Debug)]
struct Open {
    at: Point,
    name: String,
    kind: &'static str,
    args: String,
}

#[derive(Debug, Default)]
struct Thread {
    last: u64,
    open: Option<Open>,
    /// A send request that has ended, and whose completion follows.
    ended: Option<(RequestKey, u64, Point)>,
}

/// The state of a trace.
#[derive(Debug)]
pub(super) struct Model {
    threads: HashMap<(u32, u32), Thread>,
    queue_pairs: HashMap<(Source, u32), QueuePair>,
    /// Queue pairs by their numbers in completions.
    numbers: HashMap<(Source, u32), u32>,
    /// Connections of traced adapters, as their own side names them.
    connections: HashMap<(SocketAddr, SocketAddr), (Source, u32)>,
    requests: Recent<RequestKey, Request>,
    /// Requests by the offset of the stream at which they end, and by their last packets.
    by_end: Recent<(Source, u32, u64), u64>,
    by_packet: Recent<(Source, u32, u32), (u32, u64)>,
    messages: Recent<MessageKey, Half>,
    completions: Recent<(Source, u32, u64), Point>,
    /// The highest number of packets sent to a queue pair.
    packets: HashMap<(Source, u32), u32>,
    /// Completions of send requests that were written.
    pub(super) completed: u64,
    /// Posted send requests.
    pub(super) posted: u64,
    /// The latencies.
    pub(super) summary: Summary,
    /// The queue pair that is shown, by its number in completions; others have none of their completions written.
    pub(super) only: Option<u32>,
}

fn op_name(op: WcOp) -> &'static str {
    match op {
        WcOp::Send => "Send",
        WcOp::Write => "Write",
        WcOp::Read => "Read",
        WcOp::CompSwap => "CmpSwap",
        WcOp::FetchAdd => "FetchAdd",
        WcOp::AtomicWrite => "Atomic Write",
        WcOp::Flush => "Flush",
        WcOp::Bind => "Bind",
        WcOp::LocalInvalidate => "Local Invalidate",
        WcOp::Register => "Register",
        WcOp::Receive => "Receive",
        WcOp::ReceiveWriteImm => "Receive (Write with immediate)",
        WcOp::Control(_) => "Control",
    }
}

impl Default for Model {
    fn default() -> Model {
        Model {
            threads: HashMap::new(),
            queue_pairs: HashMap::new(),
            numbers: HashMap::new(),
            connections: HashMap::new(),
            requests: Recent::new(),
            by_end: Recent::new(),
            by_packet: Recent::new(),
            messages: Recent::new(),
            completions: Recent::new(),
            packets: HashMap::new(),
            completed: 0,
            posted: 0,
            summary: Summary::default(),
            only: None,
        }
    }
}

impl Model {
    /// Takes in an event of an adapter of this process.
    pub(super) fn add(
        &mut self,
        (source, pid): (Source, u32),
        record: &Record,
        out: &mut Output,
    ) -> io::Result<()> {
        let Some(at) = self.point(pid, record) else {
            return Ok(());
        };
        match &record.what {
            What::Adapter(event) => self.adapter(source, at, event, out),
            What::Frame(frame) => self.frame(source, at, frame, out),
            What::Connection {
                qp,
                wc_qpn,
                local,
                peer,
                ..
            } => {
                self.know(source, *qp, *wc_qpn);
                if let Some(known) = self.queue_pair(source, *qp) {
                    known.ends = Some((*local, *peer));
                    if self.connections.len() < MAX_KNOWN {
                        self.connections.insert((*local, *peer), (source, *qp));
                    }
                }
                Ok(())
            }
            What::Woken { since, place } => self.woken(at, *since, *place, out),
        }
    }

    /// Writes the slices that are still open.
    pub(super) fn finish(&mut self, out: &mut Output) -> io::Result<()> {
        for thread in self.threads.values_mut() {
            close(thread, u64::MAX, out)?;
        }
        Ok(())
    }

    /// The place of an event in its thread. In one thread no two events have the same time.
    fn point(&mut self, pid: u32, record: &Record) -> Option<Point> {
        let tid = record.thread;
        if self.threads.len() >= MAX_KNOWN && !self.threads.contains_key(&(pid, tid)) {
            return None;
        }
        let thread = self.threads.entry((pid, tid)).or_default();
        let nanos = record.nanos.max(thread.last.saturating_add(1));
        thread.last = nanos;
        Some(Point { pid, tid, nanos })
    }

    fn know(&mut self, source: Source, qp: u32, wc_qpn: u32) {
        if qp != 0 && self.numbers.len() < MAX_KNOWN {
            self.numbers.insert((source, wc_qpn), qp);
        }
    }

    fn queue_pair(&mut self, source: Source, qp: u32) -> Option<&mut QueuePair> {
        let key = (source, qp);
        if self.queue_pairs.len() >= MAX_KNOWN && !self.queue_pairs.contains_key(&key) {
            return None;
        }
        Some(self.queue_pairs.entry(key).or_default())
    }

    /// A slice that lasts until the next event of the thread, at most [`SHORT`].
    fn slice(
        &mut self,
        at: Point,
        (name, kind, args): (String, &'static str, String),
        out: &mut Output,
    ) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(&(at.pid, at.tid)) else {
            return Ok(());
        };
        close(thread, at.nanos, out)?;
        thread.open = Some(Open {
            at,
            name,
            kind,
            args,
        });
        Ok(())
    }

    fn adapter(
        &mut self,
        source: Source,
        at: Point,
        event: &TraceEvent,
        out: &mut Output,
    ) -> io::Result<()> {
        if !matches!(event, TraceEvent::Completion { .. }) {
            self.end_without_entry(at, out)?;
        }
        match *event {
            TraceEvent::PostSend {
                qp,
                wc_qpn,
                number,
                id,
                op,
                len,
                signaled,
            } => {
                self.know(source, qp, wc_qpn);
                self.posted += 1;
                let key = (source, qp, number);
                match self.requests.get_mut(&key) {
                    // Another thread was faster than the one that posts.
                    Some(request) => request.posted = Some(at),
                    None => {
                        let posted = Some(at);
                        let request = Request {
                            posted,
                            ..Request::default()
                        };
                        self.requests.insert(key, request);
                    }
                }
                let name = format!("post {} {len} B", op_name(op));
                let args = format!(
                    "\"qp\":{qp},\"request\":{number},\"wr_id\":\"{id:#x}\",\"bytes\":{len},\"signaled\":{signaled}"
                );
                self.slice(at, (name, "post", args), out)
            }
            TraceEvent::PostReceive {
                qp,
                srq,
                wc_qpn,
                id,
                len,
            } => {
                self.know(source, qp, wc_qpn);
                let queue = match qp {
                    0 => format!("\"srq\":{srq}"),
                    _ => format!("\"qp\":{qp}"),
                };
                let args = format!("{queue},\"wr_id\":\"{id:#x}\",\"bytes\":{len}");
                self.slice(at, (format!("post Receive {len} B"), "post", args), out)
            }
            TraceEvent::Segmented { qp, number, end } => {
                self.by_end.insert((source, qp, end), number);
                self.note_begun((source, qp, number), at, out)
            }
            TraceEvent::LastPacket {
                qp,
                number,
                dest_qpn,
                psn,
            } => {
                self.by_packet.insert((source, dest_qpn, psn), (qp, number));
                self.note_begun((source, qp, number), at, out)
            }
            TraceEvent::Ended {
                qp,
                number,
                id,
                op,
                status,
                len,
                entry,
            } => {
                let key = (source, qp, number);
                if entry {
                    if let Some(thread) = self.threads.get_mut(&(at.pid, at.tid)) {
                        thread.ended = Some((key, id, at));
                    }
                    return Ok(());
                }
                let name = format!("end of {} {len} B{}", op_name(op), suffix(status));
                let args = format!(
                    "\"qp\":{qp},\"request\":{number},\"wr_id\":\"{id:#x}\",\"status\":\"{status:?}\""
                );
                self.slice(at, (name, "completion", args), out)?;
                self.end_request(key, at, out)
            }
            TraceEvent::Completion { .. } => self.completion(source, at, event, out),
            TraceEvent::Polled {
                cq,
                position,
                wc_qpn,
                id,
                op,
                status,
            } => {
                if self.only.is_some_and(|only| only != wc_qpn) {
                    return Ok(());
                }
                let name = format!("poll {}{}", op_name(op), suffix(status));
                let args = format!(
                    "\"cq\":{cq},\"entry\":{position},\"qp_num\":{wc_qpn},\"wr_id\":\"{id:#x}\",\"status\":\"{status:?}\""
                );
                self.slice(at, (name, "poll", args), out)?;
                if let Some(from) = self.completions.take(&(source, cq, position)) {
                    self.summary.polled.add(at.nanos.saturating_sub(from.nanos));
                    out.flow("completion to poll", &[from, at])?;
                }
                Ok(())
            }
            TraceEvent::State {
                qp,
                wc_qpn,
                from,
                to,
            } => {
                self.know(source, qp, wc_qpn);
                let name = format!("queue pair {qp}: {from:?} to {to:?}");
                out.instant(at, &name, "state", &format!("\"qp\":{qp}"))
            }
        }
    }

    /// A request was segmented; if it had been before, it is sent again.
    fn note_begun(&mut self, key: RequestKey, at: Point, out: &mut Output) -> io::Result<()> {
        match self.requests.get_mut(&key) {
            Some(request) if request.begun => {
                let args = format!("\"qp\":{},\"request\":{}", key.1, key.2);
                out.instant(at, "request sent again", "retry", &args)
            }
            Some(request) => {
                request.begun = true;
                Ok(())
            }
            None => {
                let begun = true;
                let request = Request {
                    begun,
                    ..Request::default()
                };
                self.requests.insert(key, request);
                Ok(())
            }
        }
    }

    /// A request ended whose completion found no room in its queue.
    fn end_without_entry(&mut self, at: Point, out: &mut Output) -> io::Result<()> {
        let thread = self.threads.get_mut(&(at.pid, at.tid));
        let Some((key, id, ended)) = thread.and_then(|thread| thread.ended.take()) else {
            return Ok(());
        };
        let args = format!(
            "\"qp\":{},\"request\":{},\"wr_id\":\"{id:#x}\"",
            key.1, key.2
        );
        self.slice(
            ended,
            ("end without completion".to_owned(), "completion", args),
            out,
        )?;
        self.end_request(key, ended, out)
    }

    fn completion(
        &mut self,
        source: Source,
        at: Point,
        event: &TraceEvent,
        out: &mut Output,
    ) -> io::Result<()> {
        let TraceEvent::Completion {
            cq,
            position,
            wc_qpn,
            id,
            op,
            status,
            len,
        } = *event
        else {
            return Ok(());
        };
        if self.only.is_some_and(|only| only != wc_qpn) {
            return Ok(());
        }
        let thread = self.threads.get_mut(&(at.pid, at.tid));
        let ended = thread.and_then(|thread| thread.ended.take_if(|(_, ended, _)| *ended == id));
        self.end_without_entry(at, out)?;
        let name = format!("completion of {} {len} B{}", op_name(op), suffix(status));
        let request = ended.map_or_else(String::new, |((_, qp, number), ..)| {
            format!("\"qp\":{qp},\"request\":{number},")
        });
        let args = format!(
            "{request}\"cq\":{cq},\"entry\":{position},\"qp_num\":{wc_qpn},\"wr_id\":\"{id:#x}\",\"status\":\"{status:?}\""
        );
        self.slice(at, (name, "completion", args), out)?;
        self.completions.insert((source, cq, position), at);
        if let Some((key, ..)) = ended {
            self.completed += 1;
            return self.end_request(key, at, out);
        }
        let is_receive = matches!(op, WcOp::Receive | WcOp::ReceiveWriteImm);
        if is_receive && status == Status::Success {
            let qp = self.numbers.get(&(source, wc_qpn)).copied();
            let known = qp.and_then(|qp| self.queue_pair(source, qp));
            if let Some((_, from)) = known.and_then(|known| known.messages.pop_first()) {
                out.flow("arrival to completion", &[from, at])?;
            }
        }
        Ok(())
    }

    /// A request has ended: its flow is complete.
    fn end_request(&mut self, key: RequestKey, at: Point, out: &mut Output) -> io::Result<()> {
        let Some(Request { posted, sent, .. }) = self.requests.take(&key) else {
            return Ok(());
        };
        let arrived = self.queue_pair(key.0, key.1).and_then(|qp| qp.arrived);
        let acknowledged = arrived.filter(|arrived| {
            let behind = sent.is_some_and(|sent| sent.nanos < arrived.nanos);
            behind && arrived.nanos < at.nanos
        });
        if let (Some(sent), Some(acknowledged)) = (sent, acknowledged) {
            let time = acknowledged.nanos - sent.nanos;
            self.summary.acknowledged.add(time);
        }
        let Some(posted) = posted.filter(|posted| posted.nanos <= at.nanos) else {
            return Ok(());
        };
        self.summary.completed.add(at.nanos - posted.nanos);
        let on_the_way = [sent, acknowledged].into_iter().flatten();
        let on_the_way = on_the_way.filter(|point| point.nanos >= posted.nanos);
        let points: Vec<Point> = core::iter::once(posted)
            .chain(on_the_way)
            .chain([at])
            .collect();
        out.flow("post to completion", &points)
    }

    fn frame(
        &mut self,
        source: Source,
        at: Point,
        frame: &Frame,
        out: &mut Output,
    ) -> io::Result<()> {
        self.end_without_entry(at, out)?;
        let seen = Seen::of(frame);
        let direction = if frame.sent { "send" } else { "receive" };
        let mut args = format!("\"bytes\":{}", seen.len);
        if let Some(number) = seen.number {
            args += &format!(",\"number\":{number}");
        }
        if let Some(dest) = seen.dest_qpn {
            args += &format!(",\"dest_qp\":{dest}");
        }
        if let FrameKind::Fpdu { qp, position, .. } = frame.kind {
            args += &format!(",\"qp\":{qp},\"position\":{position}");
        }
        let mut name = format!("{direction} {}", seen.name);
        if frame.sent && self.is_repeated(source, &seen) {
            name += " (again)";
            out.instant(at, "packet sent again", "retry", &args)?;
        }
        self.slice(at, (name, "frame", args.clone()), out)?;
        if let Some(notice) = seen.notice {
            out.instant(at, &format!("{notice} {direction}"), "notice", &args)?;
        }
        match frame.kind {
            FrameKind::Startup { .. } => Ok(()),
            FrameKind::Fpdu {
                qp,
                position,
                markers: false,
                ..
            } => self.fpdu(source, at, (qp, position), (frame, &seen), out),
            FrameKind::Fpdu { .. } => Ok(()),
            FrameKind::Packet { .. } => self.packet(source, at, (frame.sent, &seen), out),
        }
    }

    /// A packet with this number or a later one was sent to the queue pair before.
    fn is_repeated(&mut self, source: Source, seen: &Seen) -> bool {
        let (Some(dest), Some(psn), Role::Part | Role::Last { .. }) =
            (seen.dest_qpn, seen.number, seen.role)
        else {
            return false;
        };
        if self.packets.len() >= MAX_KNOWN && !self.packets.contains_key(&(source, dest)) {
            return false;
        }
        let newest = self.packets.entry((source, dest)).or_insert(psn);
        let ahead = psn.wrapping_sub(*newest) & 0x00ff_ffff;
        let is_first = ahead == 0 && !self.by_packet.entries.contains_key(&(source, dest, psn));
        if ahead != 0 && ahead < 0x0080_0000 {
            *newest = psn;
            return false;
        }
        !is_first && ahead != 0
    }

    fn fpdu(
        &mut self,
        source: Source,
        at: Point,
        (qp, position): (u32, u64),
        (frame, seen): (&Frame, &Seen),
        out: &mut Output,
    ) -> io::Result<()> {
        let ulpdu = u16::from_be_bytes([frame.head[0], frame.head[1]]);
        let end = position.wrapping_add(fpdu_len(ulpdu).into());
        let Some(known) = self.queue_pair(source, qp) else {
            return Ok(());
        };
        let ends = known.ends;
        if frame.sent {
            let Some(number) = self.by_end.take(&(source, qp, end)) else {
                return Ok(());
            };
            let key = ends.map(|(local, peer)| MessageKey::Stream(local, peer, end));
            let is_traced =
                ends.is_some_and(|(local, peer)| self.connections.contains_key(&(peer, local)));
            return self.note_sent((source, qp, number), at, key.filter(|_| is_traced), out);
        }
        if seen.role == Role::Answer {
            known.arrived = Some(at);
        }
        let Role::Last { takes } = seen.role else {
            return Ok(());
        };
        if let (true, Some(number)) = (takes, seen.number) {
            known.messages.insert(number, at);
            if known.messages.len() > MAX_ARRIVED {
                known.messages.pop_first();
            }
        }
        match ends {
            Some((local, peer)) if self.connections.contains_key(&(peer, local)) => {
                self.note_arrived(MessageKey::Stream(peer, local, end), at, out)
            }
            _ => Ok(()),
        }
    }

    fn packet(
        &mut self,
        source: Source,
        at: Point,
        (sent, seen): (bool, &Seen),
        out: &mut Output,
    ) -> io::Result<()> {
        let (Some(dest), Some(psn)) = (seen.dest_qpn, seen.number) else {
            return Ok(());
        };
        let key = MessageKey::Packet(dest, psn);
        if sent {
            if !matches!(seen.role, Role::Last { .. }) {
                return Ok(());
            }
            let found = self.by_packet.take(&(source, dest, psn));
            let Some((qp, number)) = found else {
                return Ok(());
            };
            return self.note_sent((source, qp, number), at, Some(key), out);
        }
        let qp = self.numbers.get(&(source, dest)).copied();
        if let Some(known) = qp.and_then(|qp| self.queue_pair(source, qp)) {
            if seen.role == Role::Answer {
                known.arrived = Some(at);
            }
            if let Role::Last { takes: true } = seen.role {
                known.messages.insert(psn, at);
                if known.messages.len() > MAX_ARRIVED {
                    known.messages.pop_first();
                }
            }
        }
        match seen.role {
            Role::Last { .. } => self.note_arrived(key, at, out),
            _ => Ok(()),
        }
    }

    /// The last frame of a request was sent.
    fn note_sent(
        &mut self,
        key: RequestKey,
        at: Point,
        message: Option<MessageKey>,
        out: &mut Output,
    ) -> io::Result<()> {
        let Some(request) = self.requests.get_mut(&key) else {
            return Ok(());
        };
        request.sent = Some(at);
        let Some(posted) = request.posted else {
            return Ok(());
        };
        self.summary.sent.add(at.nanos.saturating_sub(posted.nanos));
        let Some(message) = message else {
            return Ok(());
        };
        match self.messages.take(&message) {
            Some(Half::Arrived(arrived)) => self.deliver(posted, at, arrived, out),
            _ => {
                self.messages
                    .insert(message, Half::Sent { posted, sent: at });
                Ok(())
            }
        }
    }

    /// The last frame of a message has arrived.
    fn note_arrived(&mut self, message: MessageKey, at: Point, out: &mut Output) -> io::Result<()> {
        match self.messages.take(&message) {
            Some(Half::Sent { posted, sent }) => self.deliver(posted, sent, at, out),
            _ => {
                self.messages.insert(message, Half::Arrived(at));
                Ok(())
            }
        }
    }

    fn deliver(
        &mut self,
        posted: Point,
        sent: Point,
        arrived: Point,
        out: &mut Output,
    ) -> io::Result<()> {
        let time = arrived.nanos.checked_sub(posted.nanos);
        let Some(time) = time else {
            return Ok(());
        };
        self.summary.delivered.add(time);
        // The receiver may read what was written before the sender has returned from writing it.
        let sent = Some(sent).filter(|sent| (posted.nanos..=arrived.nanos).contains(&sent.nanos));
        let points: Vec<Point> = [Some(posted), sent, Some(arrived)]
            .into_iter()
            .flatten()
            .collect();
        out.flow("post to arrival", &points)
    }

    fn woken(
        &mut self,
        at: Point,
        since: u64,
        place: SleepPlace,
        out: &mut Output,
    ) -> io::Result<()> {
        self.end_without_entry(at, out)?;
        let Some(thread) = self.threads.get_mut(&(at.pid, at.tid)) else {
            return Ok(());
        };
        let before = thread.open.as_ref().map_or(0, |open| open.at.nanos + 1);
        let since = since.clamp(before, at.nanos);
        close(thread, since, out)?;
        let name = match place {
            SleepPlace::Shard => "sleep (thread of the adapter)",
            SleepPlace::Channel => "sleep (completion channel)",
            SleepPlace::ChannelAndConnections => "sleep (completion channel and connections)",
        };
        let begin = Point { nanos: since, ..at };
        out.slice(begin, at.nanos - since, name, "sleep", "")?;
        out.instant(at, "woken", "sleep", "")
    }
}

/// Writes the slice of a thread that is open; the next event of the thread is at this time.
fn close(thread: &mut Thread, next: u64, out: &mut Output) -> io::Result<()> {
    let Some(open) = thread.open.take() else {
        return Ok(());
    };
    let time = next.saturating_sub(open.at.nanos).min(SHORT);
    out.slice(open.at, time, &open.name, open.kind, &open.args)
}

fn suffix(status: Status) -> String {
    match status {
        Status::Success => String::new(),
        status => format!(": {status:?}"),
    }
}
