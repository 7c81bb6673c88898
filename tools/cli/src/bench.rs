//! `verbena bench`: performance of the adapter, next to plain TCP in the same run. Results are medians of the rounds, every message has
//! completed, and columns have perftest's names.
//!
//! It is also the load generator of `cargo xtask peers`: `verbena-peers` runs the same loops (`load.rs`, `answer.rs`, `tcp.rs`) and counts
//! with the same meter (`meter.rs`), but ends by time instead of by a number of messages.

mod answer;
mod baseline;
mod case;
mod client;
mod endpoint;
mod load;
mod meter;
mod plot;
mod report;
mod server;
mod silence;
pub mod tcp;

pub use answer::{LAST_TURN, answer_writes, await_disconnect, receive};
pub use case::{Case, MAX_OUTSTANDING, MAX_QPS, MAX_THREADS, Metric, Op};
pub use endpoint::{BenchEndpoint, Completion};
pub use load::{Streams, round_trips};
pub use meter::{Extent, Meter, Throughput, Timer, quantile};
pub use plot::plot;
pub use report::{Outcome, print_json, print_text};
pub use server::Server;
pub use silence::{SILENCE_LIMIT, Silence};

use std::net::SocketAddr;
use std::time::Duration;

use verbena::{Config, Device};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cases, in order.
    pub cases: Vec<Case>,
    /// Also run the same pattern over plain TCP sockets.
    pub baseline: bool,
    /// Runs of each case; the median is reported.
    pub rounds: usize,
    /// How long the server may be silent.
    pub limit: Duration,
}

/// Why a benchmark ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The adapter.
    #[error(transparent)]
    Adapter(#[from] verbena::Error),
    /// A socket of the baseline, or the server's process.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// A request failed.
    #[error("{0}")]
    Failed(String),
    /// The peer closed a connection during the measurement.
    #[error("the peer disconnected")]
    Disconnected,
    /// The connections are established, but the peer does nothing.
    #[error("the peer has been silent for {0:?}; --timeout sets the limit")]
    Silent(Duration),
}

/// Measures against a server. `told` gets each case as it ends.
pub fn run(
    config: Config,
    server: SocketAddr,
    plan: &Plan,
    mut progress: impl FnMut(&Outcome),
) -> Result<Vec<Outcome>, Error> {
    let device = Device::with(config)?;
    let mut outcomes = Vec::new();
    for case in &plan.cases {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds.max(1) {
            let (sample, tcp) = client::measure(&device, server, case, plan.limit)?;
            ours.push(sample);
            if plan.baseline {
                theirs.push(baseline::measure(tcp, case, plan.limit)?);
            }
        }
        let outcome = Outcome::new(*case, ours, &theirs);
        progress(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
