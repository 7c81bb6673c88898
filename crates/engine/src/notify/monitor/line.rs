//! An event as a line of text: time, class, event, and the numbers of the objects concerned.
//! Every line is `SECONDS CLASS EVENT KEY=VALUE…` with single blanks between fields and none in them; lines end with a newline.

use std::time::{SystemTime, UNIX_EPOCH};

use verbena_events::eqe::{ChannelEvent, Class};
use verbena_events::interrupts::SignalCounters;
use verbena_events::vector::Signal;
use verbena_nic::{Cause, Event, Reason};

use crate::notify::interrupt_counters::InterruptCounters;
use crate::security::access::Refusal;

/// The class of the lines of interrupt counters.
pub const COUNTERS_CLASS: &str = "interrupts";
/// The event of the last of these lines.
pub const COUNTERS_TOTAL: &str = "total";

/// The line of an event that happened now.
pub(super) fn event(cause: Cause) -> String {
    let class = match cause.class() {
        Class::Rdma => "rdma",
        Class::Channel => "channel",
        Class::Global => "global",
        Class::Management => "management",
    };
    format!("{} {class} {}\n", time(), describe(cause))
}

/// The line of a refused source address.
pub(super) fn refusal(refusal: &Refusal) -> String {
    let source = match refusal.source {
        Some(source) => source.to_string(),
        None => "others".to_owned(),
    };
    let Refusal { by, count, .. } = refusal;
    format!(
        "{} access refused source={source} by={by} count={count}\n",
        time()
    )
}

/// The lines of the interrupt counters (E12): one per vector that was used, and the total.
pub(super) fn counters(counters: &InterruptCounters) -> Vec<String> {
    let time = time();
    let vector = |signal: &SignalCounters| {
        let name = match signal.signal {
            Signal::Line => "line".to_owned(),
            Signal::Vector(vector) => vector.to_string(),
        };
        let SignalCounters {
            interrupts,
            events,
            writes,
            code,
            ..
        } = signal;
        let coalesced = signal.coalesced();
        format!(
            "{time} {COUNTERS_CLASS} vector vector={name} interrupts={interrupts} events={events} coalesced={coalesced} register_writes={writes} code={code:#04x}\n"
        )
    };
    let mut lines: Vec<String> = counters.signals.iter().map(vector).collect();
    let sum = |count: fn(&SignalCounters) -> u64| counters.signals.iter().map(count).sum::<u64>();
    lines.push(format!(
        "{time} {COUNTERS_CLASS} {COUNTERS_TOTAL} interrupts={} events={} coalesced={} register_writes={} register_reads={}\n",
        sum(|signal| signal.interrupts),
        sum(|signal| signal.events),
        sum(SignalCounters::coalesced),
        counters.accesses.writes,
        counters.accesses.reads,
    ));
    lines
}

/// The line that stands for `count` lines that were dropped.
pub(super) fn missed(count: u64) -> String {
    format!("{} monitor missed count={count}\n", time())
}

/// Seconds since 1970, with microseconds.
fn time() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    format!("{}.{:06}", since.as_secs(), since.subsec_micros())
}

fn describe(cause: Cause) -> String {
    match cause {
        Cause::Rdma(event) => rdma(event),
        Cause::CommandDone { command } => format!("command_done command={command}"),
        Cause::Channel {
            channel,
            what,
            count,
        } => channel_event(channel, what, count),
        Cause::MemoryError { internal, bank } => {
            let side = if internal { "internal" } else { "external" };
            format!("memory_error side={side} bank={bank}")
        }
        Cause::Link { port, up } => {
            let what = if up { "link_up" } else { "link_down" };
            format!("{what} port={port}")
        }
        Cause::GeneralPurpose { pin } => format!("general_purpose pin={pin}"),
        Cause::Overflow { queue } => format!("eq_overflow eq={queue}"),
        Cause::Management { parameter } => format!("management parameter={parameter}"),
    }
}

fn channel_event(channel: u8, what: ChannelEvent, count: u32) -> String {
    let what = match what {
        ChannelEvent::BuffersLow => "buffers_low",
        ChannelEvent::Returned => "returned",
        ChannelEvent::IllegalPost => "illegal_post",
    };
    format!("{what} channel={channel} count={count}")
}

fn rdma(event: Event) -> String {
    match event {
        Event::Completion { cq, reason } => {
            let reason = match reason {
                Reason::Next => "next",
                Reason::Solicited => "solicited",
                Reason::Failure => "failure",
            };
            format!("completion cq={cq} reason={reason}")
        }
        Event::CqOverflow { cq } => format!("cq_overflow cq={cq}"),
        Event::SrqLimit { srq } => format!("srq_limit srq={srq}"),
        Event::SrqError { srq } => format!("srq_error srq={srq}"),
        Event::QpRequest { qp } => format!("qp_request_error qp={qp}"),
        Event::QpAccess { qp } => format!("qp_access_error qp={qp}"),
        Event::QpFatal { qp } => format!("qp_fatal qp={qp}"),
        Event::Established { qp } => format!("established qp={qp}"),
        Event::SqDrained { qp } => format!("sq_drained qp={qp}"),
        Event::LastWqe { qp } => format!("last_wqe qp={qp}"),
        Event::Disconnected { qp } => format!("disconnected qp={qp}"),
        Event::PortActive { port } => format!("port_active port={port}"),
        Event::PortError { port } => format!("port_error port={port}"),
        Event::Channel {
            channel,
            what,
            count,
        } => channel_event(channel, what, count),
        Event::Missed { count } => format!("events_missed count={count}"),
        Event::DeviceFatal => "device_fatal".to_owned(),
    }
}

#[cfg(test)]
mod tests;
