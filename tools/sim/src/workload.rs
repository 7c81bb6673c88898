//! What programs do with connections, by kind; the seed picks the kind and everything else.
//! A conforming pair of adapters completes every session, unless a fault was drawn.

mod connect_churn;
mod mixed;
mod read_storm;
mod request_response;
mod rnr;
mod streaming_writes;

use core::fmt;
use core::str::FromStr;

use crate::plan::{Builder, Plan};
use crate::rng::{Ratio, Rng};
use crate::session::{Abilities, Session, abilities, draw_link, draw_profiles};

/// A kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A client sends requests, a server answers.
    RequestResponse,
    /// One side writes to the other's memory.
    StreamingWrites,
    /// Reads and atomics at every depth, in both directions.
    ReadStorm,
    /// Many short connections, some rejected, some reset.
    ConnectChurn,
    /// Everything at once.
    Mixed,
    /// Receives that are posted too late.
    Rnr,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 6] = [
        Workload::RequestResponse,
        Workload::StreamingWrites,
        Workload::ReadStorm,
        Workload::ConnectChurn,
        Workload::Mixed,
        Workload::Rnr,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::RequestResponse => "request-response",
            Workload::StreamingWrites => "streaming-writes",
            Workload::ReadStorm => "read-storm",
            Workload::ConnectChurn => "connect-churn",
            Workload::Mixed => "mixed",
            Workload::Rnr => "rnr",
        }
    }

    /// The connections of one run.
    pub fn sessions(self, rng: &mut Rng) -> Vec<Session> {
        match self {
            Workload::ConnectChurn => connect_churn::sessions(rng),
            Workload::RequestResponse => vec![one(rng, request_response::plan)],
            Workload::StreamingWrites => vec![one(rng, streaming_writes::plan)],
            Workload::ReadStorm => vec![one(rng, read_storm::plan)],
            Workload::Mixed => vec![one(rng, mixed::plan)],
            Workload::Rnr => vec![rnr::session(rng)],
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Workload, String> {
        let found = Workload::ALL.into_iter().find(|w| w.name() == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Workload::ALL.iter().map(|w| w.name()).collect();
            format!("no workload {name:?}; there are {}", names.join(", "))
        })
    }
}

/// One session with a plan: peers, links and perhaps a fault are drawn.
fn one(rng: &mut Rng, plan: impl Fn(Builder, &Abilities, usize) -> Plan) -> Session {
    let profiles = draw_profiles(rng);
    session_with(rng, profiles, plan)
}

fn session_with(
    rng: &mut Rng,
    profiles: [crate::peer::Profile; 2],
    plan: impl Fn(Builder, &Abilities, usize) -> Plan,
) -> Session {
    let can = abilities(&profiles);
    let scale = rng.pick(&[4, 20, 80, 250]);
    let size = rng.pick(&[600, 5_000, 70_000]);
    let mut builder = Builder::new(rng.fork(), size);
    if can.needs_first_write {
        builder.first_write();
    }
    let plan = plan(builder, &can, scale);
    let bytes: usize = plan
        .sides
        .iter()
        .flat_map(|s| &s.works)
        .map(|w| w.work.bytes())
        .sum();
    let mut links = [draw_link(rng, bytes), draw_link(rng, bytes)];
    let mut reset_after = None;
    match rng.below(10) {
        0 | 1 => reset_after = Some(rng.range(0, bytes as u64 + 500)),
        // Without checksums a flipped bit is not detected.
        2..=4 if can.crc => {
            let flip = Ratio::per_mille(rng.pick(&[1, 5, 30]));
            links[rng.below(2) as usize].flip = flip;
        }
        _ => {}
    }
    Session {
        profiles,
        links,
        reset_after,
        plan,
    }
}

/// A length, often at the edges of segments.
fn draw_len(rng: &mut Rng, most: usize) -> usize {
    let len = match rng.below(8) {
        0 => 0,
        1 => 1,
        2 | 3 => rng.len(2, 100),
        4 => rng.len(100, 1500),
        // One segment of the smallest size, and its neighbours.
        5 => 128 * rng.len(1, 4) - 14 - rng.len(0, 8),
        6 => rng.len(1, 20_000),
        _ => rng.len(1, most.max(1)),
    };
    len.min(most)
}
