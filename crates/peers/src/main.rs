//! `verbena-peers`: one side of one measurement for `cargo xtask peers`, over plain TCP or through Verbena's Rust API. Both sides get the
//! same arguments after the subcommand, and print their figures as one line of JSON. `xtask` starts both sides, and compares.

#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod idle;
mod job;
mod many;
mod rdma;
mod sockets;
mod tcp;
mod tls;
mod usage;

use anyhow::Result;
use clap::{Parser, Subcommand};

use job::{Figures, Job, Kind};

/// One side of one measurement: `serve` first, then `call` with the same arguments.
#[derive(Parser)]
#[command(name = "verbena-peers", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    side: Side,
}

#[derive(Subcommand)]
enum Side {
    /// Wait at the address, answer, and end when the caller has gone
    Serve(Job),
    /// Call the server and measure
    Call(Job),
}

fn main() -> Result<()> {
    let figures = match Cli::parse().side {
        Side::Serve(job) => serve(&job)?,
        Side::Call(job) => call(&job)?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn serve(job: &Job) -> Result<Figures> {
    match job.kind {
        Kind::Pingpong | Kind::Blocking => tcp::answer(job),
        Kind::Plain | Kind::Messages => tcp::take_plain(job),
        Kind::Framed => tcp::take_framed(job),
        Kind::TlsPingpong => tls::answer(job),
        Kind::TlsPlain => tls::take(job),
        Kind::Latency | Kind::Stream => rdma::serve(job),
        Kind::Many => many::serve(job),
        Kind::TcpMany => sockets::serve(job),
        Kind::Idle => idle::serve(job),
    }
}

fn call(job: &Job) -> Result<Figures> {
    match job.kind {
        Kind::Pingpong | Kind::Blocking => tcp::ask(job),
        Kind::Plain | Kind::Messages => tcp::give_plain(job),
        Kind::Framed => tcp::give_framed(job),
        Kind::TlsPingpong => tls::ask(job),
        Kind::TlsPlain => tls::give(job),
        Kind::Latency | Kind::Stream => rdma::call(job),
        Kind::Many => many::call(job),
        Kind::TcpMany => sockets::call(job),
        Kind::Idle => idle::call(job),
    }
}

#[cfg(test)]
mod tests;
