//! `verbena-peers`: one side of one measurement for `cargo xtask peers`, over plain TCP or UDP, or through Verbena's Rust API. Both sides get the
//! same arguments after the subcommand, and print their figures as one line of JSON. `xtask` starts both sides, and compares.

#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod futex;
mod idle;
mod job;
mod many_qps;
mod many_tcp;
mod rdma;
mod tcp;
mod tls;
mod udp;
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
    /// Listen on the address, answer, and end when the client disconnects
    Serve(Job),
    /// Connect to the server and measure
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
        Kind::Pingpong | Kind::Blocking => tcp::serve_pingpong(job),
        Kind::Plain | Kind::Messages => tcp::receive_plain(job),
        Kind::Framed => tcp::receive_framed(job),
        Kind::Futex => futex::serve(job),
        Kind::TlsPingpong => tls::serve_pingpong(job),
        Kind::TlsPlain => tls::receive_plain(job),
        Kind::UdpPingpong => udp::serve_pingpong(job),
        Kind::UdpStream => udp::receive_stream(job),
        Kind::Latency | Kind::Stream => rdma::serve(job),
        Kind::Many => many_qps::serve(job),
        Kind::TcpMany => many_tcp::serve(job),
        Kind::Idle => idle::serve(job),
    }
}

fn call(job: &Job) -> Result<Figures> {
    match job.kind {
        Kind::Pingpong | Kind::Blocking => tcp::run_pingpong(job),
        Kind::Plain | Kind::Messages => tcp::send_plain(job),
        Kind::Framed => tcp::send_framed(job),
        Kind::Futex => futex::call(job),
        Kind::TlsPingpong => tls::run_pingpong(job),
        Kind::TlsPlain => tls::send_plain(job),
        Kind::UdpPingpong => udp::run_pingpong(job),
        Kind::UdpStream => udp::send_stream(job),
        Kind::Latency | Kind::Stream => rdma::call(job),
        Kind::Many => many_qps::call(job),
        Kind::TcpMany => many_tcp::call(job),
        Kind::Idle => idle::call(job),
    }
}

#[cfg(test)]
mod tests;
