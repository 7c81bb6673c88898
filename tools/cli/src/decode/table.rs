//! The TCP connections of a capture, by their two ends. At most [`MAX_FLOWS`] are kept: when they are reached, connections of other
//! protocols are dropped first, then segments of new connections are ignored. Of streams that have ended at most [`MAX_SUMMARIES`]
//! summaries are kept, and the others are counted, so that a capture without an end does not need memory without an end.

use core::fmt;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::Options;
use super::flow::Flow;
use super::record::{Out, Record};
use super::roce::{RoceCounters, RoceTable};
use super::segment::{RoceDatagram, Segment};
use super::summary::Summary;

/// Most connections at the same time.
pub const MAX_FLOWS: usize = 1 << 16;

/// Most summaries.
pub const MAX_SUMMARIES: usize = 1 << 16;

/// Counters of a capture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaptureCounters {
    /// Packets of any kind.
    pub packets: u64,
    /// MPA streams.
    pub streams: u64,
    /// iSCSI connections.
    pub exchanges: u64,
    /// Other TCP connections.
    pub other_flows: u64,
    /// Segments of TCP connections that were ignored because there were too many.
    pub refused_flows: u64,
    /// MPA streams and iSCSI connections without a summary, because there were too many.
    pub unsummarized: u64,
    /// IP fragments of TCP, which are not reassembled.
    pub fragments: u64,
    /// RoCEv2.
    pub roce: RoceCounters,
    /// A link type that cannot be parsed.
    pub unknown_link: Option<u32>,
}

/// The connections.
#[derive(Debug)]
pub struct Table {
    options: Options,
    flows: HashMap<(SocketAddr, SocketAddr), Flow>,
    roce: RoceTable,
    done: Vec<Summary>,
    max_summaries: usize,
    streams: u64,
    exchanges: u64,
    /// The number of the next stream.
    number: usize,
    first: Option<Duration>,
    last: Duration,
    others: u64,
    refused: u64,
}

impl Table {
    /// An empty table.
    pub fn new(options: Options) -> Table {
        Table {
            options,
            flows: HashMap::new(),
            roce: RoceTable::default(),
            done: Vec::new(),
            max_summaries: MAX_SUMMARIES,
            streams: 0,
            exchanges: 0,
            number: 0,
            first: None,
            last: Duration::ZERO,
            others: 0,
            refused: 0,
        }
    }

    /// A packet's time since the first packet.
    pub fn since_first(&mut self, time: Duration) -> Duration {
        self.last = time.saturating_sub(*self.first.get_or_insert(time));
        self.last
    }

    /// Passes a segment to its connection.
    pub fn handle(&mut self, segment: &Segment<'_>, time: Duration, records: &mut Vec<Record>) {
        let ports = [segment.from.port(), segment.to.port()];
        if self.options.port.is_some_and(|only| !ports.contains(&only)) {
            return;
        }
        let out = &mut Out { time, records };
        let key = key(segment);
        let replaced = self
            .flows
            .get(&key)
            .is_some_and(|f| f.is_replaced_by(segment));
        if replaced && let Some(old) = self.flows.remove(&key) {
            self.retire(old, out);
        }
        if !self.flows.contains_key(&key) && !self.has_room() {
            self.refused += 1;
            return;
        }
        let flow = self.flows.entry(key).or_insert_with(|| Flow::new(segment));
        flow.handle(segment, &mut self.number, self.options, out);
    }

    /// Passes a RoCEv2 datagram to its connection. They have no port of their own, so `--port` leaves all of them out.
    pub fn handle_roce(
        &mut self,
        datagram: &RoceDatagram<'_>,
        time: Duration,
        records: &mut Vec<Record>,
    ) {
        if self.options.port.is_none() {
            let out = &mut Out { time, records };
            self.roce
                .handle(datagram, &mut self.number, self.options, out);
        }
    }

    /// Called at the end of the capture; returns the summaries of the streams, in order.
    pub fn finish(
        mut self,
        tally: &mut CaptureCounters,
        records: &mut Vec<Record>,
    ) -> Vec<Summary> {
        let out = &mut Out {
            time: self.last,
            records,
        };
        for flow in core::mem::take(&mut self.flows).into_values() {
            self.retire(flow, out);
        }
        // The order of a hash table is arbitrary.
        out.records.sort_by_key(|r| r.stream);
        self.done.sort_by_key(|s| s.stream);
        tally.exchanges = self.exchanges;
        tally.streams = self.streams;
        tally.unsummarized = self.exchanges + self.streams - self.done.len() as u64;
        tally.other_flows = self.others;
        tally.refused_flows = self.refused;
        tally.roce = self.roce.counters;
        self.done
    }

    fn retire(&mut self, flow: Flow, out: &mut Out<'_>) {
        match flow.finish(out) {
            Some(talk) => {
                let summary = talk.summary();
                match summary.iscsi {
                    Some(_) => self.exchanges += 1,
                    None => self.streams += 1,
                }
                if self.done.len() < self.max_summaries {
                    self.done.push(summary);
                }
            }
            None => self.others += 1,
        }
    }

    fn has_room(&mut self) -> bool {
        if self.flows.len() >= MAX_FLOWS {
            let before = self.flows.len();
            self.flows.retain(|_, flow| !flow.is_foreign());
            self.others += (before - self.flows.len()) as u64;
        }
        self.flows.len() < MAX_FLOWS
    }
}

/// Both directions of a connection have the same key.
fn key(segment: &Segment<'_>) -> (SocketAddr, SocketAddr) {
    let (a, b) = (segment.from, segment.to);
    if a <= b { (a, b) } else { (b, a) }
}

/// A number and its noun.
fn count_with_noun(n: impl TryInto<u64>, noun: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

impl fmt::Display for CaptureCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}",
            count_with_noun(self.packets, "packet"),
            count_with_noun(self.streams, "MPA stream"),
        )?;
        if self.exchanges > 0 {
            write!(
                f,
                ", {}",
                count_with_noun(self.exchanges, "iSCSI connection")
            )?;
        }
        write!(
            f,
            ", {}",
            count_with_noun(self.other_flows, "other TCP connection")
        )?;
        if self.roce.packets > 0 {
            let roce = &self.roce;
            write!(
                f,
                ", {} in {}",
                count_with_noun(roce.packets, "RoCEv2 packet"),
                count_with_noun(roce.flows, "flow")
            )?;
            for (count, what) in [
                (roce.repeated, "repeated"),
                (roce.out_of_order, "out of order"),
                (roce.gaps, "behind missing packets"),
                (roce.naks, "refused by NAK"),
                (roce.bad_icrc, "with a wrong ICRC"),
                (roce.unreadable, "unreadable"),
            ] {
                if count > 0 {
                    write!(f, ", {count} {what}")?;
                }
            }
        }
        if self.refused_flows > 0 {
            write!(
                f,
                ", {} segments of too many connections",
                self.refused_flows
            )?;
        }
        if self.unsummarized > 0 {
            write!(f, ", {} without a summary", self.unsummarized)?;
        }
        if self.fragments > 0 {
            write!(f, ", {} IP fragments not read", self.fragments)?;
        }
        if let Some(link) = self.unknown_link {
            write!(f, ", packets of unknown link type {link}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
