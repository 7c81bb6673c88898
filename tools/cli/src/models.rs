//! `verbena models`: the same packets pushed and pulled, side by side (P10). Every packet is checked, messages are counted by the adapters,
//! and pulling is measured at its best: the request is sent at the moment at which the packet exists.
//!
//! Two adapters in one process, each with a polling thread, so that one clock measures both ends of a transfer. Packets go one at a time,
//! to the unit and to the host alternately.

mod end;
mod report;
mod side;
mod turns;

pub use report::{Row, print_json, print_text};

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use verbena::{Config, Device};

use turns::Turns;

/// The shortest packet: its number is at both ends.
pub const SHORTEST: u32 = 16;
/// The longest.
pub const LONGEST: u32 = 1 << 20;

/// How a packet is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferMode {
    /// The sender writes it to memory that was lent before.
    Push,
    /// The receiver requests it and names a buffer; the sender writes it there.
    Pull,
    /// The sender announces its address; the receiver reads it, and reports that.
    Read,
}

/// A model: how packets are transferred to the unit, and to the host.
///
/// | model | to the unit | to the host |
/// | --- | --- | --- |
/// | push-push | pushed | pushed |
/// | push-pull | pushed | pulled |
/// | pull-pull | pulled | pulled |
/// | read | read | read |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    to_unit: TransferMode,
    to_host: TransferMode,
}

impl Model {
    /// Every model; the others are compared with the first.
    pub const ALL: [Model; 4] = [
        Model::new("push-push", TransferMode::Push, TransferMode::Push),
        Model::new("push-pull", TransferMode::Push, TransferMode::Pull),
        Model::new("pull-pull", TransferMode::Pull, TransferMode::Pull),
        Model::new("read", TransferMode::Read, TransferMode::Read),
    ];

    const fn new(name: &'static str, to_unit: TransferMode, to_host: TransferMode) -> Model {
        Model {
            name,
            to_unit,
            to_host,
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bytes of the packets.
    pub sizes: Vec<u32>,
    /// Packets in each direction per round.
    pub count: u32,
    /// Rounds; each runs all models.
    pub rounds: usize,
}

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The adapter.
    #[error(transparent)]
    Adapter(#[from] verbena::Error),
    /// The session rejected a call: a bug.
    #[error("session: {0}")]
    Session(#[from] verbena_push::Misuse),
    /// The peer's message violated the protocol: a bug, since both sides are ours.
    #[error("peer: {0}")]
    Violation(#[from] verbena_push::Violation),
    /// A size outside the limits.
    #[error("a packet must have {SHORTEST} to {LONGEST} bytes, not {0}")]
    Size(u32),
    /// A request failed, or a packet is not what was sent.
    #[error("{0}")]
    Failed(String),
}

/// One round of one model.
#[derive(Debug, Clone, Default)]
struct Sample {
    /// The time of each packet.
    to_unit: Vec<Duration>,
    to_host: Vec<Duration>,
    /// Of both adapters: messages, and bytes of the streams.
    messages: u64,
    bytes: u64,
}

/// Measures all models in each size; `told` gets each row as it is complete.
pub fn run(
    config: &Config,
    plan: &Plan,
    mut progress: impl FnMut(&Row),
) -> Result<Vec<Row>, Error> {
    let fits = |size: &&u32| !(SHORTEST..=LONGEST).contains(*size);
    if let Some(size) = plan.sizes.iter().find(fits) {
        return Err(Error::Size(*size));
    }
    let host = Device::with(config.clone())?;
    let unit = Device::with(config.clone())?;
    let mut rows = Vec::new();
    for &size in &plan.sizes {
        let mut samples = [const { Vec::new() }; Model::ALL.len()];
        for _ in 0..plan.rounds.max(1) {
            for (model, samples) in Model::ALL.iter().zip(&mut samples) {
                samples.push(measure(&host, &unit, *model, size, plan.count.max(1))?);
            }
        }
        for (model, ours) in Model::ALL.iter().zip(&samples) {
            let row = Row::new(model, size, ours, &samples[0]);
            progress(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// One round of one model, on new connections.
fn measure(
    host: &Device,
    unit: &Device,
    model: Model,
    size: u32,
    count: u32,
) -> Result<Sample, Error> {
    let mut ours = end::End::new(host, model.to_unit, model.to_host, size)?;
    let mut theirs = end::End::new(unit, model.to_host, model.to_unit, size)?;
    let listener = unit.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    for (a, b) in [(&ours.control, &theirs.control), (&ours.data, &theirs.data)] {
        let joining = a.connect(listener.local_addr()?, b"")?;
        listener.next().wait()?.accept_on(b, b"")?.wait()?;
        joining.wait()?;
    }
    let stage = Turns::new(count);
    let (host, unit) = std::thread::scope(|s| {
        let far = s.spawn(|| stage.run(|| side::run_side(&mut theirs, 1, &stage)));
        let near = stage.run(|| side::run_side(&mut ours, 0, &stage));
        let far = far.join();
        (
            near,
            far.unwrap_or_else(|_| Err(Error::Failed("the unit's thread ended".into()))),
        )
    });
    let (host, unit) = (host?, unit?);
    Ok(Sample {
        to_unit: unit.latencies,
        to_host: host.latencies,
        messages: host.messages + unit.messages,
        bytes: host.bytes + unit.bytes,
    })
}

#[cfg(test)]
mod tests;
