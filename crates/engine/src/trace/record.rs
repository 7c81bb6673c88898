//! What is in the rings of a trace: eight words for each event. A reader checks every field: the process that writes is not trusted, and a word may belong
//! to another event than its neighbour if the writer was faster.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use verbena_mem::LINE;
use verbena_nic::trace::TraceEvent;
use verbena_nic::{QpState, Status, WcOp};

/// First bytes of a frame or packet that are recorded.
pub const HEAD: usize = 32;

/// An event as it is stored.
pub type Words = [u64; LINE];

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When it happened, in nanoseconds of CLOCK_MONOTONIC.
    pub nanos: u64,
    /// The thread in which it happened.
    pub thread: u32,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// In the adapter.
    Adapter(TraceEvent),
    /// A frame of a stream, or a packet, was sent or has arrived.
    Frame(Frame),
    /// A connection whose frames follow.
    Connection {
        /// Distinguishes connections of one adapter.
        connection: u32,
        /// Its queue pair.
        qp: u32,
        /// The queue pair's number in completions.
        wc_qpn: u32,
        /// The address of this side.
        local: SocketAddr,
        /// The address of the other side.
        peer: SocketAddr,
    },
    /// The thread was woken. It had slept since then.
    Woken {
        /// When it began to sleep.
        since: u64,
        /// What it slept on.
        place: SleepPlace,
    },
}

/// A frame or packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// It was sent; otherwise it was received.
    pub sent: bool,
    /// What it is.
    pub kind: FrameKind,
    /// Its first bytes; zeros behind its end.
    pub head: [u8; HEAD],
}

/// Kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// An FPDU.
    Fpdu {
        /// Its queue pair.
        qp: u32,
        /// Its connection.
        connection: u32,
        /// Bytes of the stream before it, since the connection began.
        position: u64,
        /// Frames of this direction have markers.
        markers: bool,
    },
    /// An MPA startup frame.
    Startup {
        /// Its connection.
        connection: u32,
    },
    /// A packet of RoCEv2.
    Packet {
        /// Its length, 65,535 at most.
        len: u16,
        /// The UDP port of the other side.
        peer_port: u16,
    },
}

/// What a thread sleeps on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SleepPlace {
    /// A thread of the adapter: its descriptors and timers.
    Shard = 0,
    /// A completion channel.
    Channel = 1,
    /// A completion channel and the connections of its queues.
    ChannelAndConnections = 2,
}

const POST_SEND: u8 = 1;
const POST_RECEIVE: u8 = 2;
const SEGMENTED: u8 = 3;
const LAST_PACKET: u8 = 4;
const ENDED: u8 = 5;
const COMPLETION: u8 = 6;
const POLLED: u8 = 7;
const STATE: u8 = 8;
const FPDU: u8 = 9;
const STARTUP: u8 = 10;
const PACKET: u8 = 11;
const CONNECTION: u8 = 12;
const WOKEN: u8 = 13;

const SENT: u8 = 1;
const MARKERS: u8 = 2;

const OPS: [WcOp; 12] = [
    WcOp::Send,
    WcOp::Write,
    WcOp::Read,
    WcOp::CompSwap,
    WcOp::FetchAdd,
    WcOp::AtomicWrite,
    WcOp::Flush,
    WcOp::Bind,
    WcOp::LocalInvalidate,
    WcOp::Register,
    WcOp::Receive,
    WcOp::ReceiveWriteImm,
];
/// A request of a control queue pair, whose operation is not recorded.
const CONTROL: u8 = OPS.len() as u8;

const STATUSES: [Status; 16] = [
    Status::Success,
    Status::LocLenErr,
    Status::LocQpOpErr,
    Status::LocProtErr,
    Status::WrFlushErr,
    Status::MwBindErr,
    Status::BadRespErr,
    Status::LocAccessErr,
    Status::RemInvReqErr,
    Status::RemAccessErr,
    Status::RemOpErr,
    Status::RetryExcErr,
    Status::RnrRetryExcErr,
    Status::RemAbortErr,
    Status::FatalErr,
    Status::GeneralErr,
];

fn op_code(op: WcOp) -> u8 {
    OPS.iter()
        .position(|one| *one == op)
        .map_or(CONTROL, |at| at as u8)
}

fn state_code(state: QpState) -> u8 {
    let at = QpState::ALL.iter().position(|one| *one == state);
    at.unwrap_or(0) as u8
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The word with the kind of an event, two small numbers, and the thread.
fn kind(kind: u8, flags: u8, small: [u8; 2], thread: u32) -> u64 {
    pair(
        u32::from_le_bytes([kind, flags, small[0], small[1]]),
        thread,
    )
}

fn address_words(ip: IpAddr) -> [u64; 2] {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let bits = ip.to_bits();
    [bits as u64, (bits >> 64) as u64]
}

fn address(words: [u64; 2]) -> IpAddr {
    let bits = u128::from(words[0]) | u128::from(words[1]) << 64;
    Ipv6Addr::from_bits(bits).to_canonical()
}

impl Record {
    /// As it is stored.
    pub(crate) fn emit(&self) -> Words {
        let (nanos, thread) = (self.nanos, self.thread);
        let plain = |code, small, rest: [u64; 6]| {
            let [a, b, c, d, e, f] = rest;
            [nanos, kind(code, 0, small, thread), a, b, c, d, e, f]
        };
        match self.what {
            What::Adapter(event) => match event {
                TraceEvent::PostSend {
                    qp,
                    wc_qpn,
                    number,
                    id,
                    op,
                    len,
                    signaled,
                } => plain(
                    POST_SEND,
                    [op_code(op), signaled.into()],
                    [pair(qp, wc_qpn), number, id, len.into(), 0, 0],
                ),
                TraceEvent::PostReceive {
                    qp,
                    srq,
                    wc_qpn,
                    id,
                    len,
                } => plain(
                    POST_RECEIVE,
                    [0; 2],
                    [pair(qp, wc_qpn), srq.into(), id, len.into(), 0, 0],
                ),
                TraceEvent::Segmented { qp, number, end } => {
                    plain(SEGMENTED, [0; 2], [qp.into(), number, end, 0, 0, 0])
                }
                TraceEvent::LastPacket {
                    qp,
                    number,
                    dest_qpn,
                    psn,
                } => plain(
                    LAST_PACKET,
                    [0; 2],
                    [qp.into(), number, pair(dest_qpn, psn), 0, 0, 0],
                ),
                TraceEvent::Ended {
                    qp,
                    number,
                    id,
                    op,
                    status,
                    len,
                    entry,
                } => plain(
                    ENDED,
                    [op_code(op), status as u8],
                    [pair(qp, entry.into()), number, id, len.into(), 0, 0],
                ),
                TraceEvent::Completion {
                    cq,
                    position,
                    wc_qpn,
                    id,
                    op,
                    status,
                    len,
                } => plain(
                    COMPLETION,
                    [op_code(op), status as u8],
                    [pair(cq, wc_qpn), position, id, len.into(), 0, 0],
                ),
                TraceEvent::Polled {
                    cq,
                    position,
                    wc_qpn,
                    id,
                    op,
                    status,
                } => plain(
                    POLLED,
                    [op_code(op), status as u8],
                    [pair(cq, wc_qpn), position, id, 0, 0, 0],
                ),
                TraceEvent::State {
                    qp,
                    wc_qpn,
                    from,
                    to,
                } => plain(
                    STATE,
                    [state_code(from), state_code(to)],
                    [pair(qp, wc_qpn), 0, 0, 0, 0, 0],
                ),
            },
            What::Frame(frame) => {
                let sent = if frame.sent { SENT } else { 0 };
                let (code, flags, a, b) = match frame.kind {
                    FrameKind::Fpdu {
                        qp,
                        connection,
                        position,
                        markers,
                    } => {
                        let flags = sent | if markers { MARKERS } else { 0 };
                        (FPDU, flags, pair(qp, connection), position)
                    }
                    FrameKind::Startup { connection } => (STARTUP, sent, connection.into(), 0),
                    FrameKind::Packet { len, peer_port } => {
                        (PACKET, sent, pair(len.into(), peer_port.into()), 0)
                    }
                };
                let mut words = [nanos, kind(code, flags, [0; 2], thread), a, b, 0, 0, 0, 0];
                let (chunks, _) = frame.head.as_chunks::<8>();
                for (word, bytes) in words.iter_mut().skip(4).zip(chunks) {
                    *word = u64::from_le_bytes(*bytes);
                }
                words
            }
            What::Connection {
                connection,
                qp,
                wc_qpn,
                local,
                peer,
            } => {
                let ports = u32::from(local.port()) | u32::from(peer.port()) << 16;
                let ([a, b], [c, d]) = (address_words(local.ip()), address_words(peer.ip()));
                plain(
                    CONNECTION,
                    [0; 2],
                    [pair(qp, wc_qpn), pair(ports, connection), a, b, c, d],
                )
            }
            What::Woken { since, place } => plain(WOKEN, [place as u8, 0], [since, 0, 0, 0, 0, 0]),
        }
    }

    /// Parses an event; `None` if no adapter writes such a one.
    pub fn parse(words: &Words) -> Option<Record> {
        let [nanos, head, a, b, c, d, e, f] = *words;
        let [code, flags, first, second] = low(head).to_le_bytes();
        let thread = high(head);
        let op = || OPS.get(usize::from(first)).copied();
        let status = || STATUSES.into_iter().find(|one| *one as u8 == second);
        let state = |code: u8| QpState::ALL.get(usize::from(code)).copied();
        let what = match code {
            POST_SEND => What::Adapter(TraceEvent::PostSend {
                qp: low(a),
                wc_qpn: high(a),
                number: b,
                id: c,
                op: op()?,
                len: u32::try_from(d).ok()?,
                signaled: second != 0,
            }),
            POST_RECEIVE => What::Adapter(TraceEvent::PostReceive {
                qp: low(a),
                wc_qpn: high(a),
                srq: u32::try_from(b).ok()?,
                id: c,
                len: u32::try_from(d).ok()?,
            }),
            SEGMENTED => What::Adapter(TraceEvent::Segmented {
                qp: u32::try_from(a).ok()?,
                number: b,
                end: c,
            }),
            LAST_PACKET => What::Adapter(TraceEvent::LastPacket {
                qp: u32::try_from(a).ok()?,
                number: b,
                dest_qpn: low(c),
                psn: high(c),
            }),
            ENDED => What::Adapter(TraceEvent::Ended {
                qp: low(a),
                number: b,
                id: c,
                op: op()?,
                status: status()?,
                len: u32::try_from(d).ok()?,
                entry: high(a) != 0,
            }),
            COMPLETION => What::Adapter(TraceEvent::Completion {
                cq: low(a),
                position: b,
                wc_qpn: high(a),
                id: c,
                op: op()?,
                status: status()?,
                len: u32::try_from(d).ok()?,
            }),
            POLLED => What::Adapter(TraceEvent::Polled {
                cq: low(a),
                position: b,
                wc_qpn: high(a),
                id: c,
                op: op()?,
                status: status()?,
            }),
            STATE => What::Adapter(TraceEvent::State {
                qp: low(a),
                wc_qpn: high(a),
                from: state(first)?,
                to: state(second)?,
            }),
            FPDU | STARTUP | PACKET => {
                let mut head = [0; HEAD];
                let (chunks, _) = head.as_chunks_mut::<8>();
                for (bytes, word) in chunks.iter_mut().zip([c, d, e, f]) {
                    *bytes = word.to_le_bytes();
                }
                What::Frame(Frame {
                    sent: flags & SENT != 0,
                    kind: match code {
                        FPDU => FrameKind::Fpdu {
                            qp: low(a),
                            connection: high(a),
                            position: b,
                            markers: flags & MARKERS != 0,
                        },
                        STARTUP => FrameKind::Startup { connection: low(a) },
                        _ => FrameKind::Packet {
                            len: u16::try_from(low(a)).ok()?,
                            peer_port: u16::try_from(high(a)).ok()?,
                        },
                    },
                    head,
                })
            }
            CONNECTION => What::Connection {
                connection: high(b),
                qp: low(a),
                wc_qpn: high(a),
                local: SocketAddr::new(address([c, d]), b as u16),
                peer: SocketAddr::new(address([e, f]), (b >> 16) as u16),
            },
            WOKEN => What::Woken {
                since: a,
                place: match first {
                    0 => SleepPlace::Shard,
                    1 => SleepPlace::Channel,
                    2 => SleepPlace::ChannelAndConnections,
                    _ => return None,
                },
            },
            _ => return None,
        };
        Some(Record {
            nanos,
            thread,
            what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let frame = |kind| {
            What::Frame(Frame {
                sent: true,
                kind,
                head: core::array::from_fn(|at| at as u8),
            })
        };
        let all = [
            What::Adapter(TraceEvent::PostSend {
                qp: 2,
                wc_qpn: u32::MAX,
                number: 1 << 40,
                id: u64::MAX,
                op: WcOp::Write,
                len: u32::MAX,
                signaled: true,
            }),
            What::Adapter(TraceEvent::PostReceive {
                qp: 0,
                srq: 3,
                wc_qpn: 0,
                id: 4,
                len: 5,
            }),
            What::Adapter(TraceEvent::Segmented {
                qp: 2,
                number: 3,
                end: 1 << 50,
            }),
            What::Adapter(TraceEvent::LastPacket {
                qp: 2,
                number: 3,
                dest_qpn: 4,
                psn: 5,
            }),
            What::Adapter(TraceEvent::Ended {
                qp: 2,
                number: 3,
                id: 4,
                op: WcOp::Register,
                status: Status::GeneralErr,
                len: 6,
                entry: true,
            }),
            What::Adapter(TraceEvent::Completion {
                cq: 2,
                position: 3,
                wc_qpn: 4,
                id: 5,
                op: WcOp::ReceiveWriteImm,
                status: Status::WrFlushErr,
                len: 6,
            }),
            What::Adapter(TraceEvent::Polled {
                cq: 2,
                position: 3,
                wc_qpn: 4,
                id: 5,
                op: WcOp::Receive,
                status: Status::Success,
            }),
            What::Adapter(TraceEvent::State {
                qp: 2,
                wc_qpn: 3,
                from: QpState::Rtr,
                to: QpState::Err,
            }),
            frame(FrameKind::Fpdu {
                qp: 2,
                connection: 3,
                position: u64::MAX,
                markers: true,
            }),
            frame(FrameKind::Startup { connection: 7 }),
            frame(FrameKind::Packet {
                len: u16::MAX,
                peer_port: 4791,
            }),
            What::Connection {
                connection: 9,
                qp: 2,
                wc_qpn: 3,
                local: "192.0.2.1:1".parse().unwrap(),
                peer: "[2001:db8::1]:65535".parse().unwrap(),
            },
            What::Woken {
                since: 5,
                place: SleepPlace::ChannelAndConnections,
            },
        ];
        let record = |what| Record {
            nanos: 1 << 60,
            thread: 4711,
            what,
        };
        all.map(record).into()
    }

    #[test]
    fn event_survives_its_words() {
        for record in records() {
            assert_eq!(Record::parse(&record.emit()), Some(record));
        }
    }

    #[test]
    fn impossible_words_are_refused() {
        for record in records() {
            let good = record.emit();
            let mut kind = good;
            kind[1] = kind[1] & !0xff | 99;
            assert_eq!(Record::parse(&kind), None);
        }
        assert_eq!(Record::parse(&[0; LINE]), None);
        assert_eq!(Record::parse(&[u64::MAX; LINE]), None);
    }
}
