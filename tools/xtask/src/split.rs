//! `cargo xtask split`: measures the split driver beside a veth pair, a pair of TAP interfaces and a plain tunnel, by turns in one run.
//! It prints medians over rounds in which every way had its turn, and removes what it created.
//! It does not write the docs, and needs root for network namespaces.

mod link_kind;

use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;

use crate::clients::user;
use crate::command::find;
use crate::median::median;
use crate::packages;
use crate::workspace::Workspace;
use link_kind::{Figures, LINK_KINDS, LinkKind, Load};

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds, each of which measures every link once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds of each transfer
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
    /// Congestion control of the TCP connections that are measured: the machine's default may pace
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// TCP connections at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128))]
    streams: u16,
    /// Measure only links whose name contains this, besides the cable, the pair and the tunnel; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Use the programs of the last build
    #[arg(long)]
    no_build: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if !user::is_root() {
        bail!("creating network namespaces requires root");
    }
    if let Some(missing) = ["ip", "ping", "iperf3"].iter().find(|p| find(p).is_none()) {
        packages::ensure(true, false)?;
        if find(missing).is_none() {
            bail!("{missing} is not installed");
        }
    }
    if !options.no_build {
        let build = ["build", "--release", "--package", "verbena-cli"];
        workspace.cargo().args(build).run()?;
        let build = [
            "build",
            "--release",
            "--package",
            "verbena-lan",
            "--examples",
        ];
        workspace.cargo().args(build).run()?;
    }
    let programs = workspace.target.join("release");
    let wanted = |way: &&LinkKind| {
        let name = way.name();
        !way.is_split() || options.only.is_empty() || options.only.iter().any(|o| name.contains(o))
    };
    let ways: Vec<&LinkKind> = LINK_KINDS.iter().filter(wanted).collect();
    let load = Load {
        congestion: options.congestion.clone(),
        streams: options.streams,
        seconds: options.seconds,
    };
    let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); ways.len()];
    for round in 1..=options.rounds {
        for (way, figures) in ways.iter().zip(&mut figures) {
            print!("round {round} of {}: {:<20}\r", options.rounds, way.name());
            std::io::stdout().flush()?;
            figures.push(way.measure(&programs, &load)?);
        }
    }
    print_table(&ways, &figures);
    Ok(())
}

/// Selects a column of the table.
type Column = fn(&Figures) -> f64;

fn print_table(ways: &[&LinkKind], figures: &[Vec<Figures>]) {
    let columns: [(&str, Column); 4] = [
        ("ping us", |f| f.ping),
        ("TCP out Gb/s", |f| f.out),
        ("TCP in Gb/s", |f| f.back),
        ("UDP 1400 Mb/s", |f| f.datagrams),
    ];
    let middle = |figures: &[Figures], column: Column| {
        median(figures.iter().map(column)).unwrap_or(f64::NAN)
    };
    let of = |way: LinkKind, column| {
        let at = ways.iter().position(|w| **w == way);
        at.map_or(f64::NAN, |at| middle(&figures[at], column))
    };
    let heads: Vec<String> = columns
        .iter()
        .map(|(name, _)| format!("{name:>14}"))
        .collect();
    println!(
        "| {:<18} | {} | {:>10} | {:>8} |",
        "way",
        heads.join(" | "),
        "to tunnel",
        "to pair"
    );
    println!("|{}", " --- |".repeat(columns.len() + 3));
    for (way, figures) in ways.iter().zip(figures) {
        let cells: Vec<String> = columns
            .iter()
            .map(|(_, column)| format!("{:>14.1}", middle(figures, *column)))
            .collect();
        let out = |f: &Figures| f.out + f.back;
        let both = middle(figures, out);
        let (tunnel, pair) = (
            both / of(LinkKind::Tunnel, out),
            both / of(LinkKind::Pair, out),
        );
        println!(
            "| {:<18} | {} | {tunnel:>10.2} | {pair:>8.2} |",
            way.name(),
            cells.join(" | ")
        );
    }
    println!("Medians; the last two columns compare TCP out and in together.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = LINK_KINDS.iter().map(LinkKind::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), LINK_KINDS.len());
    }
}
