//! Every exchange that was captured from Linux's siw, replayed: each side of it by a scripted peer against this adapter.
//! Startup frames, Sends, Terminates and the bytes read or written are as captured; only STags and addresses of our memory are replaced,
//! and checksums with them. Our segments may be cut elsewhere.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use verbena_engine::Error;
use verbena_mem::{Access, Bind, Buffer, WindowType};
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{Flags, QpState, ReceiveWr, SendOp, SendWr, Sge, Status};
use verbena_wire::{Stag, To};

use crate::common::capture::{Exchange, Message, Segment, SentBy, be16, be32, be64, exchanges};
use crate::common::{Side, TEST_TIMEOUT, loopback, read_from, wait, write_to};

const CAPTURES: [&str; 11] = [
    "00_stock_rping_64_5000",
    "02_rping_v2_crc_sizes",
    "03_rping_v1_nocrc",
    "06_rping_v2_p2p_crc",
    "09_rping_ipv6_nocrc",
    "11_perftest_send",
    "13_perftest_read",
    "15_ops_ok_crc",
    "16_ops_terminate_crc",
    "17_reject_crc",
    "21_rping_v2_crc_loss",
];

/// RDMAP opcodes (RFC 5040 §4.2).
const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const TERMINATE: u8 = 7;

/// Offsets in our memory of the parts of a replay.
const THEIRS: usize = 1 << 20;
const OURS: usize = 2 << 20;
const SINKS: usize = 3 << 20;

/// The private data of a startup frame, without the enhanced block.
fn private(frame: &[u8]) -> &[u8] {
    let enhanced = frame[17] == 2 && frame[16] & 0x10 != 0;
    &frame[if enhanced { 24 } else { 20 }..]
}

/// Memory of ours that has another STag in the capture.
struct Region {
    stag: u32,
    to: u64,
    ours: RemoteAddr,
}

/// One exchange with one side run by this adapter.
struct Replay<'a> {
    exchange: &'a Exchange,
    we: SentBy,
    side: Side,
    raw: TcpStream,
    regions: Vec<Region>,
    /// If the startup names a region, a buffer of exactly that size and those rights.
    _exact: Option<Buffer>,
    /// Our reads: the captured sink STag, ours, and the offset of the sink in our memory.
    reads: VecDeque<(u64, u32, u64, usize)>,
    unread: Vec<u8>,
    /// What our memory must contain in the end: offset and bytes.
    expected: Vec<(usize, Vec<u8>)>,
    posted: usize,
    empty_writes: usize,
}

impl Replay<'_> {
    fn theirs(&self) -> impl Iterator<Item = &Message> {
        let we = self.we;
        self.exchange.messages.iter().filter(move |m| m.from != we)
    }

    /// Assigns a place to all our memory that the peer names.
    fn name_regions(&mut self) {
        let mut found: Vec<(u32, u64, u64)> = Vec::new();
        for message in self.theirs() {
            for segment in &message.segments {
                let u = &segment.ulpdu;
                let (stag, to, len) = match segment.opcode() {
                    WRITE => (be32(u, 2), be64(u, 6), segment.payload().len() as u64),
                    READ_REQUEST => (be32(u, 34), be64(u, 38), be32(u, 30).into()),
                    _ => continue,
                };
                match found.iter_mut().find(|r| r.0 == stag) {
                    Some(region) => {
                        region.1 = region.1.min(to);
                        region.2 = region.2.max(to + len);
                    }
                    None => found.push((stag, to, to + len)),
                }
            }
        }
        let mut at = THEIRS;
        for (stag, to, end) in found {
            let ours = self.side.remote(at);
            at += ((end - to) as usize).next_multiple_of(4096);
            assert!(at <= OURS, "room");
            self.regions.push(Region { stag, to, ours });
        }
    }

    /// The one region that a responder names in its startup: {address, key, length}.
    fn name_exactly(&mut self, rights: Access) {
        let said = private(&self.exchange.reply);
        let (to, stag, len) = (be64(said, 0), be32(said, 8), be32(said, 12));
        let (function, pd) = (self.side.engine.function(), self.side.pd);
        let memory = function.register_buffer(pd, len as usize, rights).unwrap();
        let ours = RemoteAddr {
            stag: memory.stag(),
            to: To::new(memory.at()),
        };
        self.regions.push(Region { stag, to, ours });
        self._exact = Some(memory);
    }

    /// A peer may invalidate a window but no region here (siw lets it), so the region is named by a window.
    fn open_window(&mut self) {
        let (function, pd) = (self.side.engine.function(), self.side.pd);
        let memory = self._exact.as_ref().expect("a region of its own");
        let bind = Bind {
            window: function.allocate_window(WindowType::TwoB, pd).unwrap(),
            region: memory.stag(),
            addr: memory.at(),
            len: memory.len() as u64,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
            pd,
            qp: self.side.qp.number(),
            key: 3,
            zero_based: false,
            one_touch: false,
        };
        let bound = function.tpt().bind(&bind).unwrap();
        self.regions[0].ours.stag = bound;
    }

    /// Translates a captured STag and address of our memory to the current ones. An invalid one stays invalid in the same way.
    fn translate(&self, stag: u32, to: u64) -> (u32, u64) {
        let known = self.regions.iter().find(|r| r.stag == stag);
        let Some(region) = known.or(self.regions.first()) else {
            return (stag, to);
        };
        let today = region.ours.stag.get() ^ (stag ^ region.stag);
        let to = region
            .ours
            .to
            .get()
            .wrapping_add(to.wrapping_sub(region.to));
        (today, to)
    }

    /// The offset in our memory of bytes that the peer writes or reads.
    fn offset(&self, to: u64) -> usize {
        (to - self.side.memory.at()) as usize
    }

    fn post_receives(&self, most: usize) {
        let mut at = 0;
        for message in self.theirs().filter(|m| (3..7).contains(&m.opcode())) {
            let len = message.payload().len();
            let scatter = [self.side.sge(at, len.min(most))];
            let id = at as u64;
            let scatter = if len == 0 { &[][..] } else { &scatter };
            let wr = ReceiveWr { id, scatter };
            self.side.qp.post_receive(&wr).unwrap();
            at += len;
        }
    }

    /// Sends a message of the peer's.
    fn send_message(&mut self, message: &Message, next: &[Message]) {
        if message.opcode() == READ_REQUEST {
            self.prepare_answer(message, next);
        }
        let mut bytes = Vec::new();
        for segment in &message.segments {
            let mut segment = segment.clone();
            let u = &mut segment.ulpdu;
            let (at, name) = match message.opcode() {
                WRITE if !message.is_empty_write() => (2, self.translate(be32(u, 2), be64(u, 6))),
                READ_REQUEST => (34, self.translate(be32(u, 34), be64(u, 38))),
                READ_RESPONSE => {
                    let (then, stag, today, _) = *self.reads.front().expect("a read of ours");
                    (2, (stag, today + (be64(u, 6) - then)))
                }
                4 | 6 => {
                    let (stag, _) = self.translate(be32(u, 2), 0);
                    u[2..6].copy_from_slice(&stag.to_be_bytes());
                    bytes.extend(segment.emit());
                    continue;
                }
                _ => {
                    bytes.extend(segment.emit());
                    continue;
                }
            };
            u[at..at + 4].copy_from_slice(&name.0.to_be_bytes());
            u[at + 4..at + 12].copy_from_slice(&name.1.to_be_bytes());
            bytes.extend(segment.emit());
            let placed = [WRITE, READ_RESPONSE].contains(&message.opcode());
            if placed && self._exact.is_none() && !message.is_empty_write() {
                let at = match self.reads.front() {
                    Some((_, _, sink, local)) if message.opcode() == READ_RESPONSE => {
                        local + (name.1 - sink) as usize
                    }
                    _ => self.offset(name.1),
                };
                self.expected.push((at, segment.payload().to_vec()));
            }
        }
        if message.opcode() == READ_RESPONSE {
            self.reads.pop_front();
        }
        self.raw.write_all(&bytes).unwrap();
    }

    /// Puts the bytes that the peer read in the capture where it reads them now.
    fn prepare_answer(&mut self, request: &Message, next: &[Message]) {
        let u = request.first();
        let sink = (be32(u, 18), be64(u, 22));
        let answers = |m: &&Message| {
            let first = m.first();
            m.from == self.we
                && m.opcode() == READ_RESPONSE
                && (be32(first, 2), be64(first, 6)) == sink
        };
        let Some(answer) = next.iter().find(answers) else {
            return;
        };
        let (_, to) = self.translate(be32(u, 34), be64(u, 38));
        match &self._exact {
            Some(memory) => assert!(memory.write((to - memory.at()) as usize, &answer.payload())),
            None => assert!(self.side.memory.write(self.offset(to), &answer.payload())),
        }
    }

    /// The next message of ours from the socket, without empty Writes that open or nudge a stream.
    fn receive_message(&mut self) -> Message {
        let mut segments: Vec<Segment> = Vec::new();
        loop {
            while let Some((segment, len)) = Segment::take(&self.unread) {
                self.unread.drain(..len);
                let last = segment.is_last();
                segments.push(segment);
                if !last {
                    continue;
                }
                let segments = core::mem::take(&mut segments);
                let from = self.we;
                let message = Message { from, segments };
                if !message.is_empty_write() {
                    return message;
                }
                self.empty_writes += 1;
            }
            let mut some = [0; 65_536];
            let n = self.raw.read(&mut some).expect("a message of ours");
            assert_ne!(n, 0, "ours ended it: {:?}", self.side.qp.view());
            self.unread.extend(&some[..n]);
        }
    }

    /// Has our side do what the captured one did, and compares what is sent.
    fn replay_own(&mut self, captured: &Message) {
        if captured.is_empty_write() {
            // The adapter sends it by itself.
            return;
        }
        self.post(captured);
        let ours = self.receive_message();
        assert_eq!(ours.opcode(), captured.opcode());
        let (now, then) = (ours.first(), captured.first());
        match captured.opcode() {
            // The contents of our Terminate differ.
            TERMINATE => {}
            READ_REQUEST => {
                assert_eq!(now[30..46], then[30..46], "what is read");
                let local = self.sink(self.posted - 1);
                let read = (be64(then, 22), be32(now, 18), be64(now, 22), local);
                self.reads.push_back(read);
            }
            WRITE | READ_RESPONSE => {
                assert_eq!(now[2..14], then[2..14], "where it goes");
                assert_eq!(ours.payload(), captured.payload());
            }
            _ => {
                assert_eq!(now[2..6], then[2..6], "what it invalidates");
                assert_eq!(ours.payload(), captured.payload());
            }
        }
    }

    /// Where the data of the read with this number goes; there is room for all that are outstanding at once.
    fn sink(&self, number: usize) -> usize {
        SINKS + (number % 30) * (32 << 10)
    }

    fn post(&mut self, captured: &Message) {
        let (u, payload) = (captured.first(), captured.payload());
        let id = self.posted as u64;
        let (mut flags, mut at, mut len) = (Flags::SIGNALED, OURS, payload.len());
        let remote = |stag: u32, to: u64| RemoteAddr {
            stag: Stag::new(stag),
            to: To::new(to),
        };
        let op = match captured.opcode() {
            READ_RESPONSE | TERMINATE => return,
            WRITE => write_to(remote(be32(u, 2), be64(u, 6))),
            READ_REQUEST => {
                len = be32(u, 30) as usize;
                at = self.sink(self.posted);
                read_from(remote(be32(u, 34), be64(u, 38)))
            }
            opcode => {
                if opcode >= 5 {
                    flags = flags | Flags::SOLICITED;
                }
                let invalidate = (opcode % 2 == 0).then(|| Stag::new(be32(u, 2)));
                SendOp::Send {
                    invalidate,
                    immediate: None,
                }
            }
        };
        if captured.opcode() != READ_REQUEST {
            assert!(self.side.memory.write(at, &payload));
        }
        let sges: [Sge; 1] = [self.side.sge(at, len)];
        let data = Data::Gather(if len == 0 { &[] } else { &sges });
        let wr = SendWr {
            id,
            op,
            flags,
            data,
        };
        self.side.qp.post_send(&wr).unwrap();
        self.posted += 1;
    }

    /// Checks that all received and read bytes are in place, and all work has succeeded.
    fn check_results(&mut self) {
        let sends: Vec<_> = self
            .theirs()
            .filter(|m| (3..7).contains(&m.opcode()))
            .map(Message::payload)
            .collect();
        let done = self.side.complete(self.posted + sends.len());
        let good = done.iter().all(|wc| wc.status == Status::Success);
        assert!(good, "{done:?} {:?}", self.side.qp.view().cause);
        let mut at = 0;
        for send in sends {
            assert_eq!(self.side.memory.read(at, send.len()), send);
            at += send.len();
        }
        // Later ones may overlap earlier ones.
        let mut image: std::collections::BTreeMap<usize, u8> = Default::default();
        for (at, bytes) in &self.expected {
            image.extend(bytes.iter().enumerate().map(|(n, b)| (at + n, *b)));
        }
        let memory = &self.side.memory;
        let there = || {
            image
                .iter()
                .all(|(at, byte)| memory.read(*at, 1) == [*byte])
        };
        wait("what was written", there);
        let view = self.side.qp.view();
        assert_eq!((view.state, view.cause), (QpState::Rts, None));
    }
}

/// Settings that make our startup equal to siw's.
fn settings(exchange: &Exchange, rtr: bool) -> Vec<(&'static str, &'static str)> {
    let request = &exchange.request;
    let on = |bit: u8| request[16] & bit != 0;
    vec![
        ("crc", if on(0x40) { "on" } else { "off" }),
        ("mpa_revision", if request[17] == 1 { "1" } else { "2" }),
        ("rtr", if rtr { "write,read" } else { "none" }),
        ("profile", "siw"),
        ("fpdu", "mss"),
        ("receive_wait", "50ms"),
    ]
}

/// Its Request asks for the peer-to-peer model (RFC 6581 §9.1).
fn peer_to_peer(exchange: &Exchange) -> bool {
    let request = &exchange.request;
    request[17] == 2 && request.len() >= 24 && request[20] & 0x80 != 0
}

fn replay<'a>(exchange: &'a Exchange, we: SentBy, side: Side, raw: TcpStream) -> Replay<'a> {
    raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    raw.set_nodelay(true).unwrap();
    Replay {
        exchange,
        we,
        side,
        raw,
        regions: Vec::new(),
        _exact: None,
        reads: VecDeque::new(),
        unread: Vec::new(),
        expected: Vec::new(),
        posted: 0,
        empty_writes: 0,
    }
}

/// The failures in the capture of failures, in its order.
const FAILURES: [&str; 9] = [
    "write: bad key",
    "write: bad key byte",
    "write: out of bounds",
    "write: no right",
    "read: bad key",
    "read: out of bounds",
    "read: no right",
    "send: no receive",
    "send: too long",
];

/// siw's initiator against our listener.
fn against_our_listener(name: &str, number: usize, exchange: &Exchange) {
    let side = Side::new(&settings(exchange, true));
    let listener = side.engine.listen(loopback(), 4).unwrap();
    let raw = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut replay = replay(exchange, SentBy::Responder, side, raw);
    replay.raw.write_all(&exchange.request).unwrap();
    let incoming = listener.next().unwrap().unwrap();
    assert_eq!(incoming.private_data(), private(&exchange.request));
    let said = private(&exchange.reply);
    let refuses = exchange.reply[16] & 0x20 != 0;
    let (done, notified) = mpsc::channel();
    if refuses {
        incoming.reject(said);
    } else {
        let answer = move |r: Result<Vec<u8>, Error>| done.send(r).unwrap();
        incoming.accept(&replay.side.qp, said, answer).unwrap();
        notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    }
    let mut reply = vec![0; exchange.reply.len()];
    replay.raw.read_exact(&mut reply).unwrap();
    // Key, flags, revision and length byte for byte, and the private data.
    assert_eq!(reply[..20], exchange.reply[..20]);
    assert_eq!(private(&reply), said);
    if refuses {
        return;
    }
    let failure = (name.starts_with("16")).then(|| FAILURES[number]);
    match failure {
        Some("write: no right") => replay.name_exactly(Access::LOCAL_READ | Access::LOCAL_WRITE),
        _ if name.starts_with("15") || failure.is_some() => replay.name_exactly(Access::ALL),
        _ => replay.name_regions(),
    }
    if replay.theirs().any(|m| [4, 6].contains(&m.opcode())) {
        replay.open_window();
    }
    match failure {
        Some("send: no receive") => {}
        Some("send: too long") => replay.post_receives(50),
        _ => replay.post_receives(usize::MAX),
    }
    run(&mut replay);
    if exchange.messages.iter().any(|m| m.opcode() == TERMINATE) {
        wait("our end", || replay.side.qp.state() == QpState::Err);
    } else {
        replay.check_results();
    }
}

/// siw's responder against our initiator.
fn against_our_dialler(exchange: &Exchange, rtr: bool) {
    let side = Side::new(&settings(exchange, rtr));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (done, notified) = mpsc::channel();
    let asks = private(&exchange.request);
    side.qp
        .connect(listener.local_addr().unwrap(), asks, move |r| {
            done.send(r).unwrap();
        })
        .unwrap();
    let (mut raw, _) = listener.accept().unwrap();
    let mut head = [0; 20];
    raw.read_exact(&mut head).unwrap();
    assert_eq!(head, exchange.request[..20]);
    let mut rest = vec![0; be16(&head, 18)];
    raw.read_exact(&mut rest).unwrap();
    assert!(rest.ends_with(asks));
    raw.write_all(&exchange.reply).unwrap();
    let answer = notified.recv_timeout(TEST_TIMEOUT).unwrap();
    let said = private(&exchange.reply);
    if exchange.reply[16] & 0x20 != 0 {
        let Err(Error::Rejected { private_data, .. }) = answer else {
            panic!("a refusal: {answer:?}");
        };
        assert_eq!(private_data, said);
        return;
    }
    assert_eq!(answer.unwrap(), said);
    let mut replay = replay(exchange, SentBy::Initiator, side, raw);
    replay.name_regions();
    replay.post_receives(usize::MAX);
    run(&mut replay);
    if exchange.messages.iter().any(|m| m.opcode() == TERMINATE) {
        wait("our end", || replay.side.qp.state() == QpState::Err);
        let cause = replay.side.qp.view().cause.unwrap_or_default();
        assert!(!cause.contains("the peer violated the protocol"), "{cause}");
    } else {
        replay.check_results();
        // siw may have left our first frame unread.
        let most = 1 + usize::from(peer_to_peer(exchange));
        assert!(replay.empty_writes <= most);
    }
}

fn run(replay: &mut Replay<'_>) {
    let messages = &replay.exchange.messages;
    for (n, message) in messages.iter().enumerate() {
        if message.from == replay.we {
            replay.replay_own(message);
        } else {
            replay.send_message(message, &messages[n..]);
        }
    }
}

fn each(check: impl Fn(&str, usize, &Exchange)) {
    let mut all = 0;
    for name in CAPTURES {
        for (number, exchange) in exchanges(name).iter().enumerate() {
            println!("{name}, connection {number}");
            check(name, number, exchange);
            all += 1;
        }
    }
    // As in the README.md of the captures and the listings beside them.
    assert_eq!(all, 51);
}

#[test]
fn listener_replays_every_captured_initiator() {
    each(against_our_listener);
}

#[test]
fn dialler_replays_every_captured_responder() {
    each(|_, _, exchange| against_our_dialler(exchange, peer_to_peer(exchange)));
}

/// We offer the peer-to-peer model unless configured otherwise; siw without it answers as if nothing had been offered.
#[test]
fn default_offer_works_with_every_captured_responder() {
    each(|name, _, exchange| {
        if exchange.request[17] == 2 {
            println!("{name} with our usual offer");
            against_our_dialler(exchange, true);
        }
    });
}
