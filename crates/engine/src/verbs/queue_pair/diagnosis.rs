//! Why a queue pair failed, or what it waits for, as one line of text for `verbena why` (N1): `key=value` with spaces between; the value of `cause`, the
//! last one, may contain spaces. Lines are made when another process asks, or when the queue pair fails.

use core::fmt::{Display, Write};
use core::time::Duration;

use verbena_nic::qp::{Failure, FailureKind, RequestInfo};

use super::link::LinkNumbers;
use super::query::QueuePairInfo;
use crate::core::Core;
use crate::notify::failure_log;
use crate::stream_path::StreamPath;
use crate::sys;

/// A line under construction.
struct Line(String);

impl Line {
    fn new(kind: &str, number: u32, info: &QueuePairInfo) -> Line {
        let mut line = Line(kind.to_owned());
        line.field("number", number);
        line.field("wc_qpn", info.wc_qpn);
        line.field("state", format_args!("{:?}", info.qp.view.state));
        line.field(
            "personality",
            format_args!("{:?}", info.qp.init_attr.personality),
        );
        line.option("peer", info.peer_addr);
        line.option("local", info.local_addr);
        line.option("path", info.path.as_ref().map(StreamPath::name));
        line.option(
            "peer_pid",
            info.path.as_ref().and_then(StreamPath::peer_process),
        );
        line
    }

    fn field(&mut self, key: &str, value: impl Display) {
        // A String takes everything.
        let _ = write!(self.0, " {key}={value}");
    }

    fn option(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(key, value);
        }
    }

    fn millis(&mut self, key: &str, time: Option<Duration>) {
        self.option(key, time.map(|time| time.as_millis()));
    }

    fn request(&mut self, request: &RequestInfo) {
        self.field("wr_id", request.id);
        self.field("op", format_args!("{:?}", request.op));
        self.field("request", request.number);
        self.field("length", request.len);
        if let Some((stag, to)) = request.remote {
            self.field("rkey", format_args!("{:#x}", stag.get()));
            self.field("address", format_args!("{:#x}", to.get()));
        }
    }
}

impl QueuePairInfo {
    /// Why it failed, as it was described then if that was recorded.
    pub(super) fn recorded_failure(&self, core: &Core, number: u32) -> Option<String> {
        let failure = self.qp.view.failure.as_ref()?;
        let is_failure = failure.kind != FailureKind::Requested && failure.at.is_some();
        let recorded = || failure_log::line_of(core, number);
        is_failure.then(|| recorded().unwrap_or_else(|| self.failure_line(number, failure)))
    }

    /// Why it failed, with the numbers.
    pub(super) fn failure_line(&self, number: u32, failure: &Failure) -> String {
        let mut line = Line::new("failure", number, self);
        let (view, now) = (&self.qp.view, sys::now());
        line.field("kind", failure.kind.name());
        line.field("blame", failure.kind.blame().name());
        if let Some(at) = failure.at {
            line.field(
                "at_ms",
                failure_log::unix_ms().saturating_sub(now.since(at).as_millis()),
            );
        }
        line.field("flushed", failure.flushed);
        if let Some((request, status)) = &failure.request {
            line.field("status", format_args!("{status:?}"));
            line.request(request);
        }
        if let Some(access) = &failure.access {
            line.field("rkey", format_args!("{:#x}", access.stag.get()));
            line.field("address", format_args!("{:#x}", access.at));
            line.field("length", access.len);
            line.field("needs", access.needs);
            if let Some(entry) = access.entry {
                line.field("region_start", format_args!("{:#x}", entry.start.get()));
                line.field("region_length", entry.len);
                line.field("region_rights", entry.access);
                line.field("region_pd", entry.pd.0);
                line.field("pd", self.qp.init_attr.pd.0);
            }
        }
        line.limits(self);
        line.field("rnr_sent", view.counters.rnr_sent);
        line.field("rnr_received", view.counters.rnr_received);
        line.field("repeated", view.waits.repeated.0);
        // The cause is the last value, and a line is a line whatever it contains.
        line.field("cause", failure.sentence.replace('\n', " "));
        line.0 + "\n"
    }

    /// What it waits for; `None` if it has failed, or waits for nothing but its program.
    pub(super) fn wait_line(&self, number: u32, link: Option<&LinkNumbers>) -> Option<String> {
        let (view, now) = (&self.qp.view, sys::now());
        let waits = &view.waits;
        let mut line = Line::new("wait", number, self);
        let is_connected = self.peer_addr.is_some();
        let reason = if view.state.flushes() {
            return None;
        } else if !is_connected {
            // It has receives or sends, and no peer.
            let waits = view.sends + view.receives > 0;
            waits.then_some("connection")?
        } else if waits.rnr.is_some() {
            "rnr"
        } else if let Some(blocked) = waits.blocked {
            blocked.name()
        } else if waits.grace_until.is_some() {
            "lost-peer"
        } else if waits.oldest.is_some() && waits.begun == 0 {
            "start"
        } else if waits.oldest.is_some() {
            "answer"
        } else if waits.unsent > 0 {
            "room"
        } else {
            return None;
        };
        line.field("for", reason);
        line.field("sends", view.sends);
        line.field("receives", view.receives);
        line.field("begun", waits.begun);
        if let Some(request) = &waits.oldest {
            line.request(request);
        }
        line.field("unsent", waits.unsent);
        if let Some(link) = link {
            line.field("untaken", link.untaken);
            line.millis("idle_ms", link.idle);
            if let Some(tcp) = &link.tcp {
                line.field("window", tcp.window);
                line.millis("heard_ms", Some(tcp.heard));
            }
        }
        if let Some(rnr) = &waits.rnr {
            line.millis("rnr_ms", rnr.since.map(|since| now.since(since)));
            line.millis("rnr_left_ms", rnr.until.map(|until| until.since(now)));
            line.option("rnr_retries_left", rnr.retries_left);
        }
        line.millis(
            "unanswered_ms",
            waits.unanswered_since.map(|since| now.since(since)),
        );
        line.millis(
            "grace_left_ms",
            waits.grace_until.map(|until| until.since(now)),
        );
        line.limits(self);
        line.field("repeated", waits.repeated.0);
        line.field("rnr_received", view.counters.rnr_received);
        line.field("rnr_sent", view.counters.rnr_sent);
        Some(line.0 + "\n")
    }
}

impl Line {
    /// The program's limits for waiting.
    fn limits(&mut self, info: &QueuePairInfo) {
        let attr = &info.attr;
        self.millis("peer_timeout_ms", attr.peer_timeout);
        self.millis("ack_timeout_ms", attr.ack_timeout);
        self.option("retry_count", attr.retry_count);
        self.field("rnr_retry", format_args!("{:?}", attr.rnr_retry));
    }
}

impl Core {
    /// A queue pair has failed: its failure is kept for `verbena why` after the end of the process.
    #[cold]
    pub(crate) fn record_failure(&self, number: u32) {
        if !self.config.monitor {
            return;
        }
        let Some((info, _)) = self.function.qp(number).ok().and_then(|qp| self.query(&qp)) else {
            return;
        };
        let failure = info.qp.view.failure.as_ref();
        if let Some(failure) = failure.filter(|failure| failure.kind != FailureKind::Requested) {
            let line = info.failure_line(number, failure);
            failure_log::failed(self, number, line);
        }
    }
}
