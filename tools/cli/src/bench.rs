//! `verbena bench`: performance of the adapter, next to plain TCP in the same run. Results are medians of the rounds, every message has
//! completed, and columns have perftest's names.

mod baseline;
mod case;
mod client;
mod endpoint;
mod report;
mod server;

pub use case::{Case, MAX_OUTSTANDING, MAX_QPS, MAX_THREADS, Metric, Op};
pub use endpoint::{BenchEndpoint, Completion};
pub use report::{Outcome, print_json, print_text};
pub use server::Server;

use std::net::SocketAddr;

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
}

/// Measures against a server. `told` gets each case as it ends.
pub fn run(
    config: Config,
    server: SocketAddr,
    plan: &Plan,
    mut notified: impl FnMut(&Outcome),
) -> Result<Vec<Outcome>, Error> {
    let device = Device::with(config)?;
    let mut outcomes = Vec::new();
    for case in &plan.cases {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds.max(1) {
            let (sample, tcp) = client::measure(&device, server, case)?;
            ours.push(sample);
            if plan.baseline {
                theirs.push(baseline::measure(tcp, case)?);
            }
        }
        let outcome = Outcome::new(*case, ours, &theirs);
        notified(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
