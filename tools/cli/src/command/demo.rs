//! `verbena demo`: starts the second process, runs the demonstration against it, then a short benchmark. Both processes end in any case,
//! the exit code says whether every byte was right, and only loopback is used.

use std::io::{self, Write};

use clap::Args;
use verbena::Config;
use verbena_cli::bench::{Case, Metric, Op, Plan, SILENCE_LIMIT, print_text, run as measure};
use verbena_cli::demo;

use super::bench::ServerProcess;

#[derive(Args)]
pub(crate) struct Demo {
    /// Only the operations, without the table of figures
    #[arg(long)]
    quick: bool,
    /// Run as the second process
    #[arg(long, hide = true)]
    serve: bool,
}

pub(crate) fn run(args: &Demo) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn try_run(args: &Demo) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load()?;
    let mut out = io::stdout().lock();
    if args.serve {
        demo::serve(config, |at| {
            writeln!(out, "{at}")?;
            out.flush()
        })?;
        return Ok(());
    }
    writeln!(
        out,
        "Two processes on this machine, connected by RDMA over TCP:"
    )?;
    let partner = ServerProcess::start(&["demo".to_owned(), "--serve".to_owned()])?;
    demo::run(config.clone(), partner.addr, &mut out)?;
    drop(partner);
    writeln!(out, "All data was verified.")?;
    if args.quick {
        return Ok(());
    }
    writeln!(
        out,
        "\nPerformance on this machine, compared with a plain TCP socket in the same run:"
    )?;
    let server = ["bench", "--server", "127.0.0.1:0"].map(str::to_owned);
    let partner = ServerProcess::start(&server)?;
    let case = |op, metric, size, count| Case {
        op,
        metric,
        size,
        count,
        depth: 64,
        qps: 1,
        threads: 1,
        one_cq: false,
        poll_memory: false,
    };
    let plan = Plan {
        cases: vec![
            case(Op::Send, Metric::Latency, 8, 3000),
            case(Op::Write, Metric::Bandwidth, 64 << 10, 8192),
            case(Op::Write, Metric::Bandwidth, 1 << 20, 512),
            case(Op::Write, Metric::Rate, 64, 100_000),
        ],
        baseline: true,
        rounds: 3,
        limit: SILENCE_LIMIT,
    };
    let mut last = None;
    measure(config, partner.addr, &plan, |outcome| {
        let kind = (outcome.case.op, outcome.case.metric);
        let _ = print_text(&mut out, outcome, last != Some(kind));
        last = Some(kind);
    })?;
    Ok(())
}
