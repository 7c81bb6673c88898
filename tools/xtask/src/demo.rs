//! `cargo demo`: shows Verbena at work with one command and without preparation.
//! Each part is announced with the command that runs it alone.
//! Its files are written below cargo's target folder.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;

use crate::sim;
use crate::workspace::Workspace;

#[derive(Args)]
pub(crate) struct Options {
    /// Further arguments for `verbena decode`, after `--` (for example `-- --json`)
    #[arg(last = true)]
    decode: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.target.join("demo");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let capture = folder.join("demo.pcap");

    heading(
        "1. RDMA between two processes, over TCP on this machine",
        "`verbena demo` starts a second process and does everything once with it: messages,\n\
         one-sided writes and reads, atomics. Every byte is checked. Then it measures.",
    );
    workspace
        .cargo()
        .args(["run", "--quiet", "--package", "verbena-cli"])
        .args(["--bin", "verbena", "--", "demo"])
        .run()?;

    heading(
        "2. Two simulated adapters talk iWARP, and a capture file records it",
        "The same protocol core without socket and network: the simulator drives it\n\
         with a virtual clock and writes what crossed its links as an ordinary pcap file.",
    );
    sim::simulator(workspace, false)
        .args(["capture", "--out"])
        .arg(&capture)
        .run()?;

    heading(
        "3. `verbena decode` reads the capture",
        "One line per RDMAP message: time, stream, direction, kind, length. `>` runs from the\n\
         initiator of the connection to its responder, `<` back. A summary per stream follows.",
    );
    decode(workspace, &capture, &options.decode)?;

    println!("\nThe capture stays in {}.", capture.display());
    println!("Wireshark and tshark open it too. Any iWARP capture of your own works as well:");
    println!("    cargo run -p verbena-cli --bin verbena -- decode FILE");
    Ok(())
}

fn decode(workspace: &Workspace, capture: &Path, rest: &[String]) -> Result<()> {
    workspace
        .cargo()
        .args(["run", "--quiet", "--package", "verbena-cli"])
        .args(["--bin", "verbena", "--", "decode"])
        .arg(capture)
        .args(rest)
        .run()
}

fn heading(title: &str, explanation: &str) {
    println!("\n{title}\n{}", "=".repeat(title.chars().count()));
    println!("{explanation}\n");
}
