//! One TCP connection and segments near its windows, with calls of a consumer, reports of routers and timeouts between them.
//! It must not panic or send without end; every byte is new once, what is in order has arrived, nothing is sent that was not queued, and
//! a deadline that has passed does not stay.

use core::time::Duration;

use verbena_stream::Time;
use verbena_tcpip::tcp::{
    Connection, Framing, PathReport, Received, Secrets, Segment, TcpConfig, TcpFlags, TcpOptions,
    Transmit,
};

use crate::source::{Source, bit};

/// Bytes of the stream that are tracked.
const TRACKED: usize = 1 << 20;

struct World {
    connection: Connection,
    now: Time,
    /// The sequence number of the peer's first byte, and how far it is acknowledged.
    peer: u32,
    expected: u32,
    /// Where the connection sends.
    next: u32,
    seen: Vec<bool>,
    queued: u64,
}

/// Runs one input: a byte of settings, two initial sequence numbers, and steps of a byte of switches and its arguments.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let settings = source.byte();
    let (ours, theirs) = (source.u32(), source.u32());
    let config = TcpConfig {
        receive_window: [1, 500, 70_000, 1 << 20][usize::from(settings & 3)],
        framing: if bit(settings, 2) {
            Framing::Messages
        } else {
            Framing::Bytes
        },
        sack: bit(settings, 3),
        timestamps: bit(settings, 4),
        is_v6: bit(settings, 5),
        ..TcpConfig::default()
    };
    let secrets = Secrets {
        initial: ours,
        timestamp_offset: 0,
    };
    let now = Time::from_nanos(1_000_000_000_000);
    let syn = Segment {
        source_port: 2,
        destination_port: 1,
        seq: theirs,
        flags: TcpFlags {
            syn: true,
            ..TcpFlags::default()
        },
        window: 20_000,
        options: TcpOptions {
            mss: Some(u16::from(settings) * 16),
            window_scale: bit(settings, 6).then_some(settings & 15),
            sack_permitted: bit(settings, 3),
            timestamps: bit(settings, 4).then_some((1, 0)),
            ..TcpOptions::default()
        },
        ..Segment::default()
    };
    let mut connection = if bit(settings, 7) {
        Connection::accept(config, &syn, secrets, now)
    } else {
        Connection::connect(config, (1, 2), secrets, now)
    };
    if !bit(settings, 7) {
        while connection.poll_transmit(now).is_some() {}
        let mut answer = syn;
        answer.ack = Some(ours.wrapping_add(1));
        connection.handle_segment(&answer, 0, now);
    }
    let mut world = World {
        connection,
        now,
        peer: theirs.wrapping_add(1),
        expected: theirs.wrapping_add(1),
        next: ours.wrapping_add(1),
        seen: Vec::new(),
        queued: 0,
    };
    world.drain();
    while !source.is_empty() {
        world.step(&mut source);
        world.drain();
    }
}

impl World {
    fn step(&mut self, source: &mut Source<'_>) {
        match source.byte() % 8 {
            0 => {
                let len = u64::from(source.u16());
                if self.connection.queue(len).is_ok() {
                    self.queued += len;
                }
            }
            1 => self.connection.consume(u64::from(source.u16())),
            2 => self.time_out(source),
            3 => self.report(source),
            4 => match source.byte() {
                0 => self.connection.close(self.now),
                1 => self.connection.release(self.now),
                2 => self.connection.abort(),
                _ => {}
            },
            _ => self.segment(source),
        }
    }

    fn time_out(&mut self, source: &mut Source<'_>) {
        let wait = Duration::from_millis(u64::from(source.u16()));
        self.now = self.now + wait;
        if let Some(deadline) = self.connection.deadline() {
            self.now = self.now.max(deadline);
            self.connection.handle_timeout(self.now);
            let later = self.connection.deadline();
            assert!(later.is_none_or(|at| at > self.now), "the deadline stays");
        }
    }

    fn report(&mut self, source: &mut Source<'_>) {
        let report = if bit(source.byte(), 0) {
            PathReport::Unreachable
        } else {
            PathReport::TooBig {
                mtu: usize::from(source.u16()),
            }
        };
        let quoted = self.next.wrapping_sub(u32::from(source.u16()));
        self.connection.handle_report(report, quoted, self.now);
    }

    fn segment(&mut self, source: &mut Source<'_>) {
        let switches = source.byte();
        // Near, or anywhere.
        let mut number = |base: u32| {
            if bit(switches, 0) && bit(switches, 1) {
                source.u32()
            } else {
                base.wrapping_add(u32::from(source.u16()))
                    .wrapping_sub(1 << 12)
            }
        };
        let (seq, ack) = (number(self.expected), number(self.next));
        let exact = bit(switches, 2);
        let mut segment = Segment {
            source_port: 2,
            destination_port: 1,
            seq: if exact { self.expected } else { seq },
            ack: (!bit(switches, 3)).then_some(if exact { self.next } else { ack }),
            window: source.u16(),
            ..Segment::default()
        };
        let flags = source.byte();
        segment.flags.syn = flags & 0x70 == 0x10;
        segment.flags.rst = flags & 0x70 == 0x20;
        segment.flags.fin = flags & 0x30 == 0x30;
        if !bit(switches, 4) {
            let stamp = (self.now.nanos() / 1_000_000) as u32;
            segment.options.timestamps = Some((stamp, u32::from(source.byte())));
        }
        for _ in 0..(switches >> 6) {
            let from = self.next.wrapping_sub(u32::from(source.u16()));
            let to = from.wrapping_add(u32::from(source.u16()));
            segment.options.sacks.push((from, to));
        }
        let len = usize::from(source.u16() & 0x3fff);
        let before = self.connection.in_order();
        let received = self.connection.handle_segment(&segment, len, self.now);
        self.check(&segment, len, before, &received);
    }

    fn check(&mut self, segment: &Segment, len: usize, before: u64, received: &Received) {
        assert!(received.in_order >= before);
        for run in &received.runs {
            assert!(run.payload.start < run.payload.end && run.payload.end <= len);
            let at = self.peer.wrapping_add(run.offset as u32);
            let in_segment = segment.seq.wrapping_add(run.payload.start as u32);
            let is_shifted = segment.flags.syn && at == in_segment.wrapping_add(1);
            assert!(at == in_segment || is_shifted, "the place of a run");
            let from = usize::try_from(run.offset).unwrap_or(usize::MAX);
            let until = from.saturating_add(run.payload.len());
            if until > TRACKED {
                continue;
            }
            if self.seen.len() < until {
                self.seen.resize(until, false);
            }
            for seen in &mut self.seen[from..until] {
                assert!(!*seen, "a byte is new again");
                *seen = true;
            }
        }
        let in_order = usize::try_from(received.in_order).unwrap_or(usize::MAX);
        if in_order <= TRACKED {
            let whole = self.seen.get(..in_order).unwrap_or_default();
            assert!(whole.len() == in_order && whole.iter().all(|seen| *seen));
        }
    }

    fn drain(&mut self) {
        let mut count = 0;
        while let Some(Transmit { segment, payload }) = self.connection.poll_transmit(self.now) {
            count += 1;
            assert!(count < 100_000, "it sends without end");
            assert!(payload.end <= self.queued || payload.is_empty());
            let bytes = segment.emit();
            let (parsed, rest) = Segment::parse(&bytes).expect("a segment");
            assert!(rest.is_empty());
            assert_eq!(parsed.seq, segment.seq);
            if segment.flags.rst {
                continue;
            }
            if let Some(ack) = segment.ack {
                self.expected = ack;
            }
            let len = (payload.end - payload.start) as u32;
            let flags = u32::from(segment.flags.syn) + u32::from(segment.flags.fin);
            let end = segment.seq.wrapping_add(len).wrapping_add(flags);
            if (end.wrapping_sub(self.next) as i32) > 0 {
                self.next = end;
            }
        }
        assert!(self.connection.released() <= self.queued);
    }
}
