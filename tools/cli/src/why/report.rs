//! One finding as text or JSON: a heading, and what a reader needs to act: cause, fault, request, peer, numbers, remedy.
//! JSON has every attribute, text those that matter in the case.

use std::fmt::{self, Write};
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::advice::{self, Advice};
use super::{Verdict, is_stopped};
use crate::events::program;
use crate::objects::Object;

/// What is known about one queue pair that failed or waits.
#[derive(Debug, Clone)]
pub struct Finding {
    verdict: Verdict,
    pid: u32,
    program: String,
    object: Object,
    /// Remarks on its completion queues.
    queues: Vec<String>,
}

impl Finding {
    pub(super) fn new(
        verdict: Verdict,
        (pid, program): (u32, &str),
        object: Object,
        queues: Vec<String>,
    ) -> Finding {
        Finding {
            verdict,
            pid,
            program: program.to_owned(),
            object,
            queues,
        }
    }

    /// A process that does not answer.
    pub(super) fn silent(pid: u32) -> Finding {
        let object = Object {
            adapter: 0,
            kind: "process".to_owned(),
            fields: Vec::new(),
        };
        let program = program(pid).unwrap_or_else(|| "?".to_owned());
        Finding::new(Verdict::Silent, (pid, &program), object, Vec::new())
    }

    /// What happened.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The value of an attribute.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.object.get(key)
    }

    /// It is about the queue pair with this number, or about a whole process.
    pub(super) fn is_for(&self, qp: u64) -> bool {
        let numbers = ["number", "wc_qpn"].map(|key| self.object.number(key));
        numbers == [None, None] || numbers.contains(&Some(qp))
    }

    /// The record of an ended queue pair is about the same failure.
    pub(super) fn is_same(&self, pid: u32, other: &Object) -> bool {
        let same = |key| self.object.get(key) == other.get(key);
        self.pid == pid && self.verdict == Verdict::Failed && same("number") && same("cause")
    }

    fn advice(&self) -> Advice {
        let said = |cause: String, fault: &str, remedy: &str| Advice {
            cause: Some(cause),
            fault: fault.to_owned(),
            remedy: remedy.to_owned(),
        };
        match self.verdict {
            Verdict::Failed => advice::of_failure(&self.object),
            Verdict::Waits => advice::of_wait(&self.object, self.stopped_peer()),
            Verdict::Killed => said(
                "the process ended without closing the connection: it was killed or crashed"
                    .to_owned(),
                "this program, or what killed it",
                "look for the signal: the exit status of the process, the kernel's log (out of memory), a core file",
            ),
            Verdict::AdapterFailed => said(
                self.get("failure").unwrap_or("").replace('-', " "),
                "this adapter, or a program that closed a descriptor that it did not open",
                "restart the program, and report the message above",
            ),
            Verdict::Silent if is_stopped(self.pid) => said(
                "the process is stopped, so that its adapter does not run either".to_owned(),
                "a signal (SIGSTOP, SIGTSTP) or a debugger holds it",
                &format!("kill -CONT {}", self.pid),
            ),
            Verdict::Silent => said(
                "the process does not answer within three seconds".to_owned(),
                "not known",
                "see what its threads do (`top -H -p PID`, `gdb -p PID`)",
            ),
        }
    }

    /// The process at the other end, if it is known and stopped.
    fn stopped_peer(&self) -> Option<u64> {
        let pid = self.object.number("peer_pid")?;
        is_stopped(u32::try_from(pid).ok()?).then_some(pid)
    }

    /// Which queue pair, and what happened: `… failed 12 s ago`.
    pub fn heading(&self) -> String {
        let mut text = format!("process {} ({})", self.pid, self.program);
        if let Some(number) = self.get("number") {
            let _ = write!(text, ", queue pair {number}");
            let known_as = self.get("wc_qpn").filter(|qpn| *qpn != number);
            if let Some(qpn) = known_as {
                let _ = write!(text, " (number {qpn} in its completions)");
            }
        }
        let what = match self.verdict {
            Verdict::Failed => "failed",
            Verdict::Waits => "waits",
            Verdict::Killed => "ended with its process, connected",
            Verdict::AdapterFailed => "its adapter failed",
            Verdict::Silent => "does not answer",
        };
        let _ = write!(text, ": {what}");
        if let Some(age) = self.age() {
            let _ = write!(text, " {} ago", seconds(age));
        }
        text
    }

    /// Milliseconds since it happened.
    fn age(&self) -> Option<u64> {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        let now = u64::try_from(now.as_millis()).ok()?;
        Some(now.saturating_sub(self.object.number("at_ms")?))
    }

    /// The request that failed or waits.
    fn request(&self) -> Option<String> {
        let get = |key| self.get(key).unwrap_or("?");
        self.get("wr_id")?;
        let mut text = format!(
            "{} with wr_id {}, number {} of the connection, {} bytes",
            get("op"),
            get("wr_id"),
            get("request"),
            get("length"),
        );
        if let (Some(rkey), Some(address)) = (self.get("rkey"), self.get("address")) {
            let _ = write!(text, ", to rkey {rkey}, address {address}");
        }
        if let Some(status) = self.get("status") {
            let _ = write!(text, ": completed with {status}");
        }
        Some(text)
    }

    fn peer(&self) -> Option<String> {
        let mut text = self.get("peer")?.to_owned();
        if let Some(pid) = self.object.number("peer_pid") {
            let name = u32::try_from(pid).ok().and_then(program);
            let _ = write!(
                text,
                ", process {pid} ({})",
                name.as_deref().unwrap_or("ended")
            );
        }
        let path = match self
            .get("path")
            .or(self.get("wire").filter(|wire| *wire == "roce"))
        {
            Some("shared-memory") => ", on this host over shared memory",
            Some("tcp") => ", over TCP",
            Some("roce") => ", over RoCEv2",
            _ => "",
        };
        Some(text + path)
    }

    fn numbers(&self) -> String {
        let mut parts = Vec::new();
        if let Some(needs) = self.get("needs") {
            let get = |key| self.get(key).unwrap_or("?");
            parts.push(format!(
                "{} bytes at {} under rkey {}, which needs {needs}",
                get("length"),
                get("address"),
                get("rkey")
            ));
            parts.push(match self.get("region_start") {
                Some(start) => format!(
                    "the region has {} bytes from {start} in protection domain {}, and grants {}",
                    get("region_length"),
                    get("region_pd"),
                    get("region_rights"),
                ),
                None => "no valid region or window has this rkey".to_owned(),
            });
        }
        let plain = [
            ("sends", "send requests outstanding"),
            ("begun", "of them begun"),
            ("flushed", "send requests not executed"),
            ("receives", "receives posted"),
            ("unsent", "bytes not sent yet"),
            ("untaken", "bytes that the peer has not taken"),
            ("repeated", "packets repeated"),
            ("rnr_received", "times receiver not ready at the peer"),
            ("rnr_sent", "times receiver not ready here"),
            ("rnr_retries_left", "RNR retries left"),
        ];
        for (key, what) in plain {
            // Receives matter, and none most of all, where a message waits for one.
            let for_receive = self.get("for") == Some("receive");
            let is_told = match key {
                "receives" => for_receive,
                "rnr_retries_left" => true,
                _ => self.object.number(key) > Some(0),
            };
            let told = self.object.number(key).filter(|_| is_told);
            parts.extend(told.map(|n| format!("{n} {what}")));
        }
        let times = [
            ("idle_ms", "no progress for"),
            ("heard_ms", "last heard of its machine before"),
            ("rnr_ms", "receiver not ready for"),
            ("rnr_left_ms", "the request fails or is repeated in"),
            ("unanswered_ms", "packets unacknowledged for"),
            ("grace_left_ms", "grace period ends in"),
            ("peer_timeout_ms", "peer_timeout"),
            ("ack_timeout_ms", "timeout of a retry"),
        ];
        for (key, what) in times {
            let told = self.object.number(key).filter(|_| self.tells(key));
            if let Some(time) = told {
                parts.push(format!("{what} {}", seconds(time)));
            }
        }
        for key in ["retry_count", "rnr_retry"] {
            let told = self.get(key).filter(|_| self.tells(key));
            parts.extend(told.map(|value| format!("{key} {value}")));
        }
        parts.extend(self.queues.iter().cloned());
        parts.join("; ")
    }

    /// A limit says something about this case.
    fn tells(&self, key: &str) -> bool {
        let about = self.get("for").or(self.get("kind"));
        let is_silence = matches!(about, Some("answer" | "room" | "peer-silent"));
        let is_roce = self.get("path") == Some("roce");
        match key {
            "peer_timeout_ms" => is_silence && !is_roce,
            // Of shared memory the TCP connection is idle.
            "heard_ms" => self.get("path") == Some("tcp"),
            "ack_timeout_ms" | "retry_count" => is_silence && is_roce,
            "rnr_retry" => matches!(about, Some("rnr" | "rnr-exceeded")),
            _ => true,
        }
    }

    /// The finding with everything that is known, as one object.
    pub fn json(&self) -> Value {
        let advice = self.advice();
        let mut object = Map::new();
        let verdict = match self.verdict {
            Verdict::Failed => "failed",
            Verdict::Waits => "waits",
            Verdict::Killed => "killed",
            Verdict::AdapterFailed => "adapter-failed",
            Verdict::Silent => "silent",
        };
        object.insert("pid".into(), json!(self.pid));
        object.insert("program".into(), json!(self.program));
        object.insert("verdict".into(), json!(verdict));
        object.insert("fault".into(), json!(advice.fault));
        object.insert("advice".into(), json!(advice.remedy));
        if let Some(cause) = advice.cause {
            object.insert("cause".into(), json!(cause));
        }
        object.insert("queues".into(), json!(self.queues));
        if let Value::Object(rest) = self.object.json() {
            for (key, value) in rest {
                if key != "kind" || self.verdict == Verdict::Failed {
                    object.entry(key).or_insert(value);
                }
            }
        }
        if let Some(kind) = self.get("kind") {
            object.insert("kind".into(), json!(kind));
        }
        Value::Object(object)
    }
}

impl Finding {
    /// What is said below the heading: a label and a text each. None is empty.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let advice = self.advice();
        let known = self.get("cause").map(str::to_owned);
        let cause = advice.cause.or(known);
        // The request of a refused access is the peer's, and its numbers follow.
        let is_own = self.get("needs").is_none();
        let request = self.request().filter(|_| is_own);
        let mut rows = vec![
            ("cause", cause.unwrap_or_else(|| "not known".to_owned())),
            ("fault", advice.fault),
            ("request", request.unwrap_or_default()),
            ("peer", self.peer().unwrap_or_default()),
            ("numbers", self.numbers()),
            ("do", advice.remedy),
        ];
        rows.retain(|(_, text)| !text.is_empty());
        rows
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading())?;
        for (label, text) in self.rows() {
            writeln!(f, "  {label:<8} {text}")?;
        }
        Ok(())
    }
}

/// Milliseconds in a unit that is easy to read.
fn seconds(millis: u64) -> String {
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..120_000 => format!("{:.1} s", millis as f64 / 1000.0),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    }
}
