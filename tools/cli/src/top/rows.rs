//! What is shown: processes and their queue pairs, with rates, as numbers and as JSON.
//! The rates of a process are the sums of those of its queue pairs.

use serde_json::{Value, json};

use crate::objects::Object;

/// Per second, but for `stalled`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Messages sent.
    pub messages_out: f64,
    /// Messages received.
    pub messages_in: f64,
    /// Bytes sent.
    pub bytes_out: f64,
    /// Bytes received.
    pub bytes_in: f64,
    /// Messages that found no receive, at either end.
    pub rnr: f64,
    /// Segments or packets sent again.
    pub retries: f64,
    /// The part of the time in which the peer's TCP window delayed sending.
    pub stalled: f64,
}

impl Rates {
    fn add(&mut self, other: &Rates) {
        self.messages_out += other.messages_out;
        self.messages_in += other.messages_in;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.rnr += other.rnr;
        self.retries += other.retries;
        self.stalled = self.stalled.max(other.stalled);
    }

    fn json(&self) -> Value {
        json!({
            "messages_out": self.messages_out,
            "messages_in": self.messages_in,
            "bytes_out": self.bytes_out,
            "bytes_in": self.bytes_in,
            "rnr": self.rnr,
            "retries": self.retries,
            "stalled": self.stalled,
        })
    }
}

/// A queue pair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pair {
    /// The adapter's number in its process.
    pub adapter: u32,
    /// Its number.
    pub number: u64,
    /// Its number in completions, which its peer knows.
    pub wc_qpn: u64,
    /// Its type, or `-`.
    pub kind: String,
    /// Its state.
    pub state: String,
    /// What carries its messages: `tcp`, `roce`, `shared-memory`, or `-`.
    pub path: String,
    /// Its own address, or `-`.
    pub local: String,
    /// The peer's address, or `-`.
    pub peer: String,
    /// The process at the other end, where it is known: over shared memory.
    pub peer_pid: Option<u64>,
    /// Over RoCEv2 the numbers of both ends in packets.
    pub numbers: Option<(u64, u64)>,
    /// Send requests outstanding.
    pub outstanding: u64,
    /// Receives posted.
    pub receives: u64,
    /// Its rates.
    pub rates: Rates,
}

impl Pair {
    pub(super) fn new(qp: &Object, number: u64, rates: Rates) -> Pair {
        let text = |key| qp.get(key).unwrap_or("-").to_owned();
        let path = match qp.get("type") {
            Some("Ud") => "udp".to_owned(),
            Some("Ulp") => qp.get("protocol").unwrap_or("-").to_owned(),
            _ => text("path"),
        };
        Pair {
            adapter: qp.adapter,
            number,
            wc_qpn: qp.number("wc_qpn").unwrap_or(number),
            kind: text("type"),
            state: text("state"),
            path,
            local: text("local"),
            peer: text("peer"),
            peer_pid: qp.number("peer_pid"),
            numbers: qp.number("qpn").zip(qp.number("peer_qpn")),
            outstanding: qp.number("sends").unwrap_or(0),
            receives: qp.number("receives").unwrap_or(0),
            rates,
        }
    }

    /// As one object.
    pub fn json(&self) -> Value {
        let value = |text: &str| {
            if text == "-" {
                Value::Null
            } else {
                json!(text)
            }
        };
        json!({
            "adapter": self.adapter,
            "number": self.number,
            "wc_qpn": self.wc_qpn,
            "type": value(&self.kind),
            "state": self.state,
            "path": value(&self.path),
            "local": value(&self.local),
            "peer": value(&self.peer),
            "peer_pid": self.peer_pid,
            "outstanding": self.outstanding,
            "receives": self.receives,
            "rates": self.rates.json(),
        })
    }
}

/// A process.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// It does not answer.
    pub is_silent: bool,
    /// Times per second that one of its threads was woken.
    pub wakeups: f64,
    /// Its queue pairs.
    pub pairs: Vec<Pair>,
}

impl Process {
    /// The sums of its queue pairs.
    pub fn rates(&self) -> Rates {
        let mut sum = Rates::default();
        for pair in &self.pairs {
            sum.add(&pair.rates);
        }
        sum
    }

    /// Send requests outstanding.
    pub fn outstanding(&self) -> u64 {
        let all = self.pairs.iter().map(|pair| pair.outstanding);
        all.fold(0, u64::saturating_add)
    }

    /// As one object, its queue pairs in it.
    pub fn json(&self) -> Value {
        self.json_with(&self.pairs.iter().map(Pair::json).collect::<Vec<_>>())
    }

    /// The same with these objects for its queue pairs.
    pub fn json_with(&self, pairs: &[Value]) -> Value {
        json!({
            "pid": self.pid,
            "program": self.program,
            "answers": !self.is_silent,
            "wakeups": self.wakeups,
            "outstanding": self.outstanding(),
            "rates": self.rates().json(),
            "queue_pairs": pairs,
        })
    }
}
