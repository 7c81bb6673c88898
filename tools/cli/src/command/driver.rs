//! What `verbena host` and `verbena unit` have in common: signals, messages, and status requests. The first Ctrl-C ends a driver in good
//! order, and the second at once.

use std::error::Error;
use std::io::Write;

use clap::ValueEnum;
use serde::de::DeserializeOwned;
use verbena::Device;
use verbena_split::carrier::Carrier;
use verbena_split::channel_kinds::KindChoice;
use verbena_split::lane::{Lane, MOST_QUEUES};
use verbena_split::service::Counts;
use verbena_split::status::{self, HostStatus, LinkStatus, UnitStatus};
use verbena_split::stop::Stop;
use verbena_split::{IndicationMode, Journal};

/// A status as text.
pub(crate) trait StatusText {
    /// Its lines.
    fn lines(&self) -> Vec<String>;
}

/// Whether channels are acknowledged (P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    Acknowledged,
    Unacknowledged,
}

/// Whether the data channel is connected (P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataChannel {
    Connected,
    Connectionless,
}

/// How packets are indicated (P7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Indication {
    Immediate,
    Element,
    Address,
}

/// The attributes of channels that were chosen.
pub(crate) fn kind_choice(delivery: Option<Delivery>, data: Option<DataChannel>) -> KindChoice {
    KindChoice {
        acknowledged: delivery.map(|delivery| delivery == Delivery::Acknowledged),
        connectionless: data.map(|data| data == DataChannel::Connectionless),
    }
}

/// The form that was chosen, or the default.
pub(crate) fn indication_mode(form: Option<Indication>) -> IndicationMode {
    match form {
        None | Some(Indication::Immediate) => IndicationMode::Immediate,
        Some(Indication::Element) => IndicationMode::Element,
        Some(Indication::Address) => IndicationMode::Address,
    }
}

/// The adapter whose event queues get what happens on the channels, if that was chosen; carriers over iwarp have their own.
#[derive(Clone)]
pub(crate) struct ChannelEvents(Option<Device>);

impl ChannelEvents {
    pub(crate) fn open(chosen: bool) -> Result<ChannelEvents, verbena::Error> {
        Ok(ChannelEvents(chosen.then(Device::open).transpose()?))
    }

    /// The carrier, which reports to that adapter.
    pub(crate) fn of(&self, mut carrier: Box<dyn Carrier>) -> Box<dyn Carrier> {
        if let ChannelEvents(Some(device)) = self {
            carrier.report_channels_to(device);
        }
        carrier
    }
}

/// A stop that Ctrl-C and SIGTERM request.
pub(crate) fn stop() -> Result<Stop, Box<dyn Error>> {
    let stop = Stop::new()?;
    let (wish, mut asked) = (stop.clone(), false);
    ctrlc::set_handler(move || {
        if is_second_signal(&mut asked, &wish) {
            // The second signal ends the process at once.
            std::process::exit(130);
        }
    })?;
    Ok(stop)
}

/// Requests the stop; true if a signal did before. The state of `stop` does not show that, since a queue that fails requests it, too.
fn is_second_signal(asked: &mut bool, stop: &Stop) -> bool {
    stop.request();
    core::mem::replace(asked, true)
}

/// Messages go to standard error; those of further queues name the queue.
pub(crate) fn journal(who: &'static str, lane: Lane, quiet: bool) -> Journal {
    if quiet {
        return Journal::silent();
    }
    if lane.is_first() {
        return Journal::new(move |what| eprintln!("{who}: {what}"));
    }
    Journal::new(move |what| eprintln!("{who}: {lane}: {what}"))
}

/// The valid numbers of queues.
pub(crate) fn queues() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(1..=i64::from(MOST_QUEUES))
}

/// Text for several queues; empty for one.
pub(crate) fn queues_suffix(queues: u8) -> String {
    match queues {
        0 | 1 => String::new(),
        several => format!(" with {several} queues"),
    }
}

/// Text for the number of a queue; empty for the only one.
pub(crate) fn queue_suffix(queue: u8, of: u8) -> String {
    match Lane::new(queue, of) {
        Ok(Lane::ONLY) | Err(_) => String::new(),
        Ok(lane) => format!(", {lane}"),
    }
}

/// The machine's node name.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn exit_code(done: Result<(), Box<dyn Error>>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

/// Shows the status of drivers, queue by queue: all of a kind, or one.
pub(crate) fn status(kind: &'static str, name: Option<&str>, json: bool) -> u8 {
    let names = match name {
        Some(name) => status::queues(kind, name),
        None => status::running(kind),
    };
    let names = match names {
        Ok(names) => names,
        Err(error) => {
            eprintln!("verbena: cannot read the directory of the drivers' sockets: {error}");
            return 1;
        }
    };
    let mut shown = 0;
    for driver in &names {
        match status::query(driver) {
            Ok(answer) => shown += u32::from(show(kind, &answer, json)),
            // A killed driver leaves its sockets, also those of queues that its successor does not have. Queues end one by one.
            Err(error) if is_not_listening(&error) && (name.is_none() || driver.contains(':')) => {}
            Err(error) => {
                eprintln!("verbena: driver {driver} does not answer: {error}");
                return 1;
            }
        }
    }
    if shown == 0 {
        eprintln!("verbena: no {kind} driver of this user runs");
        return 1;
    }
    0
}

/// Whether no driver listens on the socket.
fn is_not_listening(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionRefused | K::NotFound)
}

fn show(kind: &str, answer: &str, json: bool) -> bool {
    fn lines<T: StatusText + DeserializeOwned>(answer: &str) -> Option<Vec<String>> {
        serde_json::from_str::<T>(answer).ok().map(|t| t.lines())
    }
    let lines = match (json, kind) {
        (true, _) => Some(vec![answer.to_owned()]),
        (false, "host") => lines::<HostStatus>(answer),
        (false, _) => lines::<UnitStatus>(answer),
    };
    let Some(lines) = lines else {
        eprintln!("verbena: truncated answer of the driver: {answer:.80}");
        return false;
    };
    let mut out = std::io::stdout().lock();
    // A closed pipe is no error.
    let _ = writeln!(out, "{}", lines.join("\n"));
    true
}

pub(crate) fn messages(link: &LinkStatus) -> String {
    format!(
        "  messages      {} out, {} in; packets {} out ({} by immediate data, {} by message), {} in; {} acknowledgements outdated; {} free, {} lost, {} protocol violations{}",
        link.messages_out,
        link.messages_in,
        link.packets_out,
        link.immediates_out,
        link.indications_out,
        link.packets_in,
        link.outdated,
        link.free,
        link.lost,
        link.violations,
        violation_kinds(link)
    )
}

/// The violations by kind.
fn violation_kinds(link: &LinkStatus) -> String {
    let kinds = link.violations_by_kind.iter();
    let kinds: Vec<String> = kinds
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    match kinds.is_empty() {
        true => String::new(),
        false => format!(" ({})", kinds.join(", ")),
    }
}

pub(crate) fn counts(counts: &Counts) -> String {
    format!(
        "{} in, {} out; lost: {} no room, {} refused, {} unfit",
        counts.frames_in, counts.frames_out, counts.full, counts.refused, counts.unfit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_failure_does_not_count_as_interrupt() {
        let stop = Stop::new().unwrap();
        let mut asked = false;
        assert!(!is_second_signal(&mut asked, &stop) && stop.is_requested());
        let mut asked = false;
        assert!(
            !is_second_signal(&mut asked, &stop),
            "a queue wished it before"
        );
        assert!(is_second_signal(&mut asked, &stop));
    }
}
