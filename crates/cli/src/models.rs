//! `verbena models`: the same packets pushed and pulled, side by side (P10).
//! It promises that every packet is checked, that messages are counted by the adapters and not by us, and that pulling is
//! measured at its best: who pulls asks at the very moment at which there is something. It refuses to judge.
//!
//! Two adapters in one process, each with a thread that polls, so that one clock tells when a packet was there and when it
//! arrived. Packets go one at a time, to the unit and to the host by turns.

mod end;
mod play;
mod report;
mod stage;

pub use report::{Row, print_json, print_text};

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use verbena::{Config, Device};

use stage::Stage;

/// The shortest packet: its number stands at both ends.
pub const SHORTEST: u32 = 16;
/// The longest.
pub const LONGEST: u32 = 1 << 20;

/// How data gets from one side to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Who has it writes it to memory that was lent before.
    Push,
    /// Who wants it asks and names a buffer; who has it writes it there.
    Pull,
    /// Who has it says where it is; who wants it reads it, and says that it did.
    Read,
}

/// A model: how packets get to the unit, and to the host.
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
    to_unit: Way,
    to_host: Way,
}

impl Model {
    /// Every model; the others are compared with the first.
    pub const ALL: [Model; 4] = [
        Model::new("push-push", Way::Push, Way::Push),
        Model::new("push-pull", Way::Push, Way::Pull),
        Model::new("pull-pull", Way::Pull, Way::Pull),
        Model::new("read", Way::Read, Way::Read),
    ];

    const fn new(name: &'static str, to_unit: Way, to_host: Way) -> Model {
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
    /// Packets each way in one round.
    pub count: u32,
    /// Rounds; the models take turns in each.
    pub rounds: usize,
}

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The adapter.
    #[error(transparent)]
    Adapter(#[from] verbena::Error),
    /// The session refuses what it was told: a fault of ours.
    #[error("the session: {0}")]
    Session(#[from] verbena_push::Misuse),
    /// The peer's message broke a rule: a fault of ours, too.
    #[error("the peer: {0}")]
    Violation(#[from] verbena_push::Violation),
    /// No such packets.
    #[error("packets have {SHORTEST} to {LONGEST} bytes, not {0}")]
    Size(u32),
    /// A request failed, or a packet is not what was sent.
    #[error("{0}")]
    Failed(String),
}

/// One round of one model.
#[derive(Debug, Clone, Default)]
struct Sample {
    /// How long each packet took.
    to_unit: Vec<Duration>,
    to_host: Vec<Duration>,
    /// By both adapters: messages, and bytes of the streams.
    messages: u64,
    bytes: u64,
}

/// Measures all models in each size; each row is told as it is done.
pub fn run(config: &Config, plan: &Plan, mut told: impl FnMut(&Row)) -> Result<Vec<Row>, Error> {
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
            told(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// One round of one model, on connections of its own.
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
        let joining = a.connect(listener.local()?, b"")?;
        listener.next().wait()?.accept_on(b, b"")?.wait()?;
        joining.wait()?;
    }
    let stage = Stage::new(count);
    let (host, unit) = std::thread::scope(|s| {
        let far = s.spawn(|| stage.keep(|| play::play(&mut theirs, 1, &stage)));
        let near = stage.keep(|| play::play(&mut ours, 0, &stage));
        let far = far.join();
        (
            near,
            far.unwrap_or_else(|_| Err(Error::Failed("the unit's thread ended".into()))),
        )
    });
    let (host, unit) = (host?, unit?);
    Ok(Sample {
        to_unit: unit.took,
        to_host: host.took,
        messages: host.messages + unit.messages,
        bytes: host.bytes + unit.bytes,
    })
}

#[cfg(test)]
mod tests;
